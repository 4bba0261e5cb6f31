"""The rows of chats.db. They never leave the store; app/conversation.py's dataclasses do.

Every table has an integer key of its own: SQLite renumbers implicit row ids on VACUUM, and the
full-text index refers to them.
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Double, ForeignKey, Index, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.store.base import Base, Flag, Key, Moment, Serial, UtcTime, Words


class ConversationRow(Base):
    """A conversation. sampling: JSON of SamplingParams, NULL follows the global preset."""

    __tablename__ = "conversations"

    seq: Mapped[Serial]
    id: Mapped[Key] = mapped_column(unique=True)
    title: Mapped[Words]
    created_at: Mapped[Moment]
    updated_at: Mapped[Moment]
    leaf_id: Mapped[str | None] = mapped_column(Text)
    model: Mapped[Words]
    system_prompt: Mapped[Words]
    sampling: Mapped[str | None] = mapped_column(Text)
    folder: Mapped[Words]
    draft: Mapped[Words]
    position: Mapped[float] = mapped_column(Double, default=0.0, server_default="0")
    is_pinned: Mapped[Flag]
    is_archived: Mapped[Flag]
    is_unread: Mapped[Flag]
    num_tokens: Mapped[int | None]
    deleted_at: Mapped[datetime | None] = mapped_column(UtcTime)


class MessageRow(Base):
    """A node of a conversation's tree; siblings share parent_id and are ordered by seq.

    stats: JSON of ReplyStats. deleted_root: the message whose deletion took this one along;
    leaf_before: the branch on screen when it was deleted, kept on the root for undo. left_out,
    question: JSON of LeftOut and ContextQuestion.
    """

    __tablename__ = "messages"
    __table_args__ = (Index("ix_messages_conversation_id_seq", "conversation_id", "seq"),)

    seq: Mapped[Serial]
    id: Mapped[Key] = mapped_column(unique=True)
    conversation_id: Mapped[str] = mapped_column(ForeignKey("conversations.id", ondelete="CASCADE"))
    parent_id: Mapped[str | None] = mapped_column(
        ForeignKey("messages.id", ondelete="CASCADE"), index=True
    )
    role: Mapped[Key]
    content: Mapped[Words]
    reasoning: Mapped[Words]
    status: Mapped[Key]
    error: Mapped[Words]
    stats: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[Moment]
    deleted_at: Mapped[datetime | None] = mapped_column(UtcTime)
    deleted_root: Mapped[str | None] = mapped_column(Text, index=True)
    leaf_before: Mapped[str | None] = mapped_column(Text)
    is_pinned: Mapped[Flag]
    left_out: Mapped[str | None] = mapped_column(Text)
    question: Mapped[str | None] = mapped_column(Text)
    error_kind: Mapped[Words]


class VisitRow(Base):
    """One opening of a conversation: recency, frequency and what tends to follow what."""

    __tablename__ = "visits"

    seq: Mapped[Serial]
    conversation_id: Mapped[str] = mapped_column(
        ForeignKey("conversations.id", ondelete="CASCADE"), index=True
    )
    opened_at: Mapped[Moment]
