"""Alembic's entry point: runs the revisions on the connection it is handed, offline never."""

from __future__ import annotations

from alembic import context

from app.store.base import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
