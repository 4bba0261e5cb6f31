"""Between the rows of chats.db and the frozen values that leave the store. Runs no query."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from app.conversation import (
    ContextChoice,
    ContextQuestion,
    Conversation,
    LeftOut,
    Message,
    MessageStatus,
    ReplyStats,
    Role,
)
from app.store.tables import ConversationRow, MessageRow
from engine.config import SamplingParams
from engine.events import MissCause, MissReason, ReusedTokens, Timing, Usage

# A flipped bit in a row must not make the conversation unreadable, so these are looked up.
_ROLES = {str(role): role for role in Role}
_STATUSES = {str(status): status for status in MessageStatus}

# Plain columns are read three times quicker than whole rows, and a long path has thousands.
MESSAGE_COLUMNS = (
    MessageRow.id,
    MessageRow.conversation_id,
    MessageRow.parent_id,
    MessageRow.role,
    MessageRow.content,
    MessageRow.created_at,
    MessageRow.status,
    MessageRow.reasoning,
    MessageRow.stats,
    MessageRow.error,
    MessageRow.error_kind,
    MessageRow.is_pinned,
    MessageRow.left_out,
    MessageRow.question,
)


def conversation_of(row: ConversationRow) -> Conversation:
    """Return a conversation as it leaves the store."""
    return Conversation(
        id=row.id,
        title=row.title,
        created_at=row.created_at,
        updated_at=row.updated_at,
        leaf_id=row.leaf_id,
        model=row.model,
        system_prompt=row.system_prompt,
        sampling=load_sampling(row.sampling),
        folder=row.folder,
        draft=row.draft,
        position=row.position,
        is_pinned=row.is_pinned,
        is_archived=row.is_archived,
        is_unread=row.is_unread,
        is_deleted=row.deleted_at is not None,
        num_tokens=row.num_tokens,
    )


def message_of(columns: Sequence[Any], *, version: int, num_versions: int) -> Message:
    """Return a message as it leaves the store, at its place among its siblings.

    columns: values of MESSAGE_COLUMNS.
    """
    key, conversation_id, parent_id, role, content, created_at, status, *rest = columns
    reasoning, stats, error, error_kind, is_pinned, left_out, question = rest
    return Message(
        id=key,
        conversation_id=conversation_id,
        parent_id=parent_id,
        role=_ROLES.get(role, Role.USER),
        content=content,
        created_at=created_at,
        status=_STATUSES.get(status, MessageStatus.COMPLETE),
        reasoning=reasoning,
        stats=load_stats(stats),
        error=error,
        version=version,
        num_versions=num_versions,
        error_kind=error_kind,
        is_pinned=is_pinned,
        left_out=load_left_out(left_out),
        question=load_question(question),
    )


def dump_sampling(sampling: SamplingParams | None) -> str | None:
    """Return JSON, None for None."""
    return None if sampling is None else json.dumps(asdict(sampling))


def load_sampling(text: str | None) -> SamplingParams | None:
    """Read dump_sampling's JSON; None when there is none or it does not fit."""
    if text is None:
        return None
    try:
        return SamplingParams(**json.loads(text))
    except (ValueError, TypeError):
        return None


def dump_stats(stats: ReplyStats | None) -> str | None:
    """Return JSON, None for None."""
    return None if stats is None else json.dumps(asdict(stats), ensure_ascii=False)


def load_stats(text: str | None) -> ReplyStats | None:
    """Read dump_stats' JSON; None when there is none or it does not fit."""
    if text is None:
        return None
    try:
        return _stats(json.loads(text))
    except (ValueError, TypeError, KeyError):
        return None


def dump_context(value: LeftOut | ContextQuestion | None) -> str | None:
    """Return JSON, None for None."""
    return None if value is None else json.dumps(asdict(value))


def load_left_out(text: str | None) -> LeftOut | None:
    """Read dump_context's JSON; None when there is none or it does not fit."""
    if text is None:
        return None
    try:
        data = json.loads(text)
        return LeftOut(**{**data, "ids": tuple(map(str, data["ids"]))})
    except (ValueError, TypeError, KeyError):
        return None


def load_question(text: str | None) -> ContextQuestion | None:
    """Read dump_context's JSON; None when there is none or it does not fit."""
    if text is None:
        return None
    try:
        data = json.loads(text)
        choices = tuple(ContextChoice(**choice) for choice in data["choices"])
        return ContextQuestion(**{**data, "choices": choices})
    except (ValueError, TypeError, KeyError):
        return None


def _stats(data: dict[str, Any]) -> ReplyStats:
    usage = data["usage"]
    miss = data["miss_reason"]
    return ReplyStats(
        usage=Usage(
            prompt_tokens=usage["prompt_tokens"],
            reused=ReusedTokens(**usage["reused"]),
            completion_tokens=usage["completion_tokens"],
        ),
        timing=Timing(**data["timing"]),
        miss_reason=miss and MissReason(**{**miss, "cause": MissCause(miss["cause"])}),
        model=data["model"],
    )
