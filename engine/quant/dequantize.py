"""From the bytes of a GGUF tensor to float numbers: one function per GGML type.

Blocks and fields carry ggml's letters (``d``, ``dmin``, ``qs``, ``qh``, ``sc``, ``m``). Nothing
here knows files, models or modules.
Source: ggml/src/ggml-common.h (block layouts) and ggml-quants.c (``dequantize_row_*``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf_file import GGMLType

# Chunks of this many weights keep temporaries small; fewer, larger ones mean fewer thread barriers.
CHUNK_WEIGHTS = 1 << 20

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """How one GGML type is stored.

    block_size: weights per block. num_bytes: bytes per block. decode: (N, num_bytes) uint8 to
    (N, block_size) float32.
    """

    block_size: int
    num_bytes: int
    decode: Callable[[Tensor], Tensor]


def dequantize(
    data: Bytes, ggml_type: GGMLType, shape: tuple[int, ...], *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return the numbers of one tensor.

    data: uint8, the tensor's bytes. shape: torch order, rows of whole blocks. The arithmetic is
    float32; each weight is rounded to dtype once.
    Raises: UnsupportedModelError for a type without a function; ModelFileError when data and shape
    disagree.
    """
    out = torch.empty(shape, dtype=dtype)
    dequantize_into(out, data, ggml_type)
    return out


def dequantize_into(out: Tensor, data: Bytes, ggml_type: GGMLType) -> None:
    """Fill a contiguous tensor with the numbers of data.

    Raises: as ``dequantize``.
    """
    block = block_format(ggml_type)
    num_blocks = tensor_bytes(ggml_type, tuple(out.shape)) // block.num_bytes
    if data.size != num_blocks * block.num_bytes:
        message = f"A tensor of shape {tuple(out.shape)} does not have the size its type needs."
        raise ModelFileError(message, detail=f"{ggml_type.name}: {data.size} bytes")
    blocks = data.reshape(num_blocks, block.num_bytes)
    rows = out.view(num_blocks, block.block_size)
    step = CHUNK_WEIGHTS // block.block_size
    for start in range(0, num_blocks, step):
        # The copy makes the read-only mapping writable, which torch asks for.
        chunk = torch.from_numpy(blocks[start : start + step].copy())
        rows[start : start + step] = block.decode(chunk)


def dequantize_rows(
    data: Bytes, ggml_type: GGMLType, shape: tuple[int, int], rows: Tensor
) -> Tensor:
    """Return chosen rows of a matrix as (T, columns) float32. rows: (T,) integers on the CPU."""
    block = block_format(ggml_type)
    num_rows, columns = shape
    picked = torch.from_numpy(data.reshape(num_rows, -1)[rows.numpy()])
    return block.decode(picked.view(-1, block.num_bytes)).view(-1, columns)


def block_format(ggml_type: GGMLType) -> BlockFormat:
    """Look up how a type is stored.

    Raises: UnsupportedModelError listing the supported types.
    """
    block = FORMATS.get(ggml_type.name)
    if block is None:
        message = f"Weights of type {ggml_type.name} are not supported."
        raise UnsupportedModelError(message, detail=f"supported: {', '.join(FORMATS)}")
    return block


def tensor_bytes(ggml_type: GGMLType, shape: tuple[int, ...]) -> int:
    """Return the bytes that a tensor takes in the file.

    Raises: ModelFileError when a row is not made of whole blocks.
    """
    block = block_format(ggml_type)
    columns = shape[-1] if shape else 1
    if columns % block.block_size:
        message = f"A row of {columns} weights does not fit blocks of type {ggml_type.name}."
        raise ModelFileError(message, detail=f"shape {shape}")
    weights = 1
    for size in shape:
        weights *= size
    return weights // block.block_size * block.num_bytes


def f32(blocks: Tensor) -> Tensor:
    """Decode F32."""
    return blocks.view(torch.float32)


def f16(blocks: Tensor) -> Tensor:
    """Decode F16."""
    return blocks.view(torch.float16).float()


def bf16(blocks: Tensor) -> Tensor:
    """Decode BF16."""
    return blocks.view(torch.bfloat16).float()


def q4_0(blocks: Tensor) -> Tensor:
    """Decode Q4_0: d, 16 bytes of nibbles; weight = d * (q - 8)."""
    return _nibbles(blocks[:, 2:]).sub_(8).mul_(_half(blocks, 0))


def q4_1(blocks: Tensor) -> Tensor:
    """Decode Q4_1: d, m, 16 bytes of nibbles; weight = d * q + m."""
    return _nibbles(blocks[:, 4:]).mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def q5_0(blocks: Tensor) -> Tensor:
    """Decode Q5_0: d, 32 high bits, 16 bytes of nibbles; weight = d * (q - 16)."""
    q = _nibbles(blocks[:, 6:]).add_(_bits(blocks[:, 2:6]), alpha=16)
    return q.sub_(16).mul_(_half(blocks, 0))


def q5_1(blocks: Tensor) -> Tensor:
    """Decode Q5_1: d, m, 32 high bits, 16 bytes of nibbles; weight = d * q + m."""
    q = _nibbles(blocks[:, 8:]).add_(_bits(blocks[:, 4:8]), alpha=16)
    return q.mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def q8_0(blocks: Tensor) -> Tensor:
    """Decode Q8_0: d, 32 signed bytes; weight = d * q."""
    return blocks[:, 2:].view(torch.int8).float().mul_(_half(blocks, 0))


def q2_k(blocks: Tensor) -> Tensor:
    """Decode Q2_K: 16 scales and minima of 4 bits, 2-bit weights, d, dmin."""
    scales = blocks[:, :16]
    sc = (scales & 15) * _half(blocks, 80)
    m = (scales >> 4) * _half(blocks, 82)
    q = _crumbs(blocks[:, 16:80]).view(-1, 16, 16)
    return q.mul_(sc[..., None]).sub_(m[..., None]).view(-1, 256)


def q3_k(blocks: Tensor) -> Tensor:
    """Decode Q3_K: high bits, 2-bit weights, 16 scales of 6 bits, d.

    A high bit that is *not* set subtracts 4.
    """
    low = torch.cat([blocks[:, 96:104] & 15, blocks[:, 96:104] >> 4], 1)
    high = (blocks[:, None, 104:108] >> _shifts(0, 2, 4, 6)[:, None]) & 3
    sc = (low | (high.reshape(-1, 16) << 4)).float().sub_(32).mul_(_half(blocks, 108))
    hmask = (blocks[:, None, :32] >> _shifts(*range(8))[:, None]) & 1
    q = _crumbs(blocks[:, 32:96]).add_(hmask.view(-1, 256), alpha=4).sub_(4)
    return q.view(-1, 16, 16).mul_(sc[..., None]).view(-1, 256)


def q4_k(blocks: Tensor) -> Tensor:
    """Decode Q4_K: d, dmin, 8 scales and minima of 6 bits, 4-bit weights."""
    sc, m = _scales_and_minima(blocks)
    q = _halves(blocks[:, 16:], 32)
    return q.mul_(sc).sub_(m).view(-1, 256)


def q5_k(blocks: Tensor) -> Tensor:
    """Decode Q5_K: as Q4_K with one high bit per weight."""
    sc, m = _scales_and_minima(blocks)
    qh = (blocks[:, None, 16:48] >> _shifts(*range(8))[:, None]) & 1
    q = _halves(blocks[:, 48:], 32).add_(qh, alpha=16)
    return q.mul_(sc).sub_(m).view(-1, 256)


def q6_k(blocks: Tensor) -> Tensor:
    """Decode Q6_K: low nibbles, high pairs of bits, 16 signed scales, d."""
    ql = _halves(blocks[:, :128], 64).view(-1, 256)
    q = ql.add_(_crumbs(blocks[:, 128:192]), alpha=16).sub_(32)
    sc = blocks[:, 192:208].view(torch.int8) * _half(blocks, 208)
    return q.view(-1, 16, 16).mul_(sc[..., None]).view(-1, 256)


def iq4_nl(blocks: Tensor) -> Tensor:
    """Decode IQ4_NL: d, 16 bytes of nibbles that index a table."""
    return _lookup(IQ4_VALUES, blocks[:, 2:], 16).view(-1, 32).mul_(_half(blocks, 0))


def iq4_xs(blocks: Tensor) -> Tensor:
    """Decode IQ4_XS: d, 8 scales of 6 bits, nibbles that index a table."""
    low = (blocks[:, 4:8, None] >> _shifts(0, 4)) & 15
    high = (blocks[:, 2:4, None] >> _shifts(0, 2, 4, 6)) & 3
    scales = low.view(-1, 8) | (high.view(-1, 8) << 4)
    sc = scales.float().sub_(32).mul_(_half(blocks, 0))
    return _lookup(IQ4_VALUES, blocks[:, 8:], 16).mul_(sc[..., None]).view(-1, 256)


def mxfp4(blocks: Tensor) -> Tensor:
    """Decode MXFP4: a power of two, 16 bytes of nibbles that index the FP4 numbers (doubled)."""
    d = torch.exp2(blocks[:, :1].double() - 128).float()
    return _lookup(FP4_VALUES, blocks[:, 1:], 16).view(-1, 32).mul_(d)


IQ4_VALUES = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
FP4_VALUES = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

FORMATS = {
    "F32": BlockFormat(1, 4, f32),
    "F16": BlockFormat(1, 2, f16),
    "BF16": BlockFormat(1, 2, bf16),
    "Q4_0": BlockFormat(32, 18, q4_0),
    "Q4_1": BlockFormat(32, 20, q4_1),
    "Q5_0": BlockFormat(32, 22, q5_0),
    "Q5_1": BlockFormat(32, 24, q5_1),
    "Q8_0": BlockFormat(32, 34, q8_0),
    "Q2_K": BlockFormat(256, 84, q2_k),
    "Q3_K": BlockFormat(256, 110, q3_k),
    "Q4_K": BlockFormat(256, 144, q4_k),
    "Q5_K": BlockFormat(256, 176, q5_k),
    "Q6_K": BlockFormat(256, 210, q6_k),
    "IQ4_NL": BlockFormat(32, 18, iq4_nl),
    "IQ4_XS": BlockFormat(256, 136, iq4_xs),
    "MXFP4": BlockFormat(32, 17, mxfp4),
}


def _half(blocks: Tensor, offset: int) -> Tensor:
    """Read the float16 at a byte offset of every block as (N, 1) float32."""
    return blocks[:, offset : offset + 2].contiguous().view(torch.float16).float()


def _shifts(*amounts: int) -> Tensor:
    return torch.tensor(amounts, dtype=torch.uint8)


def _nibbles(qs: Tensor) -> Tensor:
    """Unpack (N, 16) bytes to (N, 32): the low nibbles first, then the high ones."""
    return _halves(qs, 16).view(-1, 32)


def _halves(qs: Tensor, width: int) -> Tensor:
    """Unpack runs of width bytes to (N, runs * 2, width): low nibbles of a run, then high ones."""
    runs = torch.unflatten(qs, 1, (-1, width))
    out = torch.empty(len(qs), runs.shape[1], 2, width)
    out[:, :, 0] = runs & 15
    out[:, :, 1] = runs >> 4
    return out.view(len(qs), -1, width)


def _crumbs(qs: Tensor) -> Tensor:
    """Unpack 2-bit numbers to (N, 256): per run of 32 bytes, the lowest pairs first."""
    pairs = (torch.unflatten(qs, 1, (-1, 1, 32)) >> _shifts(0, 2, 4, 6)[:, None]) & 3
    return pairs.float().view(-1, 256)


def _bits(qh: Tensor) -> Tensor:
    """Unpack (N, 4) bytes to (N, 32) single bits, lowest first."""
    return ((qh[:, :, None] >> _shifts(*range(8))) & 1).view(-1, 32)


def _lookup(values: tuple[int, ...], qs: Tensor, width: int) -> Tensor:
    """Map nibbles through a table: (N, 2 * bytes / 32, 32) float32."""
    indices = _halves(qs, width).int().view(-1)
    table = torch.tensor(values, dtype=torch.float32)
    return table.index_select(0, indices).view(len(qs), -1, 2 * width)


def _scales_and_minima(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Unpack the twelve bytes of 6-bit numbers of Q4_K and Q5_K, times d and dmin: (N, 8, 1)."""
    d, m, high = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    sc = torch.cat([d & 63, (high & 15) | ((d >> 2) & 48)], 1)
    mn = torch.cat([m & 63, (high >> 4) | ((m >> 2) & 48)], 1)
    return (sc * _half(blocks, 0))[..., None], (mn * _half(blocks, 2))[..., None]
