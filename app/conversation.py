"""What is kept of a conversation: frozen rows that leave the store, and nothing of the database."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from engine.config import SamplingParams
from engine.events import MissReason, Timing, Usage


class Role(StrEnum):
    """Who wrote a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class MessageStatus(StrEnum):
    """How far a message got. STREAMING rows found at start-up become STOPPED."""

    COMPLETE = "complete"
    STREAMING = "streaming"
    STOPPED = "stopped"
    LENGTH = "length"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class ReplyStats:
    """What a reply cost, shown quietly under it."""

    usage: Usage
    timing: Timing
    miss_reason: MissReason | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class Message:
    """One node of the conversation's tree.

    parent_id: None for the first. version, num_versions: 1-based place among its siblings.
    error: plain words, when status is ERROR.
    """

    id: str
    conversation_id: str
    parent_id: str | None
    role: Role
    content: str
    created_at: datetime
    status: MessageStatus = MessageStatus.COMPLETE
    reasoning: str = ""
    stats: ReplyStats | None = None
    error: str = ""
    version: int = 1
    num_versions: int = 1


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation without its messages.

    leaf_id: last message of the branch on screen. model: path of the model it was last held with.
    sampling: None follows the global preset. num_tokens: of the active branch, when known.
    """

    id: str
    title: str
    created_at: datetime
    updated_at: datetime
    leaf_id: str | None = None
    model: str = ""
    system_prompt: str = ""
    sampling: SamplingParams | None = None
    folder: str = ""
    draft: str = ""
    position: float = 0.0
    is_pinned: bool = False
    is_archived: bool = False
    is_unread: bool = False
    is_deleted: bool = False
    num_tokens: int | None = None


class ReadyTier(StrEnum):
    """Where the state of a conversation lies."""

    HOT = "hot"
    WARM = "warm"
    COLD = "cold"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Readiness:
    """How soon a conversation can go on: tier, tokens to be read again, estimated seconds."""

    tier: ReadyTier
    ready_tokens: int
    unread_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A conversation that matches a search; snippet marks the words with U+2068 and U+2069."""

    conversation_id: str
    message_id: str | None
    snippet: str = field(default="")
