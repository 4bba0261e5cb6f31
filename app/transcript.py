"""A conversation with all its branches, outside of any store: what imports and exports hold."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from app.conversation import LeftOut, MessageStatus, Role


@dataclass(frozen=True, slots=True)
class TranscriptMessage:
    """One node. id, parent_id: unique within the transcript only; parents come first.

    is_pinned, left_out: as in a Message; ids of the transcript.
    """

    id: str
    parent_id: str | None
    role: Role
    content: str
    created_at: datetime | None = None
    reasoning: str = ""
    status: MessageStatus = MessageStatus.COMPLETE
    is_pinned: bool = False
    left_out: LeftOut | None = None


@dataclass(frozen=True, slots=True)
class Transcript:
    """A conversation. leaf_id: the last message of the branch on screen."""

    title: str
    messages: tuple[TranscriptMessage, ...]
    leaf_id: str | None = None
    system_prompt: str = ""
    created_at: datetime | None = None
    model: str = ""
    folder: str = field(default="")


def in_order(messages: Iterable[TranscriptMessage]) -> tuple[TranscriptMessage, ...]:
    """Return the messages with every parent before its children.

    A message whose parent is missing, or that is its own ancestor, becomes a first one.
    """
    waiting = {message.id: message for message in messages}
    ordered: list[TranscriptMessage] = []
    placed: set[str] = set()
    for start in list(waiting):
        chain: list[str] = []
        current: str | None = start
        while current in waiting and current not in placed and current not in chain:
            chain.append(current)
            current = waiting[current].parent_id
        for key in reversed(chain):
            ordered.append(_rooted(waiting[key], placed))
            placed.add(key)
    return tuple(ordered)


def _rooted(message: TranscriptMessage, placed: set[str]) -> TranscriptMessage:
    if message.parent_id is None or message.parent_id in placed:
        return message
    return replace(message, parent_id=None)
