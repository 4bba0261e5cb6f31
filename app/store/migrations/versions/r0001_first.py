"""Conversations, messages, visits, and the full-text index over message text."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# A reply that is still streaming changes every second; it enters the index once, when it is done.
_SEARCH = (
    """
    CREATE VIEW messages_settled AS
        SELECT seq, content FROM messages WHERE status <> 'streaming'
    """,
    """
    CREATE VIRTUAL TABLE messages_fts USING fts5(
        content, content='messages_settled', content_rowid='seq', tokenize='trigram'
    )
    """,
    """
    CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages
    WHEN new.status <> 'streaming' BEGIN
        INSERT INTO messages_fts(rowid, content) VALUES (new.seq, new.content);
    END
    """,
    """
    CREATE TRIGGER messages_fts_delete AFTER DELETE ON messages
    WHEN old.status <> 'streaming' BEGIN
        INSERT INTO messages_fts(messages_fts, rowid, content)
            VALUES ('delete', old.seq, old.content);
    END
    """,
    """
    CREATE TRIGGER messages_fts_update_old AFTER UPDATE OF content, status ON messages
    WHEN old.status <> 'streaming' BEGIN
        INSERT INTO messages_fts(messages_fts, rowid, content)
            VALUES ('delete', old.seq, old.content);
        INSERT INTO messages_fts(rowid, content)
            SELECT new.seq, new.content WHERE new.status <> 'streaming';
    END
    """,
    """
    CREATE TRIGGER messages_fts_update_new AFTER UPDATE OF content, status ON messages
    WHEN old.status = 'streaming' AND new.status <> 'streaming' BEGIN
        INSERT INTO messages_fts(rowid, content) VALUES (new.seq, new.content);
    END
    """,
)


def upgrade() -> None:
    """Create the first schema."""
    _create_conversations()
    _create_messages()
    _create_visits()
    for statement in _SEARCH:
        op.execute(statement)


def _words(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), server_default="", nullable=False)


def _flag(name: str) -> sa.Column[bool]:
    return sa.Column(name, sa.Boolean(), server_default="0", nullable=False)


def _create_conversations() -> None:
    op.create_table(
        "conversations",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        _words("title"),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("updated_at", sa.BigInteger(), nullable=False),
        sa.Column("leaf_id", sa.Text()),
        _words("model"),
        _words("system_prompt"),
        sa.Column("sampling", sa.Text()),
        _words("folder"),
        _words("draft"),
        sa.Column("position", sa.Double(), server_default="0", nullable=False),
        _flag("is_pinned"),
        _flag("is_archived"),
        _flag("is_unread"),
        sa.Column("num_tokens", sa.Integer()),
        sa.Column("deleted_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("seq", name="pk_conversations"),
        sa.UniqueConstraint("id", name="uq_conversations_id"),
    )


def _create_messages() -> None:
    op.create_table(
        "messages",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("parent_id", sa.Text()),
        sa.Column("role", sa.Text(), nullable=False),
        _words("content"),
        _words("reasoning"),
        sa.Column("status", sa.Text(), nullable=False),
        _words("error"),
        sa.Column("stats", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("deleted_at", sa.BigInteger()),
        sa.Column("deleted_root", sa.Text()),
        sa.Column("leaf_before", sa.Text()),
        sa.PrimaryKeyConstraint("seq", name="pk_messages"),
        sa.UniqueConstraint("id", name="uq_messages_id"),
        _foreign_key("messages", "conversation_id", "conversations"),
        _foreign_key("messages", "parent_id", "messages"),
    )
    op.create_index("ix_messages_conversation_id_seq", "messages", ["conversation_id", "seq"])
    op.create_index("ix_messages_parent_id", "messages", ["parent_id"])
    op.create_index("ix_messages_deleted_root", "messages", ["deleted_root"])


def _create_visits() -> None:
    op.create_table(
        "visits",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("conversation_id", sa.Text(), nullable=False),
        sa.Column("opened_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("seq", name="pk_visits"),
        _foreign_key("visits", "conversation_id", "conversations"),
    )
    op.create_index("ix_visits_conversation_id", "visits", ["conversation_id"])


def _foreign_key(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    name = f"fk_{table}_{column}_{target}"
    return sa.ForeignKeyConstraint([column], [f"{target}.id"], name=name, ondelete="CASCADE")
