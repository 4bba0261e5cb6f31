"""What the application tells the window: frozen values, emitted on the engine or writer thread.

``ui/bridge.py`` is the only receiver that crosses to the GUI thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from app.conversation import LeftOut, Message
from engine.events import Channel
from engine.memory.interface import MemoryBreakdown


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """A failure in plain words. kind is the error's class name; detail is for "Copy details"."""

    kind: str
    message: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class CodecAccuracy:
    """What a K/V format costs a model, against f16, over num_tokens tokens of a fixed text.

    nll_change: relative, positive is worse. top1: share of equal predictions. kl: in nats.
    """

    codec: str
    num_tokens: int
    nll_change: float
    top1: float
    kl: float


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A loaded model, as the window shows it.

    can_roll: whether a full context can go on as a rolling window. kv_bytes_per_token: by codec
    name. compute: what runs, e.g. "native AVX2" or "torch float32".
    codec_accuracy: what kv_codec costs; None where that is nothing by construction.
    accelerator: the device that layers could be on, "" without one. num_offloaded: those that are.
    """

    path: str
    name: str
    architecture: str
    size_bytes: int
    num_parameters: int
    quantisation: str
    context_length: int
    trained_context_length: int
    has_chat_template: bool
    kv_codec: str
    kv_bytes_per_token: tuple[tuple[str, int], ...]
    block_size: int
    compute: str
    num_threads: int
    load_ms: float
    codec_accuracy: CodecAccuracy | None = None
    can_roll: bool = True
    accelerator: str = ""
    num_layers: int = 0
    num_offloaded: int = 0


@dataclass(frozen=True, slots=True)
class ModelLoading:
    """fraction in [0, 1]; stage as in LoadProgress, "queued", or "measuring" the K/V format."""

    path: str
    fraction: float
    stage: str


@dataclass(frozen=True, slots=True)
class ModelLoaded:
    """A model is ready."""

    info: ModelInfo


@dataclass(frozen=True, slots=True)
class ModelUnloaded:
    """No model is loaded any more; cancelled tells whether a load was given up."""

    path: str
    cancelled: bool = False


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """A model could not be loaded; the one before it, if any, is gone too.

    accuracy: where its K/V format was refused, what was measured.
    """

    path: str
    error: ErrorReport
    accuracy: CodecAccuracy | None = None


@dataclass(frozen=True, slots=True)
class ReplyQueued:
    """A reply row exists and waits for its turn. position: 0 is next."""

    conversation_id: str
    message_id: str
    position: int


@dataclass(frozen=True, slots=True)
class ReplyTrimmed:
    """A reply is being written without messages that no longer fit; told before it is read."""

    conversation_id: str
    message_id: str
    left_out: LeftOut


@dataclass(frozen=True, slots=True)
class ReplyProgress:
    """The prompt is being read. seconds_left is an estimate, None before there is one."""

    conversation_id: str
    message_id: str
    done_tokens: int
    total_tokens: int
    reused_tokens: int
    seconds_left: float | None = None


@dataclass(frozen=True, slots=True)
class ReplyDelta:
    """Text to append to a reply.

    offset: characters of that channel before this piece, so that a window that has just read the
    reply's text from elsewhere does not append it twice. None: append as it is.
    """

    conversation_id: str
    message_id: str
    text: str
    channel: Channel
    tokens_per_second: float
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """The reply row in its last form: complete, stopped, cut off, failed, or with a question.

    token_ids: the generated ones, end-of-turn included.
    """

    message: Message
    error: ErrorReport | None = None
    token_ids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ConversationChanged:
    """Title, badge, order or messages of a conversation changed in the store."""

    conversation_id: str


class AdviceKind(StrEnum):
    """What is worth telling about the cache, with the values each row carries.

    LOW_REUSE: reuse_rate in [0, 1], num_turns.
    LEAK: held_bytes by which memory grew beyond what the tiers hold, hot_bytes that they hold.
    JITTER: slow_ms, usual_ms from one generated token to the next, in a slow and a usual reply.
    SLOW_DISK: restored_tokens_per_second, read_tokens_per_second of the model itself.
    NOT_KEPT: cold_budget_bytes; the reason in words is CacheChanged.cold_error.
    """

    LOW_REUSE = "low_reuse"
    LEAK = "leak"
    JITTER = "jitter"
    SLOW_DISK = "slow_disk"
    NOT_KEPT = "not_kept"


@dataclass(frozen=True, slots=True)
class Advice:
    """One row of advice: what was measured, and the setting that helps.

    values: (name, number) pairs as listed at AdviceKind. setting: a field of Settings, "" where
    none helps.
    """

    kind: AdviceKind
    values: tuple[tuple[str, float], ...]
    setting: str = ""

    def value(self, name: str) -> float:
        """Return one measured number. Raises: KeyError."""
        return dict(self.values)[name]


@dataclass(frozen=True, slots=True)
class CacheChanged:
    """Numbers of the cache panel, at most twice a second.

    reuse_rate: share of prompt tokens reused over the last 20 turns, None before the first.
    pending_writes: jobs the KV writer has not finished. cold_error: why nothing is being kept now.
    advice: what could be better, the most important first; usually nothing.
    """

    breakdown: MemoryBreakdown | None
    reuse_rate: float | None
    tokens_per_second: float | None
    pending_writes: int
    cold_used_bytes: int
    cold_budget_bytes: int
    cold_error: str = ""
    advice: tuple[Advice, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedTitle:
    """A conversation on the shared store that is not on this machine."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class SharedStoreChanged:
    """How it stands with the store that several machines share; is_on: one is set.

    num_conversations: that are there; elsewhere: those of them that are not here, newest first.
    num_waiting: states to be sent. error: why there is no connection, or why nothing is read.
    """

    is_on: bool = False
    is_connected: bool = False
    num_conversations: int = 0
    elsewhere: tuple[SharedTitle, ...] = ()
    num_waiting: int = 0
    error: ErrorReport | None = None


@dataclass(frozen=True, slots=True)
class Notice:
    """Something worth a toast: a damaged block dropped, the disk full, a store recreated."""

    kind: str
    message: str


AppEvent = (
    ModelLoading
    | ModelLoaded
    | ModelUnloaded
    | ModelFailed
    | ReplyQueued
    | ReplyTrimmed
    | ReplyProgress
    | ReplyDelta
    | ReplyFinished
    | ConversationChanged
    | CacheChanged
    | SharedStoreChanged
    | Notice
)

Listener = Callable[[AppEvent], None]
