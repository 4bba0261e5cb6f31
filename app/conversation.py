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
    """How far a message got. STREAMING rows found at start-up become STOPPED.

    ASKING: the conversation does not fit the context, and the user decides what to do about it.
    """

    COMPLETE = "complete"
    STREAMING = "streaming"
    STOPPED = "stopped"
    LENGTH = "length"
    ERROR = "error"
    ASKING = "asking"


@dataclass(frozen=True, slots=True)
class ReplyStats:
    """What a reply cost, shown quietly under it."""

    usage: Usage
    timing: Timing
    miss_reason: MissReason | None = None
    model: str = ""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Messages that the model did not see any more when it wrote a reply.

    ids: all of them; num_tokens: of those that were left out first for this reply. policy: an
    Overflow value. context_length: of the model then. refusal: a RollRefusal value, why what stays
    was read again instead of being moved; "" where nothing was refused.
    """

    policy: str
    ids: tuple[str, ...]
    num_tokens: int = 0
    context_length: int = 0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ContextChoice:
    """What could be done about a full context, and what it costs.

    policy: an Overflow value. num_messages, num_tokens: that would be left out. reread_tokens,
    seconds: of what stays, to be read again. refusal: a RollRefusal value, why it cannot be had.
    """

    policy: str
    num_messages: int = 0
    num_tokens: int = 0
    reread_tokens: int = 0
    seconds: float = 0.0
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class ContextQuestion:
    """A conversation that does not fit. limit_tokens: what leaves room for a reply."""

    prompt_tokens: int
    limit_tokens: int
    context_length: int
    choices: tuple[ContextChoice, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """One node of the conversation's tree.

    parent_id: None for the first. version, num_versions: 1-based place among its siblings.
    error: plain words, when status is ERROR; error_kind: the class of that error. is_pinned: it
    stays when the context is full. left_out: None where the model saw everything. question: what
    is asked, when status is ASKING.
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
    error_kind: str = ""
    is_pinned: bool = False
    left_out: LeftOut | None = None
    question: ContextQuestion | None = None


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
