"""What the engine tells its caller while it works: frozen values, no torch.

``Engine.generate`` yields: one ``PrefillProgress`` per chunk, then ``TextDelta`` per visible piece
of text, then exactly one ``Finished``. Closing the generator cancels.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


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
    TEMPLATE_REWRITES_HISTORY = "template_rewrites_history"
    EVICTED = "evicted"
    DAMAGED = "damaged"
    OTHER_MODEL = "other_model"
    BELOW_BLOCK = "below_block"


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
    """Wall-clock milliseconds of one reply; first_token_ms counts from the request."""

    restore_ms: float
    prefill_ms: float
    first_token_ms: float
    decode_tokens_per_second: float


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


GenerateEvent = PrefillProgress | TextDelta | Finished
