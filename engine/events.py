"""What the engine tells its caller while it works: frozen values, no torch.

``Engine.generate`` yields: a ``ContextCut`` where messages are left out, one ``PrefillProgress``
per chunk, then ``TextDelta`` per visible piece of text, then exactly one ``Finished``; ``Waiting``
anywhere before. Closing the generator cancels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from engine.config import Overflow


class FinishReason(StrEnum):
    """Why a reply ended."""

    STOP = "stop"
    LENGTH = "length"
    CANCELLED = "cancelled"


class Channel(StrEnum):
    """Which part of a reply a piece of text belongs to."""

    CONTENT = "content"
    REASONING = "reasoning"


class MissCause(StrEnum):
    """Why tokens had to be read again although the conversation was known."""

    NEW_CONVERSATION = "new_conversation"
    HISTORY_CHANGED = "history_changed"
    CONTEXT_FULL = "context_full"
    TEMPLATE_REWRITES_HISTORY = "template_rewrites_history"
    EVICTED = "evicted"
    DAMAGED = "damaged"
    OTHER_MODEL = "other_model"
    BELOW_BLOCK = "below_block"


class RollRefusal(StrEnum):
    """Why the state of a conversation cannot be moved to other positions.

    RECURRENT: the model keeps more than keys and values. THINNED: a thinned-out copy. NO_BORDER:
    the chat template leaves no place to cut at. WINDOW_GONE: a sliding window has moved on.
    NO_ROOM: the memory budget is too small for the moved copy.
    """

    RECURRENT = "recurrent"
    THINNED = "thinned"
    NO_BORDER = "no_border"
    WINDOW_GONE = "window_gone"
    NO_ROOM = "no_room"


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """fraction in [0, 1]; stage is "header", "tensors", "kernels" or "ready"."""

    fraction: float
    stage: str


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Tokens of the prompt that are in memory so far, of the total; reused ones count as done."""

    done_tokens: int
    total_tokens: int
    reused_tokens: int


@dataclass(frozen=True, slots=True)
class ContextCut:
    """What the model does not see of the request, told before anything is read.

    dropped: all messages left out, by index; dropped_tokens: of those left out just now. policy:
    what was done. refusal: why a rolling window was asked for and the rest is read again instead.
    """

    policy: Overflow
    dropped: tuple[int, ...]
    dropped_tokens: int = 0
    refusal: RollRefusal | None = None


@dataclass(frozen=True, slots=True)
class OverflowOption:
    """What a policy would do: messages left out, by index; tokens that would be read again.

    refusal: why it cannot be had.
    """

    policy: Overflow
    dropped: tuple[int, ...] = ()
    dropped_tokens: int = 0
    reread_tokens: int = 0
    refusal: RollRefusal | None = None


@dataclass(frozen=True, slots=True)
class OverflowQuestion:
    """A prompt that does not fit. limit_tokens: what leaves room for a reply."""

    prompt_tokens: int
    limit_tokens: int
    context_length: int
    options: tuple[OverflowOption, ...]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of visible text, always whole characters. num_tokens: generated so far."""

    text: str
    channel: Channel
    num_tokens: int


@dataclass(frozen=True, slots=True)
class ReusedTokens:
    """Prompt tokens that were not evaluated again, by the tier they came from."""

    hot: int = 0
    warm: int = 0
    cold: int = 0

    @property
    def total(self) -> int:
        """Tokens reused from all tiers."""
        return self.hot + self.warm + self.cold


@dataclass(frozen=True, slots=True)
class Usage:
    """Token accounting of one reply. recomputed_tokens = prompt_tokens - reused.total."""

    prompt_tokens: int
    reused: ReusedTokens
    completion_tokens: int

    @property
    def recomputed_tokens(self) -> int:
        """Prompt tokens that the model had to read."""
        return self.prompt_tokens - self.reused.total


@dataclass(frozen=True, slots=True)
class Timing:
    """Wall-clock milliseconds of one reply; first_token_ms counts from the request.

    mean_batch_size: replies whose tokens were evaluated in the same passes, itself included; each
    is slower then than alone, all together are faster.
    """

    restore_ms: float
    prefill_ms: float
    first_token_ms: float
    decode_tokens_per_second: float
    mean_batch_size: float = 1.0


@dataclass(frozen=True, slots=True)
class MissReason:
    """Where reuse ended and why.

    position: index of the first token that was not reused. expected, found: text around that
    token in the log and in the new prompt ("" where there is none).
    """

    cause: MissCause
    position: int
    expected: str = ""
    found: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a reply. token_ids: the generated ones, end-of-turn included.

    dropped_messages: messages of the request, by index, that the model did not see any more.
    """

    finish_reason: FinishReason
    token_ids: tuple[int, ...]
    usage: Usage
    timing: Timing
    miss_reason: MissReason | None = None
    warnings: tuple[str, ...] = field(default=())
    dropped_messages: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    """An older reply needs the memory first; this one goes on once that has had its turn."""


GenerateEvent = ContextCut | PrefillProgress | TextDelta | Finished | Waiting


@dataclass(frozen=True, slots=True)
class BatchEvent:
    """What happened to one of several replies that grow together; index counts from 0."""

    index: int
    event: GenerateEvent
