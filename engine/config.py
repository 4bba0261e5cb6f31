"""What a caller can choose about the engine. Plain values: no torch, no files."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

# Replies that one request may draw together.
MAX_COMPLETIONS = 64

# Tokens per block that can be chosen, ascending.
BLOCK_SIZES = (16, 32, 64, 128)


class KVCodec(StrEnum):
    """How keys and values are held in a block.

    F16, BF16 and F32 store the numbers themselves; INT8 and K8V4 store scales as well.
    """

    F16 = "f16"
    BF16 = "bf16"
    F32 = "f32"
    INT8 = "int8"
    K8V4 = "k8v4"


class Overflow(StrEnum):
    """What to do with a conversation that no longer fits the context.

    ASK refuses it; the others leave out whole turns, see engine/session/overflow.py. After
    DROP_OLDEST and KEEP_ENDS what follows the gap is read again; ROLLING_WINDOW moves its state.
    """

    ASK = "ask"
    DROP_OLDEST = "drop_oldest"
    KEEP_ENDS = "keep_ends"
    ROLLING_WINDOW = "rolling_window"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Choices that need a model reload to change.

    context_length: tokens one conversation may hold; None takes the model's own, at most 8192.
    block_size: tokens per block, one of BLOCK_SIZES; None takes 32, or 64 where 32 tokens are so
        few bytes that they would come back from the store slowly.
    hot_budget_bytes: bytes of device memory for blocks; None takes what one full context needs
        and up to a quarter of free memory.
    warm_budget_bytes: bytes of host memory for blocks that device memory gave up; 0 drops them.
        None takes a quarter of free memory, at most 4 GiB, and nothing on a CPU, where device
        memory is host memory.
    prefill_chunk: most tokens evaluated between two chances to cancel.
    num_threads: None takes the number of physical cores.
    device: "cpu", "auto" for the accelerator that torch finds, or another one by torch's name.
    offload_share: part of the layers, counted from the last one, that lives there with its keys and
        values; the CPU computes the others. None: as many as fit into its free memory. Native
        kernels run where no layer is offloaded.
    compute: "auto" measures at first load; "float32" and "bfloat16" force the torch path's dtype.
    kernels: False keeps to the torch path even where native kernels are built.
    cache_dir: where measurements of this machine are kept; None measures at every load.
    """

    context_length: int | None = None
    block_size: int | None = None
    kv_codec: KVCodec = KVCodec.F16
    hot_budget_bytes: int | None = None
    warm_budget_bytes: int | None = None
    prefill_chunk: int = 128
    num_threads: int | None = None
    device: str = "cpu"
    offload_share: float | None = None
    compute: str = "auto"
    kernels: bool = True
    cache_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is drawn; greedy when temperature is 0.

    top_k 0, top_p 1, min_p 0, repetition_penalty 1 and the two other penalties 0 switch a rule off.
    penalty_last_n: how many of the last tokens the penalties look at.
    seed: None draws a fresh one.
    """

    temperature: float = 0.7
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message as the chat template sees it. role: "system" | "user" | "assistant"."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class GenerateRequest:
    """One reply to be generated.

    conversation_id: whose log the tokens are appended to; any stable string.
    messages: the whole path from the first message to the one to be answered. Where the last one
        is the assistant's, it is continued instead.
    ephemeral: an aside; evaluated on a throw-away fork that leaves nothing behind.
    overflow: what to do where the messages do not fit. pinned: indices of messages that then stay.
    dropped: indices of messages that were left out before, and still are.
    ignore_eos: go on to max_tokens whatever the model draws; for measurements.
    """

    conversation_id: str
    messages: tuple[ChatMessage, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ephemeral: bool = False
    overflow: Overflow = Overflow.ASK
    pinned: tuple[int, ...] = ()
    dropped: tuple[int, ...] = ()
    ignore_eos: bool = False
