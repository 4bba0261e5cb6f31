"""Translates a model of the Llama family into a program of native operations.

Knows the modules of ``engine/models`` and the structures of ``engine/kernels``; nothing of
sessions or of how blocks are managed.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard

import numpy as np

from engine.config import KVCodec
from engine.kernels.context import (
    Context,
    HugeBytes,
    Limits,
    PackedMatrix,
    Program,
    QuantizedActs,
    kind_of,
    matrices,
    pointer,
    row_bytes,
    zeros,
)
from engine.kernels.structs import (
    Activation,
    Attend,
    Codec,
    Embed,
    Gate,
    Linear,
    Matrix,
    Norm,
    OpKind,
    PackedSlab,
    Rope,
    Rotated,
    Select,
    Slab,
    Trig,
)
from engine.layers.mlp import gelu, silu
from engine.layers.norm import RMSNorm
from engine.layers.rope import RopeStyle
from engine.models.llama import Block, Llama
from engine.models.traits import HeadNorm
from engine.quant.linear import FusedLinear, QuantEmbedding, QuantLinear

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt
    from torch import Tensor

    from engine.layers.norm import Norm as NormModule
    from engine.layers.rope import RotaryEmbedding
    from engine.memory.interface import NativeLayout, NativeStepView

_LANES = 16
# Values of 4 bits that share a scale.
_GROUP_VALUES = 32
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


def reason_against(model: Llama, codec: KVCodec) -> str | None:
    """Say why a model cannot run natively with this memory, None when it can."""
    config = model.config
    if codec is KVCodec.K8V4 and config.head_dim % _GROUP_VALUES:
        return "the size of its heads"
    if config.head_dim % _LANES or config.hidden_size % 32 or config.residual_scale != 1.0:
        return "the sizes of its layers"
    if config.temperature_scale or kind_of(int(model.output.ggml_type)) < 0:
        return "its output"
    if not isinstance(model.output_norm, RMSNorm) or _row_bytes(model.token_embd) < 0:
        return "its embedding or final norm"
    return next((why for block in model.blk if (why := _reason_against_block(block))), None)


def limits_of(model: Llama, max_rows: int) -> Limits:
    """Return the sizes a context needs for this model."""
    config = model.config
    columns = max(
        config.hidden_size,
        config.intermediate_size,
        config.num_attention_heads * config.head_dim,
    )
    return Limits(max_rows, columns, config.num_attention_heads, config.head_dim)


class Packed:
    """The packed weights of a model, made once, about the size of the file."""

    def __init__(self, model: Llama, context: Context) -> None:
        self._context = context
        linears = [module for module in model.modules() if isinstance(module, QuantLinear)]
        room = HugeBytes(sum(context.packed_bytes(int(m.ggml_type), m.shape) for m in linears))
        self._matrices: dict[int, PackedMatrix] = {
            id(m): context.pack(m.data, int(m.ggml_type), m.shape, room) for m in linears
        }

    def __getitem__(self, linear: QuantLinear) -> PackedMatrix:
        return self._matrices[id(linear)]


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
        self.normed = QuantizedActs(rows, config.hidden_size)
        self.attended = QuantizedActs(rows, config.num_attention_heads * config.head_dim)
        self.gated = QuantizedActs(rows, config.intermediate_size)
        self.cos_sin = {
            kind: zeros((rows, 2, max(1, len(rope.frequencies))))
            for kind, rope in model.ropes.items()
        }


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
            assert isinstance(block, Block)
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
            config.embedding_scale,
        )
        self._program.add(OpKind.EMBED, args, table)

    def _trig(self, rope: RotaryEmbedding, out: npt.NDArray[np.generic]) -> None:
        frequencies = np.ascontiguousarray(rope.frequencies.numpy(), np.float64)
        args = Trig(pointer(frequencies), pointer(out), rope.magnitude, len(frequencies))
        self._program.add(OpKind.TRIG, args, frequencies, out)

    def _block(self, block: Block) -> None:
        buffers = self._buffers
        self._norm(block.attn_norm, buffers.normed)
        self._linear(buffers.normed, _parts(block.qkv), buffers.qkv)
        self._rope(block)
        self._attend(block)
        if block is self._model.blk[-1]:
            self._select(buffers.attended)
        self._branch(buffers.attended, block.attn_output, block.post_attention_norm)
        self._norm(block.ffn_norm, buffers.normed)
        self._linear(buffers.normed, _parts(block.gate_up), buffers.gate_up)
        self._gate(block)
        self._branch(buffers.gated, block.ffn_down, block.post_ffw_norm)

    def _select(self, acts: QuantizedActs) -> None:
        """Go on with the rows whose logits are wanted: nothing else depends on the others."""
        x = self._buffers.x
        args = Select(pointer(x), ctypes.pointer(acts.struct), x.shape[1])
        self._program.add(OpKind.SELECT, args, x, acts)

    def _norm(
        self, norm: NormModule | None, acts: QuantizedActs, *, is_logit_rows: bool = False
    ) -> None:
        """Normalise and quantise the residual stream."""
        assert norm is not None
        weight = _floats(norm.weight)
        args = Norm(
            pointer(self._buffers.x),
            pointer(weight),
            None,
            ctypes.pointer(acts.struct),
            len(weight),
            0,
            norm.eps,
            int(is_logit_rows),
        )
        self._program.add(OpKind.NORM, args, weight, acts)

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
        entries, kept, column = [], [], 0
        for part in parts:
            entry, bias = self._matrix(part, out, column, is_added)
            entries.append(entry)
            kept.append(bias)
            column += part.shape[0]
        array = matrices(entries)
        args = Linear(ctypes.pointer(acts.struct), array, len(parts), int(is_logit_rows))
        self._program.add(OpKind.LINEAR, args, array, acts, out, self._packed, *kept)

    def _matrix(
        self, part: QuantLinear, out: npt.NDArray[np.generic], column: int, is_added: bool
    ) -> tuple[Matrix, npt.NDArray[np.float32] | None]:
        packed = self._packed[part]
        bias = None if part.bias is None else _floats(part.bias)
        entry = Matrix(
            pointer(packed.data),
            None if bias is None else pointer(bias),
            pointer(out) + 4 * column,
            out.shape[1],
            packed.shape[0],
            packed.kind,
            int(is_added),
        )
        return entry, bias

    def _branch(
        self, acts: QuantizedActs, linear: QuantLinear, post_norm: NormModule | None
    ) -> None:
        """Multiply, normalise where the model does, and add to the residual stream."""
        buffers = self._buffers
        if post_norm is None:
            self._linear(acts, (linear,), buffers.x, is_added=True)
            return
        self._linear(acts, (linear,), buffers.branch)
        weight = _floats(post_norm.weight)
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
        norms = [_optional_floats(norm) for norm in (block.attn_q_norm, block.attn_k_norm)]
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
        sinks = None if block.attn_sinks is None else _floats(block.attn_sinks)
        slab = self._slab(block.layer)
        args = Attend(
            pointer(buffers.qkv),
            None if sinks is None else pointer(sinks),
            ctypes.pointer(slab),
            None,
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
            None,
            ctypes.pointer(buffers.gated.struct),
            buffers.gate_up.shape[1],
            width,
            Activation.SILU if is_silu else Activation.GELU,
        )
        self._program.add(OpKind.GATE, args)

    def _head(self) -> None:
        acts = self._buffers.normed
        self._norm(self._model.output_norm, acts, is_logit_rows=True)
        self._linear(acts, (self._model.output,), self._buffers.logits, is_logit_rows=True)

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


def _reason_against_block(block: object) -> str | None:
    if type(block) is not Block or block.experts is not None:
        return "a kind of layer"
    traits = block.traits
    if traits.head_norm is HeadNorm.WHOLE or not traits.has_pre_norm:
        return "its norms"
    if traits.activation not in (silu, gelu) or block.config.intermediate_size % 32:
        return "its activation"
    norms = (
        block.attn_norm,
        block.ffn_norm,
        block.post_attention_norm,
        block.post_ffw_norm,
        block.attn_q_norm,
        block.attn_k_norm,
    )
    if not all(norm is None or isinstance(norm, RMSNorm) for norm in norms):
        return "its norms"
    linears = (*_parts(block.qkv), block.attn_output, *_parts(block.gate_up), block.ffn_down)
    if any(kind_of(int(linear.ggml_type)) < 0 for linear in linears):
        return "a type of its tensors"
    return None


def _is_single(product: object) -> TypeGuard[QuantLinear]:
    return isinstance(product, QuantLinear)


def _parts(product: object) -> tuple[QuantLinear, ...]:
    """Return the matrices of a product, in the order of their outputs."""
    if _is_single(product):
        return (product,)
    assert isinstance(product, FusedLinear)
    return product.parts


def _row_bytes(table: QuantEmbedding) -> int:
    return row_bytes(int(table.ggml_type), table.shape[1])


def _floats(tensor: Tensor) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(tensor.detach().numpy(), np.float32)


def _optional_floats(norm: NormModule | None) -> npt.NDArray[np.float32] | None:
    return None if norm is None else _floats(norm.weight)
