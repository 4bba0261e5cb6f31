"""Translates a model of the Llama family into a program of native operations.

Knows the modules of ``engine/models`` and the structures of ``engine/kernels``; nothing of
sessions or of how blocks are managed.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.config import KVCodec
from engine.kernels.context import (
    Program,
    QuantizedActs,
    add_head,
    matrices,
    pointer,
    row_bytes,
)
from engine.kernels.structs import (
    Activation,
    Attend,
    Codec,
    Embed,
    FloatLinear,
    Gate,
    Grow,
    Linear,
    Matrix,
    Norm,
    OpKind,
    PackedSlab,
    Rope,
    Rotated,
    RowNorm,
    Select,
    Slab,
    Trig,
)
from engine.layers.mlp import silu
from engine.layers.norm import LayerNorm
from engine.layers.rope import RopeStyle
from engine.models.llama import Block, Llama
from engine.models.stablelm import ParallelBlock
from engine.models.traits import HeadNorm
from engine.native_support import has_parts, is_float, parts_of
from engine.quant.linear import QuantEmbedding, QuantLinear

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from torch import Tensor, nn

    from engine.layers.norm import Norm as NormModule
    from engine.layers.rope import RotaryEmbedding
    from engine.memory.interface import NativeLayout, NativeStepView
    from engine.native_buffers import Buffers, Packed

_CODECS = {
    KVCodec.F16: Codec.F16,
    KVCodec.BF16: Codec.BF16,
    KVCodec.F32: Codec.F32,
    KVCodec.INT8: Codec.INT8,
    KVCodec.K8V4: Codec.K8V4,
}


@dataclass(frozen=True, slots=True)
class LayerMemory:
    """Where a layer finds its keys and values.

    group: number of its attention group. packed: the layout of quantised blocks.
    """

    layout: NativeLayout
    packed: NativeLayout | None
    rotation: Rotated
    group: int
    window: int | None

    @classmethod
    def of(cls, view: NativeStepView, layer: int, group: int) -> LayerMemory:
        """Describe a layer by what a step says."""
        has_keys, has_values = view.is_rotated(layer)
        rotation = Rotated.KEYS * has_keys | Rotated.VALUES * has_values
        return cls(
            view.exact_layout(layer),
            view.packed_layout(layer),
            Rotated(rotation),
            group,
            view.window(layer),
        )


class ProgramBuilder:
    """Builds the program of one model for one memory layout."""

    def __init__(
        self, model: Llama, packed: Packed, buffers: Buffers, memory: Mapping[int, LayerMemory]
    ) -> None:
        self._model = model
        self._packed = packed
        self._buffers = buffers
        self._memory = memory
        self._program = Program()

    def build(self) -> Program:
        """Return the operations of one forward pass."""
        self._embed()
        for kind, rope in self._model.ropes.items():
            self._trig(rope, self._buffers.cos_sin[kind])
        for block in self._model.blk:
            self._block(block)
        self._head()
        return self._program

    def _embed(self) -> None:
        table, config = self._model.token_embd, self._model.config
        args = Embed(
            pointer(table.data),
            pointer(self._buffers.x),
            _row_bytes(table),
            config.hidden_size,
            int(table.ggml_type),
            config.embedding_scale / config.residual_scale,
        )
        self._program.add(OpKind.EMBED, args, table)

    def _trig(self, rope: RotaryEmbedding, out: npt.NDArray[np.generic]) -> None:
        frequencies = np.ascontiguousarray(rope.frequencies.numpy(), np.float64)
        args = Trig(pointer(frequencies), pointer(out), rope.magnitude, len(frequencies))
        self._program.add(OpKind.TRIG, args, frequencies, out)

    def _block(self, block: nn.Module) -> None:
        assert isinstance(block, Block)
        self._attention(block)
        self._feed_forward(block)

    def _attention(self, block: Block) -> None:
        buffers = self._buffers
        self._norm(block.attn_norm, buffers.normed)
        self._linear(buffers.normed, parts_of(block.qkv), buffers.qkv)
        self._whole_norms(block)
        self._grow()
        self._rope(block)
        self._attend(block)
        # Branches that run at once read the same norm of all rows.
        if block is self._model.blk[-1] and not isinstance(block, ParallelBlock):
            self._select(buffers.attended)
        self._branch(buffers.attended, block.attn_output, block.post_attention_norm)

    def _feed_forward(self, block: Block) -> None:
        buffers = self._buffers
        if not isinstance(block, ParallelBlock):
            self._norm(block.ffn_norm, buffers.normed)
        self._linear(buffers.normed, parts_of(block.gate_up), buffers.gate_up)
        self._gate(block)
        self._branch(buffers.gated, block.ffn_down, block.post_ffw_norm)

    def _select(self, acts: QuantizedActs) -> None:
        """Go on with the rows whose logits are wanted: nothing else depends on the others."""
        x = self._buffers.x
        args = Select(pointer(x), ctypes.pointer(acts.struct), acts.out, x.shape[1])
        self._program.add(OpKind.SELECT, args, x, acts)

    def _norm(
        self, norm: NormModule | None, acts: QuantizedActs, *, is_logit_rows: bool = False
    ) -> None:
        """Normalise and quantise the residual stream; quantise it as it is without a norm.

        The stream is the model's divided by the residual scale: then branches are added unscaled,
        and norms give the same with an eps that is divided by the square.
        """
        x, scale = self._buffers.x, self._model.config.residual_scale
        if norm is None:
            width = x.shape[1]
            plain = Gate(
                pointer(x), None, acts.out, ctypes.pointer(acts.struct), width, width,
                Activation.NONE,
            )  # fmt: skip
            self._program.add(OpKind.GATE, plain, acts)
            return
        eps = norm.eps / scale**2
        if isinstance(norm, LayerNorm):
            self._row_norm(norm, x, acts.out, eps=eps, acts=acts, is_logit_rows=is_logit_rows)
            return
        weight = floats_of(norm.weight)
        args = Norm(
            pointer(x), pointer(weight), acts.out, ctypes.pointer(acts.struct), len(weight), 0, eps,
            int(is_logit_rows),
        )  # fmt: skip
        self._program.add(OpKind.NORM, args, weight, acts)

    def _row_norm(
        self,
        norm: NormModule,
        x: npt.NDArray[np.generic],
        out: int | None,
        *,
        eps: float,
        acts: QuantizedActs | None = None,
        is_logit_rows: bool = False,
    ) -> None:
        """Normalise rows of x (T, width), perhaps a part of wider ones."""
        weight = floats_of(norm.weight)
        bias = _bias_of(norm)
        stride = x.strides[0] // x.itemsize
        args = RowNorm(
            x.ctypes.data, pointer(weight), None if bias is None else pointer(bias), out,
            None if acts is None else ctypes.pointer(acts.struct), stride,
            stride if acts is None else acts.struct.width, len(weight),
            int(isinstance(norm, LayerNorm)), eps, int(is_logit_rows),
        )  # fmt: skip
        self._program.add(OpKind.ROW_NORM, args, weight, bias, x, acts)

    def _whole_norms(self, block: Block) -> None:
        """Normalise all queries, and all keys, of a row together."""
        if block.traits.head_norm is not HeadNorm.WHOLE:
            return
        assert block.attn_q_norm is not None
        assert block.attn_k_norm is not None
        qkv, size = self._buffers.qkv, len(block.attn_q_norm.weight)
        for norm, part in (
            (block.attn_q_norm, qkv[:, :size]),
            (block.attn_k_norm, qkv[:, size : size + len(block.attn_k_norm.weight)]),
        ):
            self._row_norm(norm, part, part.ctypes.data, eps=norm.eps)

    def _grow(self) -> None:
        """Let queries grow with their distance beyond the trained context (Mistral 3)."""
        config, qkv = self._model.config, self._buffers.qkv
        if config.temperature_scale == 0.0:
            return
        args = Grow(
            pointer(qkv), qkv.shape[1], config.temperature_scale,
            config.num_attention_heads * config.head_dim, config.rope.original_context_length,
        )  # fmt: skip
        self._program.add(OpKind.GROW, args)

    def _linear(
        self,
        acts: QuantizedActs,
        parts: tuple[QuantLinear, ...],
        out: npt.NDArray[np.generic],
        *,
        is_added: bool = False,
        is_logit_rows: bool = False,
    ) -> None:
        """Multiply; the parts' outputs lie side by side in the rows of out."""
        quantized: list[Matrix] = []
        floats: list[Matrix] = []
        column = 0
        for part in parts:
            entry = self._matrix(part, out, column, is_added)
            (floats if is_float(part) else quantized).append(entry)
            column += part.shape[0]
        if quantized:
            array = matrices(quantized)
            args = Linear(ctypes.pointer(acts.struct), array, len(array), int(is_logit_rows))
            self._program.add(OpKind.LINEAR, args, array, acts)
        if floats:
            assert acts.floats is not None
            self._float_products(acts.floats, floats, is_logit_rows=is_logit_rows)

    def _float_products(
        self, x: npt.NDArray[np.generic], entries: list[Matrix], *, is_logit_rows: bool = False
    ) -> None:
        """Multiply rows of x, (T, width) and perhaps a part of wider rows."""
        array = matrices(entries)
        stride = x.strides[0] // x.itemsize
        args = FloatLinear(x.ctypes.data, array, stride, x.shape[1], len(array), int(is_logit_rows))
        self._program.add(OpKind.FLOAT_LINEAR, args, array, x)

    def _matrix(
        self, part: QuantLinear, out: npt.NDArray[np.generic], column: int, is_added: bool
    ) -> Matrix:
        packed = self._packed[part]
        bias = None if part.bias is None else floats_of(part.bias)
        self._program.keep(packed, bias, out)
        return Matrix(
            pointer(packed.data),
            None if bias is None else pointer(bias),
            pointer(out) + 4 * column,
            out.shape[1],
            packed.shape[0],
            packed.kind,
            int(is_added),
        )

    def _branch(
        self, acts: QuantizedActs, linear: QuantLinear, post_norm: NormModule | None
    ) -> None:
        """Multiply, normalise where the model does, and add to the residual stream."""
        buffers = self._buffers
        if post_norm is None:
            self._linear(acts, (linear,), buffers.x, is_added=True)
            return
        self._linear(acts, (linear,), buffers.branch)
        weight = floats_of(post_norm.weight)
        args = Norm(
            pointer(buffers.branch),
            pointer(weight),
            pointer(buffers.x),
            None,
            len(weight),
            1,
            post_norm.eps,
            0,
        )
        self._program.add(OpKind.NORM, args, weight)

    def _rope(self, block: Block) -> None:
        config, buffers = self._model.config, self._buffers
        size, stride = config.head_dim, buffers.qkv.shape[1]
        slab = self._slab(block.layer)
        q = pointer(buffers.qkv)
        k = q + 4 * config.num_attention_heads * size
        v = k + 4 * config.num_key_value_heads * size
        is_per_head = block.traits.head_norm is HeadNorm.PER_HEAD
        per_head = (block.attn_q_norm, block.attn_k_norm) if is_per_head else (None, None)
        norms = [_optional_floats(norm) for norm in per_head]
        cos_sin = buffers.cos_sin[block.layer_type] if block.has_rope else buffers.x
        num_pairs = cos_sin.shape[2] if block.has_rope else 0
        is_neox = block.traits.rope_style is RopeStyle.NEOX
        args = Rope(
            q, k, v,
            *(None if norm is None else pointer(norm) for norm in norms),
            pointer(cos_sin), ctypes.pointer(slab), stride, stride, stride,
            config.num_attention_heads, config.num_key_value_heads, size, num_pairs,
            int(is_neox), config.attention_scale, config.norm_eps,
        )  # fmt: skip
        self._program.add(OpKind.ROPE, args, slab, cos_sin, *norms)

    def _attend(self, block: Block) -> None:
        config, buffers = self._model.config, self._buffers
        sinks = None if block.attn_sinks is None else floats_of(block.attn_sinks)
        slab = self._slab(block.layer)
        args = Attend(
            pointer(buffers.qkv),
            None if sinks is None else pointer(sinks),
            ctypes.pointer(slab),
            buffers.attended.out,
            ctypes.pointer(buffers.attended.struct),
            buffers.qkv.shape[1],
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
            config.attn_logit_softcapping or 0.0,
        )
        self._program.add(OpKind.ATTEND, args, sinks, slab, buffers)
        self._program.add(OpKind.MERGE, args)

    def _gate(self, block: Block) -> None:
        config, buffers = self._model.config, self._buffers
        width, start = config.intermediate_size, pointer(buffers.gate_up)
        is_silu = block.traits.activation is silu
        args = Gate(
            start,
            start + 4 * width if block.traits.is_gated else None,
            buffers.gated.out,
            ctypes.pointer(buffers.gated.struct),
            buffers.gate_up.shape[1],
            width,
            Activation.SILU if is_silu else Activation.GELU,
        )
        self._program.add(OpKind.GATE, args)

    def _head(self) -> None:
        acts = self._buffers.normed
        self._norm(self._model.output_norm, acts, is_logit_rows=True)
        if has_parts(self._model.output):
            self._head_in_parts(acts)
            return
        self._linear(acts, (self._model.output,), self._buffers.logits, is_logit_rows=True)

    def _head_in_parts(self, acts: QuantizedActs) -> None:
        """Multiply all rows exactly, or look at one roughly first: the step says which."""
        array = matrices([self._matrix(self._model.output, self._buffers.logits, 0, False)])
        add_head(self._program, Linear(ctypes.pointer(acts.struct), array, 1, 1), array, acts)

    def _slab(self, layer: int) -> Slab:
        memory = self._memory[layer]
        layout = memory.layout
        assert layout.key_head_stride == layout.value_head_stride
        return Slab(
            layout.key,
            layout.value,
            layout.key_head_stride,
            memory.group,
            layout.block_size,
            _CODECS[KVCodec(layout.codec)],
            memory.window or 0,
            memory.rotation,
            0,
            None if memory.packed is None else ctypes.pointer(_packed_slab(memory.packed)),
        )


def _packed_slab(layout: NativeLayout) -> PackedSlab:
    return PackedSlab(
        layout.key,
        layout.value,
        layout.key_scale,
        layout.value_scale,
        _CODECS[KVCodec(layout.codec)],
    )


def _row_bytes(table: QuantEmbedding) -> int:
    return row_bytes(int(table.ggml_type), table.shape[1])


def floats_of(tensor: Tensor) -> npt.NDArray[np.float32]:
    """Return a small tensor for kernels to read."""
    return np.ascontiguousarray(tensor.detach().numpy(), np.float32)


def _bias_of(norm: NormModule) -> npt.NDArray[np.float32] | None:
    return floats_of(norm.bias) if isinstance(norm, LayerNorm) and norm.bias is not None else None


def _optional_floats(norm: NormModule | None) -> npt.NDArray[np.float32] | None:
    return None if norm is None else floats_of(norm.weight)
