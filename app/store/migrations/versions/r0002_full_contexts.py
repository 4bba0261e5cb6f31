"""Pinned messages, what a reply's context left out, questions about full contexts, error kinds."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; SQLite appends them without writing a row anew."""
    op.add_column(
        "messages", sa.Column("is_pinned", sa.Boolean(), server_default="0", nullable=False)
    )
    op.add_column("messages", sa.Column("left_out", sa.Text()))
    op.add_column("messages", sa.Column("question", sa.Text()))
    op.add_column("messages", sa.Column("error_kind", sa.Text(), server_default="", nullable=False))
