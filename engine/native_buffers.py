"""What a native program of a model needs before it is built: packed weights and buffers.

Knows the modules of ``engine/models`` and the arrays of ``engine/kernels``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.errors import LoadCancelledError
from engine.ggml_type import GGMLType
from engine.kernels.context import (
    Context,
    HugeBytes,
    Limits,
    PackedMatrix,
    QuantizedActs,
    zeros,
)
from engine.native_support import FLOAT_TYPES, has_parts, is_float
from engine.quant.dequantize import dequantize
from engine.quant.linear import QuantLinear

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.models.llama import Llama


def limits_of(model: Llama, max_rows: int) -> Limits:
    """Return the sizes a context needs for this model."""
    config = model.config
    columns = max(
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads * config.head_dim,
        config.state.inner_size if config.state else 0,
    )
    return Limits(max_rows, columns, config.num_attention_heads, config.head_dim)


class Packed:
    """The packed weights of a model, made once, about the size of the file."""

    def __init__(
        self, model: Llama, context: Context, is_cancelled: Callable[[], bool] = lambda: False
    ) -> None:
        """Pack every matrix, with a chance to cancel between two of them.

        Raises: LoadCancelledError, OutOfMemoryError.
        """
        self._context = context
        self._is_cancelled = is_cancelled
        linears = [module for module in model.modules() if isinstance(module, QuantLinear)]
        packable = [m for m in linears if not is_float(m)]
        room = HugeBytes(sum(context.packed_bytes(int(m.ggml_type), m.shape) for m in packable))
        self._output = model.output
        self._matrices: dict[int, PackedMatrix] = {id(m): self._pack(m, room) for m in linears}

    def __getitem__(self, linear: QuantLinear) -> PackedMatrix:
        return self._matrices[id(linear)]

    def _pack(self, linear: QuantLinear, room: HugeBytes) -> PackedMatrix:
        if self._is_cancelled():
            raise LoadCancelledError("Loading the model was cancelled.")
        if is_float(linear):
            data = linear.data
            if linear.ggml_type is GGMLType.Q2_K:
                half = dequantize(data, linear.ggml_type, linear.shape, dtype=torch.float16)
                data = half.numpy().view(np.uint8)
            return PackedMatrix(data, FLOAT_TYPES[linear.ggml_type], linear.shape)
        is_head = linear is self._output and has_parts(linear)
        return self._context.pack(
            linear.data, int(linear.ggml_type), linear.shape, room, has_parts=is_head
        )


class Buffers:
    """What operations hand to each other; rows: most tokens of a step."""

    def __init__(self, model: Llama, rows: int) -> None:
        config = model.config
        heads = config.num_attention_heads + 2 * config.num_key_value_heads
        self.x = zeros((rows, config.hidden_size))
        self.branch = zeros((rows, config.hidden_size))
        self.qkv = zeros((rows, heads * config.head_dim))
        self.gate_up = zeros((rows, 2 * config.intermediate_size))
        self.logits = zeros((rows, config.vocab_size))
        has_floats = any(is_float(m) for m in model.modules() if isinstance(m, QuantLinear))
        self.normed, self.attended, self.gated = (
            QuantizedActs(rows, width, has_floats=has_floats)
            for width in (
                config.hidden_size,
                config.num_attention_heads * config.head_dim,
                config.intermediate_size,
            )
        )
        self.cos_sin = {
            kind: zeros((rows, 2, max(1, len(rope.frequencies))))
            for kind, rope in model.ropes.items()
        }
