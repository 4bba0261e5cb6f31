"""Translates recurrent layers into native operations: LFM2's convolutions, Mamba's scan.

Knows what ``native_program`` knows, and where the state of a layer lies in a cell.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from engine.kernels.context import QuantizedActs, pointer, zeros
from engine.kernels.structs import Activation, Conv, Gate, OpKind, Scan
from engine.models.lfm2 import ConvBlock
from engine.models.mamba import MambaBlock
from engine.native_program import ProgramBuilder, floats_of
from engine.native_support import is_float

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from engine.memory.interface import NativeCells
    from engine.model_config import StateConfig
    from engine.models.llama import Llama
    from engine.native_buffers import Buffers, Packed
    from engine.native_program import LayerMemory
    from engine.quant.linear import QuantLinear


class StateBuffers:
    """What the operations of recurrent layers hand to each other; rows: most tokens of a step."""

    def __init__(self, model: Llama, state: StateConfig, rows: int) -> None:
        inner = state.inner_size
        self.projected = zeros((rows, inner * (2 if state.state_size else 3)))
        self.mixed = QuantizedActs(rows, inner, has_floats=True, has_spans=False)
        self.scanned = QuantizedActs(rows, inner, has_floats=True, has_spans=False)
        self.dt_bc = zeros((rows, state.time_step_rank + 2 * state.state_size))
        self.dt = zeros((rows, inner if state.state_size else 0))
        self.rank = QuantizedActs(rows, state.time_step_rank)


class RecurrentProgramBuilder(ProgramBuilder):
    """Builds programs in which some layers, or all, have cells."""

    def __init__(
        self,
        model: Llama,
        packed: Packed,
        buffers: Buffers,
        memory: Mapping[int, LayerMemory],
        cells: NativeCells,
    ) -> None:
        super().__init__(model, packed, buffers, memory)
        assert model.config.state is not None
        self._cells = cells
        self._state = model.config.state
        self._state_buffers = StateBuffers(model, self._state, len(buffers.x))

    def _block(self, block: nn.Module) -> None:
        if isinstance(block, ConvBlock):
            self._short_conv(block)
            self._feed_forward(block)
        elif isinstance(block, MambaBlock):
            self._mamba(block)
        else:
            super()._block(block)

    def _short_conv(self, block: ConvBlock) -> None:
        """Project, convolve between two gates, project back."""
        own, tensors = self._state_buffers, block.shortconv
        self._norm(block.attn_norm, self._buffers.normed)
        self._linear(self._buffers.normed, (tensors.in_proj,), own.projected)
        b = pointer(own.projected)
        c = b + 4 * self._state.inner_size
        value = c + 4 * self._state.inner_size
        self._conv(block.layer, value, tensors.conv, gates=(b, c))
        self._branch(own.mixed, tensors.out_proj, block.post_attention_norm)

    def _mamba(self, block: MambaBlock) -> None:
        """Project, convolve, compute dt, B and C from that, scan, gate, project back."""
        own, buffers = self._state_buffers, self._buffers
        self._norm(block.attn_norm, buffers.normed)
        self._linear(buffers.normed, (block.ssm_in,), own.projected)
        u = pointer(own.projected)
        self._conv(block.layer, u, block.ssm_conv1d, bias=block.ssm_conv1d_bias)
        self._linear(own.mixed, (block.ssm_x,), own.dt_bc)
        self._time_steps(block.ssm_dt)
        self._scan(block)
        self._branch(own.scanned, block.ssm_out, None)

    def _conv(
        self,
        layer: int,
        x: int,
        weight: Tensor,
        *,
        gates: tuple[int, int] | None = None,
        bias: Tensor | None = None,
    ) -> None:
        """Convolve x, a part of the projection, into ``mixed``. weight: (channels, taps)."""
        own = self._state_buffers
        taps_first = np.ascontiguousarray(floats_of(weight).T)
        added = None if bias is None else floats_of(bias)
        gate_in, gate_out = gates or (None, None)
        args = Conv(
            x, gate_in, gate_out, pointer(taps_first), None if added is None else pointer(added),
            own.mixed.out, ctypes.pointer(own.mixed.struct), own.projected.shape[1],
            self._cells.cell_offset(layer, "conv"), self._state.inner_size,
            self._state.conv_kernel, Activation.NONE if bias is None else Activation.SILU,
        )  # fmt: skip
        self._program.add(OpKind.CONV, args, taps_first, added, own)

    def _time_steps(self, linear: QuantLinear) -> None:
        """Multiply the first columns of what ssm_x gave by ssm_dt."""
        own, rank = self._state_buffers, self._state.time_step_rank
        if is_float(linear):
            entry = self._matrix(linear, own.dt, 0, is_added=False)
            self._float_products(own.dt_bc[:, :rank], [entry])
            return
        args = Gate(
            pointer(own.dt_bc), None, None, ctypes.pointer(own.rank.struct),
            own.dt_bc.shape[1], rank, Activation.NONE,
        )  # fmt: skip
        self._program.add(OpKind.GATE, args)
        self._linear(own.rank, (linear,), own.dt)

    def _scan(self, block: MambaBlock) -> None:
        own, state = self._state_buffers, self._state
        a = np.ascontiguousarray(floats_of(block.ssm_a).T)
        d = floats_of(block.ssm_d)
        b = pointer(own.dt_bc) + 4 * state.time_step_rank
        c = b + 4 * state.state_size
        z = pointer(own.projected) + 4 * state.inner_size
        args = Scan(
            own.mixed.out, pointer(own.dt), b, c, z, pointer(a), pointer(d), own.scanned.out,
            ctypes.pointer(own.scanned.struct), own.dt_bc.shape[1], own.projected.shape[1],
            self._cells.cell_offset(block.layer, "ssm"), state.inner_size, state.state_size,
        )  # fmt: skip
        self._program.add(OpKind.SCAN, args, a, d)
