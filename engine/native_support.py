"""Which models and memories the native kernels can serve, and why not the others.

Knows the modules of ``engine/models`` and the types the kernels multiply; builds nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeGuard

from engine.config import KVCodec
from engine.ggml_type import GGMLType
from engine.kernels.context import kind_of, row_bytes
from engine.kernels.structs import Codec
from engine.layers.mlp import gelu, silu
from engine.layers.norm import RMSNorm
from engine.models.lfm2 import ConvBlock
from engine.models.llama import Block
from engine.models.mamba import MambaBlock
from engine.models.stablelm import ParallelBlock
from engine.models.traits import HeadNorm
from engine.quant.linear import FusedLinear, QuantLinear

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine.layers.norm import Norm
    from engine.models.llama import Llama

# Matrices of these types are multiplied as floats, the first three where they lie in the file.
FLOAT_TYPES = {
    GGMLType.F16: Codec.F16,
    GGMLType.BF16: Codec.BF16,
    GGMLType.F32: Codec.F32,
    GGMLType.Q2_K: Codec.F16,
}
_LANES = 16
_GROUP_COLUMNS = 32
# Values of 4 bits that share a scale.
_GROUP_VALUES = 32
# What the recurrent kernels have room for.
_MOST_TAPS = 8
_MOST_STATES = 64


def reason_against(model: Llama, codec: KVCodec) -> str | None:
    """Say why a model cannot run natively with this memory, None when it can."""
    config = model.config
    if codec is KVCodec.K8V4 and config.head_dim % _GROUP_VALUES:
        return "the size of its heads"
    if config.head_dim % _LANES or config.hidden_size % _GROUP_COLUMNS:
        return "the sizes of its layers"
    if not can_multiply(model.output):
        return "its output"
    table = model.token_embd
    if row_bytes(int(table.ggml_type), table.shape[1]) < 0:
        return "its embedding"
    return next((why for block in model.blk if (why := _reason_against_block(block))), None)


def can_multiply(linear: QuantLinear) -> bool:
    """Tell whether there is a kernel for the type of a matrix."""
    return is_float(linear) or kind_of(int(linear.ggml_type)) >= 0


def is_float(linear: QuantLinear) -> bool:
    """Tell whether a matrix is multiplied as floats, with float activations."""
    return linear.ggml_type in FLOAT_TYPES


def has_parts(linear: QuantLinear) -> bool:
    """Tell whether an output head is packed in parts: its largest logits then take fewer bytes."""
    return linear.ggml_type is GGMLType.Q8_0 and linear.bias is None


def parts_of(product: object) -> tuple[QuantLinear, ...]:
    """Return the matrices of a product, in the order of their outputs."""
    if _is_single(product):
        return (product,)
    assert isinstance(product, FusedLinear)
    return product.parts


def _reason_against_block(block: object) -> str | None:
    if type(block) is MambaBlock:
        return _reason_against_mamba(block)
    if type(block) is ConvBlock:
        tensors = block.shortconv
        if block.config.hidden_size % _GROUP_COLUMNS or tensors.conv.shape[1] > _MOST_TAPS:
            return "the size of its state"
        return _reason_against_branches(block, (tensors.in_proj, tensors.out_proj))
    if type(block) not in (Block, ParallelBlock):
        return "a kind of layer"
    assert isinstance(block, Block)
    is_per_head = block.traits.head_norm is HeadNorm.PER_HEAD
    if is_per_head and not _are_plain((block.attn_q_norm, block.attn_k_norm)):
        return "its norms"
    return _reason_against_branches(block, (*parts_of(block.qkv), block.attn_output))


def _reason_against_mamba(block: MambaBlock) -> str | None:
    inner, num_states = block.ssm_a.shape
    taps = block.ssm_conv1d.shape[1]
    if inner % _GROUP_COLUMNS or num_states > _MOST_STATES or taps > _MOST_TAPS:
        return "the size of its state"
    linears = (block.ssm_in, block.ssm_x, block.ssm_dt, block.ssm_out)
    return None if all(map(can_multiply, linears)) else "a type of its tensors"


def _reason_against_branches(block: Block, linears: tuple[QuantLinear, ...]) -> str | None:
    """Look at what all layers but Mamba's have. linears: of the first branch."""
    if block.experts is not None:
        return "its experts"
    traits = block.traits
    if not _are_plain((block.post_attention_norm, block.post_ffw_norm)):
        return "its norms"
    if not traits.has_pre_norm and block.config.residual_scale != 1.0:
        return "its scales"
    if traits.activation not in (silu, gelu) or block.config.intermediate_size % _GROUP_COLUMNS:
        return "its activation"
    if not all(map(can_multiply, (*linears, *parts_of(block.gate_up), block.ffn_down))):
        return "a type of its tensors"
    return None


def _are_plain(norms: Iterable[Norm | None]) -> bool:
    return all(norm is None or isinstance(norm, RMSNorm) for norm in norms)


def _is_single(product: object) -> TypeGuard[QuantLinear]:
    return isinstance(product, QuantLinear)
