"""What a model would take before it is loaded, against what is free. Reads the header only."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from engine.memory.interface import MemorySpec

SCRATCH_BYTES = 64 << 20
DEFAULT_CONTEXT_LENGTH = 8192
# Bytes of one number, scales included; good to a few percent.
_BYTES_PER_VALUE = {"f16": 2.0, "bf16": 2.0, "f32": 4.0, "int8": 1.07, "k8v4": 0.82}


@dataclass(frozen=True, slots=True)
class MemoryEstimate:
    """Bytes of the weights, of one full context of context_length tokens, and of what is free."""

    weight_bytes: int
    context_bytes: int
    context_length: int
    free_bytes: int

    @property
    def total_bytes(self) -> int:
        """Everything together, with room to compute in."""
        return self.weight_bytes + self.context_bytes + SCRATCH_BYTES

    @property
    def fits(self) -> bool:
        """Tell whether it can be loaded without pushing other programs out."""
        return self.total_bytes <= self.free_bytes


def estimate_memory(path: Path, *, context_length: int | None, codec: str) -> MemoryEstimate:
    """Estimate from a model file's header.

    context_length: the wish; None takes what the engine would. Raises: EngineError kinds.
    """
    from engine.gguf_file import GGUFFile
    from engine.model_config import ModelConfig

    file = GGUFFile.open(path)
    try:
        config = ModelConfig.from_gguf(file)
        size_bytes = file.size_bytes
    finally:
        file.close()
    wish = context_length or min(DEFAULT_CONTEXT_LENGTH, config.context_length)
    length = min(wish, config.context_length)
    state = state_bytes(config.memory_spec(b""), length, _BYTES_PER_VALUE[codec])
    return MemoryEstimate(size_bytes, state, length, psutil.virtual_memory().available)


def state_bytes(spec: MemorySpec, num_tokens: int, bytes_per_value: float) -> int:
    """Return the bytes that num_tokens tokens of one conversation take; windows are bounded."""
    total = 0.0
    for group in spec.groups:
        tokens = min(num_tokens, group.window) if group.window else num_tokens
        values = 2 * len(group.layers) * group.num_key_value_heads * group.head_dim
        total += tokens * values * bytes_per_value
    if spec.recurrent is not None:
        cells = sum(prod(shape) for _, shape in spec.recurrent.shapes)
        total += 4 * cells * len(spec.recurrent.layers)
    return round(total)
