"""What each setting can be, in words with numbers. Pure: settings and model in, texts out."""

from __future__ import annotations

import os
from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from app.events import ModelInfo
from engine.config import BLOCK_SIZES, KVCodec
from ui.formats import count_text, seconds_text, size_text

MIB = 1 << 20
GIB = 1 << 30
CONTEXT_LENGTHS = (2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072)
HOT_BUDGETS = tuple(MIB << shift for shift in range(8, 17))
COLD_BUDGETS = tuple(GIB * n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500))
TIMEOUTS_MINUTES = (5, 15, 30, 60, 240, 1440)
PARALLEL_REPLIES = (1, 2, 4, 8, 16)
OFFLOAD_SHARES = (0.25, 0.5, 0.75, 1.0)


translate = QCoreApplication.translate


@dataclass(frozen=True, slots=True)
class Choice:
    """One value of a setting. reason: why it cannot be had; "" when it can."""

    value: object
    text: str
    reason: str = ""


def context_choices(model: ModelInfo | None) -> list[Choice]:
    """Context lengths up to what the model was trained for; more is offered as unavailable."""
    limit = model.trained_context_length if model else CONTEXT_LENGTHS[-1]
    reason = translate("choices", "This model was trained for {0} tokens.").format(
        count_text(limit)
    )
    tokens = translate("choices", "{0} tokens")
    return [
        Choice(None, translate("choices", "Automatic")),
        *(
            Choice(n, tokens.format(count_text(n)), reason if n > limit else "")
            for n in CONTEXT_LENGTHS
        ),
    ]


def precision_name(codec: str) -> str:
    """Return what a codec is called."""
    return {
        "f16": translate("choices", "16-bit"),
        "bf16": translate("choices", "16-bit, wide range"),
        "f32": translate("choices", "32-bit, exact"),
        "int8": translate("choices", "8-bit"),
        "k8v4": translate("choices", "8-bit and 4-bit"),
    }.get(codec, codec)


def precision_choices(model: ModelInfo | None) -> list[Choice]:
    """Codecs with what 1,000 tokens of this model take."""
    if model is None:
        return [Choice(codec.value, precision_name(codec)) for codec in KVCodec]
    return [
        Choice(codec, f"{precision_name(codec)} · {size_text(num_bytes * 1000)}")
        for codec, num_bytes in model.kv_bytes_per_token
    ]


def block_choices() -> list[Choice]:
    """Tokens per block."""
    tokens = translate("choices", "{0} tokens")
    return [
        Choice(None, translate("choices", "Automatic")),
        *(Choice(n, tokens.format(n)) for n in BLOCK_SIZES),
    ]


def thread_choices() -> list[Choice]:
    """Threads up to the number of processors."""
    numbers = range(1, (os.cpu_count() or 1) + 1)
    return [
        Choice(None, translate("choices", "Automatic")),
        *(Choice(n, count_text(n)) for n in numbers),
    ]


def timeout_choices() -> list[Choice]:
    """Idle time before a conversation leaves the fast memory."""
    return [Choice(n, seconds_text(n * 60)) for n in TIMEOUTS_MINUTES]


def parallel_choices() -> list[Choice]:
    """Conversations whose replies are written at once."""
    return [Choice(n, count_text(n)) for n in PARALLEL_REPLIES]


def offload_choices() -> list[Choice]:
    """Part of the layers that the graphics processor computes."""
    return [
        Choice(None, translate("choices", "As many as fit")),
        Choice(0.0, translate("choices", "None")),
        *(Choice(share, f"{share:.0%}") for share in OFFLOAD_SHARES),
    ]


def eviction_choices() -> list[Choice]:
    """Return what may make room on a full disk first."""
    return [
        Choice("balanced", translate("choices", "Balanced")),
        Choice("recency", translate("choices", "Longest unused first")),
        Choice("frequency", translate("choices", "Least used first")),
    ]


def warm_budget_choices() -> list[Choice]:
    """Memory behind the one that is computed in; 0 for none."""
    sizes = (Choice(n, size_text(n)) for n in HOT_BUDGETS)
    off = Choice(0, translate("choices", "None"))
    return [Choice(None, translate("choices", "Automatic")), off, *sizes]


def overflow_choices(model: ModelInfo | None) -> list[Choice]:
    """Return what may be done about a conversation that no longer fits."""
    cannot = translate("choices", "This model's memory cannot be moved.")
    reason = "" if model is None or model.can_roll else cannot
    return [
        Choice("ask", translate("choices", "Ask me")),
        Choice("drop_oldest", translate("choices", "Drop the oldest turns")),
        Choice("keep_ends", translate("choices", "Keep start and end")),
        Choice("rolling_window", translate("choices", "Rolling window, approximate"), reason),
    ]


def hot_budget_choices() -> list[Choice]:
    """Memory for what the model has read."""
    sizes = (Choice(n, size_text(n)) for n in HOT_BUDGETS)
    return [Choice(None, translate("choices", "Automatic")), *sizes]


def cold_budget_choices(bytes_per_conversation: float | None) -> list[Choice]:
    """Disk space, with how many of the user's own conversations fit."""
    sizes = (Choice(n, _cold_text(n, bytes_per_conversation)) for n in COLD_BUDGETS)
    return [Choice(None, translate("choices", "Automatic")), *sizes]


def _cold_text(num_bytes: int, bytes_per_conversation: float | None) -> str:
    if not bytes_per_conversation:
        return size_text(num_bytes)
    number = count_text(int(num_bytes / bytes_per_conversation))
    about = translate("choices", "{0} · about {1} of your conversations")
    return about.format(size_text(num_bytes), number)
