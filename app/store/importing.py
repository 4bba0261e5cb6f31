"""Writing of imported conversations, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

from sqlalchemy import insert
from sqlalchemy.orm import Session

from app.conversation import LeftOut
from app.store.base import now
from app.store.rows import dump_context
from app.store.tables import ConversationRow, MessageRow
from app.titles import title_from
from app.transcript import Transcript, TranscriptMessage


def add_transcript(session: Session, transcript: Transcript) -> ConversationRow:
    """Add a conversation under new ids; an empty title is made from its first message.

    Imported conversations keep their dates, so that they sort below today's.
    """
    created_at = transcript.created_at or _first_date(transcript) or now()
    ids = {message.id: uuid4().hex for message in transcript.messages}
    row = ConversationRow(
        id=uuid4().hex,
        title=transcript.title or _title(transcript),
        created_at=created_at,
        updated_at=_last_date(transcript) or created_at,
        leaf_id=ids.get(transcript.leaf_id or "", _last(ids)),
        model=transcript.model,
        system_prompt=transcript.system_prompt,
        folder=transcript.folder,
        draft="",
        position=0.0,
        is_pinned=False,
        is_archived=False,
        is_unread=False,
    )
    session.add(row)
    session.flush()
    rows = [message_values(message, row, ids) for message in transcript.messages]
    if rows:
        session.execute(insert(MessageRow), rows)
    return row


def message_values(
    message: TranscriptMessage, row: ConversationRow, ids: Mapping[str, str]
) -> dict[str, Any]:
    """Return the columns of a message's row. ids: the transcript's -> the database's."""
    return {
        "id": ids[message.id],
        "conversation_id": row.id,
        "parent_id": ids.get(message.parent_id or ""),
        "role": str(message.role),
        "content": message.content,
        "reasoning": message.reasoning,
        "status": str(message.status),
        "error": "",
        "created_at": message.created_at or row.created_at,
        "is_pinned": message.is_pinned,
        "left_out": dump_context(_left_out(message, ids)),
    }


def _left_out(message: TranscriptMessage, ids: Mapping[str, str]) -> LeftOut | None:
    if message.left_out is None:
        return None
    known = tuple(ids[key] for key in message.left_out.ids if key in ids)
    return replace(message.left_out, ids=known)


def _title(transcript: Transcript) -> str:
    titles = (title_from(message.content) for message in transcript.messages)
    return next((title for title in titles if title), "")


def _first_date(transcript: Transcript) -> datetime | None:
    return min((item.created_at for item in transcript.messages if item.created_at), default=None)


def _last_date(transcript: Transcript) -> datetime | None:
    return max((item.created_at for item in transcript.messages if item.created_at), default=None)


def _last(ids: Mapping[str, str]) -> str | None:
    return next(reversed(list(ids.values())), None)
