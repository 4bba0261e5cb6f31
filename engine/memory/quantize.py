"""Quantised keys and values: the arithmetic of int8 and k8v4, and the rotation before it.

Pure functions on tensors; plain, because native kernels are checked against them.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config import KVCodec
from engine.memory.codec import group_width, is_quantised

MIN_ROTATED_DIM = 64
# The smallest normal float16; a scale below it would lose precision, and zero would divide.
MIN_SCALE = 2.0**-14


@dataclass(frozen=True, slots=True)
class Rotation:
    """What keys and values are multiplied by before they are stored; None for nothing.

    Orthonormal and symmetric, so each matrix is its own inverse.
    """

    keys: Tensor | None = None
    values: Tensor | None = None

    @classmethod
    def of(cls, codec: KVCodec, head_dim: int) -> Rotation:
        """Return the rotation of a memory.

        Keys are rotated by quantised codecs, values by k8v4 as well; only heads of a power of two
        of at least 64 numbers.
        """
        is_power = head_dim & (head_dim - 1) == 0
        if not is_quantised(codec) or not is_power or head_dim < MIN_ROTATED_DIM:
            return cls()
        matrix = hadamard(head_dim)
        return cls(matrix, matrix if codec is KVCodec.K8V4 else None)

    def on(self, device: torch.device) -> Rotation:
        """Return the same on a device."""
        keys, values = (None if m is None else m.to(device) for m in (self.keys, self.values))
        return Rotation(keys, values)


def hadamard(size: int) -> Tensor:
    """Return the normalised Hadamard matrix (size, size) of a power of two, float32.

    Source: Sylvester's construction.
    """
    matrix: Tensor = torch.ones(1, 1)
    while matrix.shape[0] < size:
        top = torch.cat((matrix, matrix), dim=1)
        matrix = torch.cat((top, torch.cat((matrix, -matrix), dim=1)), dim=0)
    return matrix.mul(size**-0.5)


def rotate(x: Tensor, matrix: Tensor | None) -> Tensor:
    """Multiply the last dimension by a rotation, in float32; x itself where there is none."""
    return x if matrix is None else x.float() @ matrix


def quantize(x: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Return integers in [-largest, largest] as float32 and the float16 scale of each row.

    x: (..., D) float32. The integers are those of the rounded scale, which costs no accuracy.
    """
    scales = (x.abs().amax(dim=-1, keepdim=True) / largest).clamp_min(MIN_SCALE).half()
    return torch.round(x / scales.float()).clamp_(-largest, largest), scales


def pack_planes(codec: KVCodec, keys: Tensor, values: Tensor) -> tuple[Tensor, ...]:
    """Return the planes of a quantised block: keys, values, key scales, value scales.

    keys, values: (..., D), any float.
    """
    packed_keys, key_scales = quantize(keys.float(), 127)
    if codec is KVCodec.INT8:
        packed_values, value_scales = quantize(values.float(), 127)
        return packed_keys.to(torch.int8), packed_values.to(torch.int8), key_scales, value_scales
    nibbles, value_scales = _pack_nibbles(values.float())
    return packed_keys.to(torch.int8), nibbles, key_scales, value_scales


def unpack_values(codec: KVCodec, values: Tensor, scales: Tensor) -> Tensor:
    """Return values (..., D) float32 of a quantised plane and its scales."""
    if codec is KVCodec.INT8:
        return values.float() * scales.float()
    return _unpack_nibbles(values, scales)


def _pack_nibbles(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return (..., D/2) uint8 and (..., D/group) float16 scales of (..., D) float32."""
    width = group_width(values.shape[-1])
    numbers, scales = quantize(values.view(*values.shape[:-1], -1, width), 7)
    low, high = (numbers + 8).to(torch.uint8).chunk(2, dim=-1)
    return (low | (high << 4)).flatten(-2), scales.squeeze(-1)


def _unpack_nibbles(packed: Tensor, scales: Tensor) -> Tensor:
    num_groups = scales.shape[-1]
    grouped = packed.view(*packed.shape[:-1], num_groups, -1)
    numbers = torch.cat((grouped & 15, grouped >> 4), dim=-1).float() - 8.0
    return (numbers * scales.float().unsqueeze(-1)).flatten(-2)
