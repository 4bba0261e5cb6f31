"""Joins what another machine wrote to a conversation, in the caller's transaction.

Messages keep their ids, so that each is there once; where two machines went on from the same one,
the tree has two branches. Of a message that both changed the longer text stays: both come to the
same end, in whatever order they hear of each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from app.conversation import Conversation, Message, MessageStatus
from app.store.base import now
from app.store.importing import message_values
from app.store.rows import conversation_of
from app.store.tables import ConversationRow, MessageRow
from app.store.tree_queries import conversation_row, load_messages
from app.transcript import Transcript, TranscriptMessage

_CHUNK = 500


@dataclass(frozen=True, slots=True)
class Whole:
    """A conversation, its messages in the order of writing, and the ids of deleted ones."""

    conversation: Conversation
    messages: list[Message]
    deleted: list[str]


@dataclass(frozen=True, slots=True)
class Merged:
    """A conversation right before and right after a merge; before is None where it was not here."""

    before: Whole | None
    after: Whole
    has_changed: bool


def load_whole(session: Session, conversation_id: str) -> Whole:
    """Return a conversation with all its messages. Raises: NotFoundError."""
    rows = MessageRow
    deleted = select(rows.id).where(
        rows.conversation_id == conversation_id, rows.deleted_at.is_not(None)
    )
    return Whole(
        conversation_of(conversation_row(session, conversation_id)),
        load_messages(session, conversation_id, None),
        list(session.scalars(deleted)),
    )


def merge_transcript(session: Session, conversation_id: str, transcript: Transcript) -> Merged:
    """Add what is missing, lengthen what was shorter."""
    row = session.scalar(select(ConversationRow).where(ConversationRow.id == conversation_id))
    before = None if row is None else load_whole(session, conversation_id)
    if row is None:
        row = _new_row(conversation_id, transcript)
        session.add(row)
        session.flush()
    has_changed = _merge(session, row, transcript)
    session.flush()
    after = load_whole(session, conversation_id)
    return Merged(before, after, has_changed or before is None)


def _merge(session: Session, row: ConversationRow, transcript: Transcript) -> bool:
    known = _known(session, [message.id for message in transcript.messages])
    num_added = _add(session, row, transcript, known)
    num_longer = _lengthen(session, row, transcript, known)
    has_new_head = _take_head(row, transcript)
    if num_added:
        _take_leaf(session, row, transcript)
    return bool(num_added or num_longer or has_new_head)


def _new_row(conversation_id: str, transcript: Transcript) -> ConversationRow:
    moment = transcript.created_at or now()
    return ConversationRow(
        id=conversation_id,
        title=transcript.title,
        created_at=moment,
        updated_at=moment,
        leaf_id=None,
        model="",
        system_prompt=transcript.system_prompt,
        folder=transcript.folder,
        draft="",
        position=0.0,
        is_pinned=False,
        is_archived=False,
        is_unread=False,
    )


def _known(session: Session, ids: list[str]) -> dict[str, Any]:
    """Return (conversation, content, status) of those that are in the file, by id."""
    rows = MessageRow
    query = select(rows.id, rows.conversation_id, rows.content, rows.status)
    found: dict[str, Any] = {}
    for at in range(0, len(ids), _CHUNK):
        chunk = query.where(rows.id.in_(ids[at : at + _CHUNK]))
        found.update((row.id, row) for row in session.execute(chunk))
    return found


def _add(
    session: Session, row: ConversationRow, transcript: Transcript, known: Mapping[str, Any]
) -> int:
    new = [message for message in transcript.messages if message.id not in known]
    own = {key for key, found in known.items() if found.conversation_id == row.id}
    ids = {key: key for key in own | {message.id for message in new}}
    if new:
        values = [message_values(message, row, ids) for message in new]
        session.execute(insert(MessageRow), values)
        row.updated_at = max([row.updated_at, *(item["created_at"] for item in values)])
    return len(new)


def _lengthen(
    session: Session, row: ConversationRow, transcript: Transcript, known: Mapping[str, Any]
) -> int:
    changed = [
        message
        for message in transcript.messages
        if (found := known.get(message.id)) is not None
        and found.conversation_id == row.id
        and found.status != MessageStatus.STREAMING.value
        and _key(found.content) < _key(message.content)
    ]
    for message in changed:
        values = {"content": message.content, "status": str(message.status)}
        session.execute(update(MessageRow).where(MessageRow.id == message.id).values(values))
    return len(changed)


def _take_head(row: ConversationRow, transcript: Transcript) -> bool:
    head = (transcript.title or row.title, transcript.system_prompt, transcript.folder, None)
    before = (row.title, row.system_prompt, row.folder, row.deleted_at)
    row.title, row.system_prompt, row.folder, row.deleted_at = head
    return before != head


def _take_leaf(session: Session, row: ConversationRow, transcript: Transcript) -> None:
    """Show the other machine's branch where it goes on from the one on screen."""
    parents = dict(
        session.execute(
            select(MessageRow.id, MessageRow.parent_id).where(
                MessageRow.conversation_id == row.id, MessageRow.deleted_at.is_(None)
            )
        ).all()
    )
    leaf = transcript.leaf_id or _last(transcript.messages)
    above = leaf
    while above in parents and above != row.leaf_id:
        above = parents[above]
    if leaf in parents and (row.leaf_id is None or above == row.leaf_id):
        row.leaf_id = leaf


def _last(messages: tuple[TranscriptMessage, ...]) -> str | None:
    return messages[-1].id if messages else None


def _key(content: str) -> tuple[int, str]:
    return len(content), content
