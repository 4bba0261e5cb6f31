"""How keys and values lie in the slab of one block, byte by byte.

Knows numbers and offsets only: nothing of sequences, pools or stores. Native kernels read slabs by
the same offsets, so this docstring is their format document.

A slab holds ``block_size`` tokens of all layers of one attention group::

    data     per layer: the key plane, then the value plane
    scales   per layer: the key scale plane, then the value scale plane   (int8 and k8v4 only)
    padding  to a multiple of 64 bytes
    trailer  64 bytes; the first 16 are the block's hash once it is sealed, the rest is zero

Every plane is ``[kv_head][token][width]``, contiguous. For f16, bf16 and f32 the data part is hence
exactly ``[layer][K|V][kv_head][token][head_dim]`` and there are no scales.

====== ======== ================ =================================================
codec  plane    element          value
====== ======== ================ =================================================
int8   keys     int8 x D         q * scale, one float16 scale per head and token
int8   values   int8 x D         the same
k8v4   keys     int8 x D         the same
k8v4   values   uint8 x D/2      (nibble - 8) * scale, one float16 scale per group
====== ======== ================ =================================================

A group of 4-bit values is 32 neighbours (D where that is less): byte j of its 16 holds value j in
the low nibble and value j + 16 in the high one. Where ``Rotation`` says so, keys (and values) are
stored multiplied by the normalised Hadamard matrix, in exact blocks of such a memory too: queries
are rotated alike, and the output is rotated back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.config import KVCodec

if TYPE_CHECKING:
    from torch import Tensor

    from engine.memory.interface import AttentionGroup

ALIGNMENT_BYTES = 64
TRAILER_BYTES = 64

_EXACT_DTYPES = {
    KVCodec.F16: torch.float16,
    KVCodec.BF16: torch.bfloat16,
    KVCodec.F32: torch.float32,
}


def is_quantised(codec: KVCodec) -> bool:
    """Tell whether a codec stores scales."""
    return codec not in _EXACT_DTYPES


def exact_codec(codec: KVCodec) -> KVCodec:
    """Return the codec of those blocks of a memory that hold the numbers themselves."""
    return KVCodec.F16 if is_quantised(codec) else codec


def exact_dtype(codec: KVCodec) -> torch.dtype:
    """Return the element type of the exact blocks of a memory."""
    return _EXACT_DTYPES[exact_codec(codec)]


def group_width(head_dim: int) -> int:
    """Return how many 4-bit values share a scale."""
    return min(32, head_dim)


@dataclass(frozen=True, slots=True)
class Plane:
    """One kind of number in a slab: keys, values, or their scales.

    offset: bytes from the slab's start to layer 0. layer_stride: bytes from a layer to the next.
    shape: (K, block_size, width) of one layer, contiguous.
    """

    dtype: torch.dtype
    offset: int
    layer_stride: int
    shape: tuple[int, int, int]

    @property
    def num_bytes(self) -> int:
        """Bytes of one layer."""
        return self.shape[0] * self.shape[1] * self.shape[2] * self.dtype.itemsize

    def view(self, raw: Tensor, num_slabs: int, num_layers: int, slab_bytes: int) -> Tensor:
        """Return (N, layers, K, block_size, width) over raw, the bytes of num_slabs slabs."""
        item = self.dtype.itemsize
        heads, tokens, width = self.shape
        size = (num_slabs, num_layers, heads, tokens, width)
        stride = (slab_bytes // item, self.layer_stride // item, tokens * width, width, 1)
        return torch.as_strided(raw.view(self.dtype), size, stride, self.offset // item)


@dataclass(frozen=True, slots=True)
class BlockLayout:
    """The byte layout of a slab.

    planes: keys, values and, for a quantised codec, key scales and value scales.
    data_bytes: without padding and trailer. slab_bytes: of the whole slab.
    """

    codec: KVCodec
    block_size: int
    num_layers: int
    planes: tuple[Plane, ...]
    data_bytes: int

    @classmethod
    def of(cls, group: AttentionGroup, codec: KVCodec, block_size: int) -> BlockLayout:
        """Lay out the blocks of a group."""
        num_layers = len(group.layers)
        data, scales = _plane_widths(codec, group.head_dim)
        heads = group.num_key_value_heads
        planes, end = _place(data, 0, num_layers, heads, block_size)
        scale_planes, end = _place(scales, end, num_layers, heads, block_size)
        return cls(codec, block_size, num_layers, planes + scale_planes, end)

    @property
    def trailer_offset(self) -> int:
        """Bytes from the slab's start to its trailer."""
        return -(-self.data_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES

    @property
    def slab_bytes(self) -> int:
        """Bytes of one block, trailer included."""
        return self.trailer_offset + TRAILER_BYTES

    def bytes_of_tokens(self, num_tokens: int) -> int:
        """Return the bytes of num_tokens tokens of all layers, without padding."""
        return self.data_bytes // self.block_size * num_tokens


def _plane_widths(
    codec: KVCodec, head_dim: int
) -> tuple[list[tuple[torch.dtype, int]], list[tuple[torch.dtype, int]]]:
    """Return (dtype, width) of the key and value planes, and of their scale planes."""
    scale = (torch.float16, 1)
    if codec is KVCodec.INT8:
        return [(torch.int8, head_dim), (torch.int8, head_dim)], [scale, scale]
    if codec is KVCodec.K8V4:
        group_scales = (torch.float16, head_dim // group_width(head_dim))
        return [(torch.int8, head_dim), (torch.uint8, head_dim // 2)], [scale, group_scales]
    exact = _EXACT_DTYPES[codec]
    return [(exact, head_dim), (exact, head_dim)], []


def _place(
    widths: list[tuple[torch.dtype, int]], start: int, num_layers: int, heads: int, tokens: int
) -> tuple[tuple[Plane, ...], int]:
    """Return planes that alternate layer by layer from byte ``start`` on, and where they end."""
    sizes = [heads * tokens * width * dtype.itemsize for dtype, width in widths]
    layer_stride = sum(sizes)
    planes = tuple(
        Plane(dtype, start + sum(sizes[:index]), layer_stride, (heads, tokens, width))
        for index, (dtype, width) in enumerate(widths)
    )
    return planes, start + layer_stride * num_layers
