"""Conversations on disk: the truth. Rows stay inside; frozen values of app/conversation.py leave.

Every method is one transaction and may be called from any thread. Knows no engine and no window.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from uuid import uuid4

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from app.conversation import (
    ContextQuestion,
    Conversation,
    LeftOut,
    Message,
    MessageStatus,
    ReplyStats,
    Role,
    SearchHit,
)
from app.errors import NotFoundError
from app.events import Notice
from app.search import parse
from app.store import finding, importing, merging, visiting
from app.store.base import now
from app.store.database import Database
from app.store.merging import Merged, Whole, load_whole
from app.store.rows import conversation_of, dump_context, dump_sampling, dump_stats
from app.store.tables import ConversationRow, MessageRow
from app.store.tree_queries import (
    change_message,
    conversation_row,
    load_message,
    load_messages,
    load_path,
    load_tree,
    message_row,
    remove_subtree,
    restore_subtree,
)
from app.transcript import Transcript
from engine.config import SamplingParams


class Unset:
    """The type of UNSET: a field that is not to be changed, where None has a meaning."""


UNSET = Unset()


def _ignore(notice: Notice) -> None:
    del notice


class ChatStore:
    """chats.db. Opening creates, migrates or salvages it.

    on_notice is told in plain words when the file was damaged.
    Raises: StoreTooNewError and the other DatabaseError kinds, from every method.
    """

    def __init__(self, path: Path, *, on_notice: Callable[[Notice], None] = _ignore) -> None:
        self._database = Database(path, on_notice=on_notice)

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._database.close()

    def check(self) -> list[str]:
        """Return what is wrong with the file; empty when it is sound."""
        return self._database.quick_check()

    def create_conversation(
        self,
        *,
        title: str = "",
        model: str = "",
        system_prompt: str = "",
        sampling: SamplingParams | None = None,
        folder: str = "",
    ) -> Conversation:
        """Add an empty conversation on top of the unpinned ones and return it."""
        moment = now()
        row = ConversationRow(
            id=uuid4().hex,
            title=title,
            created_at=moment,
            updated_at=moment,
            model=model,
            system_prompt=system_prompt,
            sampling=dump_sampling(sampling),
            folder=folder,
            draft="",
            position=0.0,
            is_pinned=False,
            is_archived=False,
            is_unread=False,
        )
        with self._database.writing() as session:
            session.add(row)
            session.flush()
            return conversation_of(row)

    def conversations(self, *, include_archived: bool = False) -> list[Conversation]:
        """Return all that are not deleted: pinned first, then by position, then newest first."""
        rows = ConversationRow
        query = select(rows).where(rows.deleted_at.is_(None))
        if not include_archived:
            query = query.where(rows.is_archived.is_(False))
        query = query.order_by(rows.is_pinned.desc(), rows.position, rows.updated_at.desc())
        with self._database.reading() as session:
            return [conversation_of(row) for row in session.scalars(query)]

    def conversation(self, conversation_id: str) -> Conversation:
        """Return one conversation, also a deleted one. Raises: NotFoundError."""
        with self._database.reading() as session:
            return conversation_of(conversation_row(session, conversation_id))

    def update_conversation(
        self,
        conversation_id: str,
        *,
        title: str | Unset = UNSET,
        model: str | Unset = UNSET,
        system_prompt: str | Unset = UNSET,
        sampling: SamplingParams | Unset | None = UNSET,
        folder: str | Unset = UNSET,
        draft: str | Unset = UNSET,
        position: float | Unset = UNSET,
        is_pinned: bool | Unset = UNSET,
        is_archived: bool | Unset = UNSET,
        is_unread: bool | Unset = UNSET,
        num_tokens: int | Unset | None = UNSET,
    ) -> Conversation:
        """Change the fields that are given; updated_at stays. Raises: NotFoundError."""
        changes = {
            "title": title,
            "model": model,
            "system_prompt": system_prompt,
            "sampling": sampling if isinstance(sampling, Unset) else dump_sampling(sampling),
            "folder": folder,
            "draft": draft,
            "position": position,
            "is_pinned": is_pinned,
            "is_archived": is_archived,
            "is_unread": is_unread,
            "num_tokens": num_tokens,
        }
        with self._database.writing() as session:
            row = conversation_row(session, conversation_id)
            for name, value in changes.items():
                if not isinstance(value, Unset):
                    setattr(row, name, value)
            return conversation_of(row)

    def move_conversation(self, conversation_id: str, *, before_id: str | None) -> None:
        """Place a conversation by hand: before another one, or last. Raises: NotFoundError."""
        order = [item.id for item in self.conversations(include_archived=True)]
        if conversation_id not in order:
            raise NotFoundError("This conversation is no longer there.", detail=conversation_id)
        order.remove(conversation_id)
        place = order.index(before_id) if before_id in order else len(order)
        order.insert(place, conversation_id)
        rows = ConversationRow
        with self._database.writing() as session:
            # New conversations have position 0 and so stay above those placed by hand.
            for position, key in enumerate(order, start=1):
                session.execute(update(rows).where(rows.id == key).values(position=position))

    def folders(self) -> list[str]:
        """Return the folder names in use, sorted."""
        names = select(ConversationRow.folder).where(
            ConversationRow.folder != "", ConversationRow.deleted_at.is_(None)
        )
        with self._database.reading() as session:
            return sorted(session.scalars(names.distinct()), key=str.casefold)

    def delete_conversation(self, conversation_id: str) -> None:
        """Hide a conversation until it is restored or purged. Raises: NotFoundError."""
        with self._database.writing() as session:
            conversation_row(session, conversation_id).deleted_at = now()

    def restore_conversation(self, conversation_id: str) -> Conversation:
        """Undo delete_conversation. Raises: NotFoundError when it was purged."""
        with self._database.writing() as session:
            row = conversation_row(session, conversation_id)
            row.deleted_at = None
            return conversation_of(row)

    def purge_deleted(self, older_than: datetime) -> list[str]:
        """Erase what was deleted before a moment; return the ids of the conversations erased."""
        rows, messages = ConversationRow, MessageRow
        with self._database.writing() as session:
            gone = list(session.scalars(select(rows.id).where(rows.deleted_at < older_than)))
            session.execute(delete(rows).where(rows.deleted_at < older_than))
            session.execute(delete(messages).where(messages.deleted_at < older_than))
            return gone

    def add_message(
        self,
        conversation_id: str,
        *,
        parent_id: str | None,
        role: Role,
        content: str,
        status: MessageStatus = MessageStatus.COMPLETE,
        message_id: str | None = None,
        created_at: datetime | None = None,
    ) -> Message:
        """Add a message below parent_id and make it the leaf.

        What a person wrote is on the disk when this returns.
        message_id, created_at: for imports; None makes new ones.
        Raises: NotFoundError when the conversation or the parent is not there.
        """
        moment = created_at or now()
        row = MessageRow(
            id=message_id or uuid4().hex,
            conversation_id=conversation_id,
            parent_id=parent_id,
            role=role.value,
            content=content,
            reasoning="",
            status=status.value,
            error="",
            created_at=moment,
        )
        with self._database.writing(durable=role is Role.USER) as session:
            conversation = conversation_row(session, conversation_id)
            if parent_id is not None:
                _assert_parent(session, parent_id, conversation_id)
            session.add(row)
            session.flush()
            conversation.leaf_id = row.id
            conversation.updated_at = moment
            return load_message(session, row.id)

    def update_message(
        self,
        message_id: str,
        *,
        content: str | None = None,
        reasoning: str | None = None,
        status: MessageStatus | None = None,
        stats: ReplyStats | None = None,
        error: str | None = None,
        error_kind: str | None = None,
        left_out: LeftOut | None = None,
        question: ContextQuestion | None = None,
        is_pinned: bool | None = None,
    ) -> Message:
        """Change the fields that are given. Raises: NotFoundError."""
        changes = {
            "content": content,
            "reasoning": reasoning,
            "status": None if status is None else status.value,
            "stats": dump_stats(stats),
            "error": error,
            "error_kind": error_kind,
            "left_out": dump_context(left_out),
            "question": dump_context(question),
            "is_pinned": is_pinned,
        }
        given = {name: value for name, value in changes.items() if value is not None}
        with self._database.writing() as session:
            return change_message(session, message_id, given)

    def message(self, message_id: str) -> Message:
        """Return one message, also a deleted one. Raises: NotFoundError."""
        with self._database.reading() as session:
            return load_message(session, message_id)

    def path(self, conversation_id: str, leaf_id: str | None = None) -> list[Message]:
        """Return the messages from the first to leaf_id, or to the leaf on screen.

        Raises: NotFoundError when the conversation is not there.
        """
        with self._database.reading() as session:
            leaf = leaf_id or conversation_row(session, conversation_id).leaf_id
            return load_path(session, conversation_id, leaf)

    def messages(self, conversation_id: str) -> list[Message]:
        """Return every message of every branch that is not deleted, in the order of writing."""
        with self._database.reading() as session:
            return load_messages(session, conversation_id, None)

    def siblings(self, message_id: str) -> list[Message]:
        """Return the versions of a message, oldest first. Raises: NotFoundError."""
        with self._database.reading() as session:
            row = message_row(session, message_id)
            tree = load_tree(session, row.conversation_id)
            ids = tree.siblings(row.id) if row.id in tree else [row.id]
            return load_messages(session, row.conversation_id, ids)

    def set_leaf(self, conversation_id: str, message_id: str) -> str:
        """Show the branch of a message, down to its newest leaf; return that leaf's id.

        Raises: NotFoundError when the message is not there or deleted.
        """
        with self._database.writing() as session:
            conversation = conversation_row(session, conversation_id)
            tree = load_tree(session, conversation_id)
            leaf = tree.newest_leaf(message_id) if message_id in tree else None
            if leaf is None:
                raise NotFoundError("This message is no longer there.", detail=message_id)
            conversation.leaf_id = leaf
            return leaf

    def delete_message(self, message_id: str) -> None:
        """Hide a message with everything below it; a sibling or the parent becomes the leaf.

        Raises: NotFoundError.
        """
        with self._database.writing() as session:
            remove_subtree(session, message_row(session, message_id))

    def restore_message(self, message_id: str) -> None:
        """Undo delete_message, the branch on screen included. Raises: NotFoundError."""
        with self._database.writing() as session:
            restore_subtree(session, message_row(session, message_id))

    def recover_unfinished(self) -> int:
        """Mark replies that were still streaming when the program ended as stopped; count them."""
        streaming = MessageRow.status == MessageStatus.STREAMING.value
        with self._database.writing() as session:
            ids = list(session.scalars(select(MessageRow.id).where(streaming)))
            session.execute(
                update(MessageRow).where(streaming).values(status=MessageStatus.STOPPED.value)
            )
            return len(ids)

    def add_transcript(self, transcript: Transcript) -> Conversation:
        """Add an imported conversation with all its branches, and return it."""
        with self._database.writing(durable=True) as session:
            return conversation_of(importing.add_transcript(session, transcript))

    def merge_transcript(self, conversation_id: str, transcript: Transcript) -> Merged:
        """Add to a conversation what a transcript has and it lacks.

        A conversation that is not here is made, one that was deleted comes back.
        """
        with self._database.writing(durable=True) as session:
            return merging.merge_transcript(session, conversation_id, transcript)

    def to_share(self, conversation_id: str) -> Whole:
        """Return a conversation as it is at one moment. Raises: NotFoundError."""
        with self._database.reading() as session:
            return load_whole(session, conversation_id)

    def search(self, text: str, limit: int = 50) -> list[SearchHit]:
        """Return conversations whose title or text holds every word, titles first, newest first."""
        query = parse(text)
        if not query.words:
            return []
        with self._database.reading() as session:
            return finding.search(session, query, limit=limit)

    def record_visit(self, conversation_id: str) -> None:
        """Note that a conversation was opened. Raises: NotFoundError."""
        with self._database.writing() as session:
            conversation_row(session, conversation_id)
            visiting.record(session, conversation_id)

    def likely_next(self, conversation_id: str | None, limit: int = 5) -> list[str]:
        """Return the conversations most likely opened next, judged by past visits."""
        with self._database.reading() as session:
            return visiting.likely_next(session, conversation_id, limit=limit)


def _assert_parent(session: Session, parent_id: str, conversation_id: str) -> None:
    if message_row(session, parent_id).conversation_id != conversation_id:
        raise NotFoundError("The message to answer is in another conversation.", detail=parent_id)
