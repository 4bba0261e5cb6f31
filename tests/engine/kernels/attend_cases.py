"""Batches over block slabs for tests of attention: what the kernel and its twin make of them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np
import torch

from engine.config import KVCodec
from engine.kernels import KernelInfo, twins
from engine.kernels.context import Context, Limits, Program, make_step, pointer, zeros
from engine.kernels.structs import (
    Attend,
    Codec,
    GroupShape,
    OpKind,
    PackedSlab,
    Rotated,
    Slab,
    Slice,
)
from engine.memory.codec import BlockLayout
from engine.memory.interface import AttentionGroup
from engine.memory.quantize import hadamard, pack_planes, rotate, unpack_values

DTYPES = {Codec.F16: torch.float16, Codec.BF16: torch.bfloat16, Codec.F32: torch.float32}


@dataclass(frozen=True)
class Case:
    """One batch: the cached tokens and the new ones of every sequence.

    skipped: tokens that were left out, by which positions are ahead of places. packed: codec of
    every second full block but the first. is_rotated: values are stored rotated.
    """

    sequences: tuple[tuple[int, int], ...]
    heads: int = 6
    kv_heads: int = 2
    size: int = 64
    block_size: int = 32
    window: int = 0
    soft_cap: float = 0.0
    has_sinks: bool = False
    codec: Codec = Codec.F16
    shared: int = 0
    num_threads: int = 2
    skipped: int = 0
    packed: KVCodec | None = None
    is_rotated: bool = False
    scale: float = 1.0


def rounded(case: Case, x: np.ndarray) -> np.ndarray:
    """Return what is left of numbers when they are stored exactly, float32."""
    return torch.from_numpy(x).to(DTYPES[case.codec]).float().numpy()


def encoded(case: Case, x: np.ndarray) -> np.ndarray:
    """Return the bytes of numbers as they are stored."""
    return torch.from_numpy(x).to(DTYPES[case.codec]).view(torch.uint8).numpy()


def blocks_of(case: Case, kv: np.ndarray) -> list[np.ndarray]:
    """Cut keys and values (2, S, K, D) into slabs [K|V][head][token][size]; the rest is NaN."""
    num_blocks = -(-kv.shape[1] // case.block_size)
    shape = (2, case.kv_heads, case.block_size, case.size)
    slabs = [np.full(shape, np.nan, np.float32) for _ in range(num_blocks)]
    for block, slab in enumerate(slabs):
        part = kv[:, block * case.block_size : (block + 1) * case.block_size]
        slab[:, :, : part.shape[1]] = part.transpose(0, 2, 1, 3)
    return slabs


@dataclass
class Blocks:
    """Slabs, whether each is packed, and what its numbers are once they are read."""

    slabs: list[np.ndarray]
    is_packed: list[int]
    stored: np.ndarray

    def __add__(self, other: Blocks) -> Blocks:
        return Blocks(
            self.slabs + other.slabs,
            self.is_packed + other.is_packed,
            np.concatenate([self.stored, other.stored], 1),
        )


def cut(case: Case, kv: np.ndarray) -> Blocks:
    """Return the blocks of keys and values (2, S, K, D)."""
    exact = [rounded(case, slab) for slab in blocks_of(case, kv)]
    slabs = [encoded(case, slab) for slab in exact]
    stored = rounded(case, kv)
    flags = [0] * len(slabs)
    if case.packed is not None:
        for block in range(1, kv.shape[1] // case.block_size, 2):
            slabs[block], numbers = packed_block(case, exact[block])
            stored[:, block * case.block_size : (block + 1) * case.block_size] = numbers
            flags[block] = 1
    return Blocks(slabs, flags, stored)


def packed_layout(case: Case) -> BlockLayout:
    assert case.packed is not None
    group = AttentionGroup((0,), case.kv_heads, case.size)
    return BlockLayout.of(group, case.packed, case.block_size)


def packed_block(case: Case, slab: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an exact slab packed, and the numbers (2, tokens, K, D) that are left of it."""
    assert case.packed is not None
    layout = packed_layout(case)
    keys, values = torch.from_numpy(slab)
    planes = pack_planes(case.packed, keys, values)
    packed = np.full(layout.slab_bytes, 0x7F, np.uint8)
    for plane, source in zip(layout.planes, planes, strict=True):
        data = source.contiguous().numpy().view(np.uint8).ravel()
        packed[plane.offset : plane.offset + len(data)] = data
    read = (planes[0].float() * planes[2].float(), unpack_values(case.packed, planes[1], planes[3]))
    return packed, torch.stack(read).transpose(1, 2).numpy()


def slab_of(case: Case) -> Slab:
    plane = case.kv_heads * case.block_size * case.size * DTYPES[case.codec].itemsize
    rotation = Rotated.VALUES if case.is_rotated else Rotated(0)
    packed = None
    if case.packed is not None:
        offsets = [plane.offset for plane in packed_layout(case).planes]
        packed = ctypes.pointer(PackedSlab(*offsets, Codec[case.packed.name]))
    return Slab(
        0, plane, plane // case.kv_heads, 0, case.block_size, case.codec, case.window, rotation, 0,
        packed,
    )  # fmt: skip


@dataclass
class Numbers:
    """What a case computes with. q: (T, H, D). prefix and tails, one per sequence: (2, S, K, D)."""

    q: np.ndarray
    sinks: np.ndarray | None
    prefix: np.ndarray
    tails: list[np.ndarray]


def numbers_of(case: Case, seed: int = 0) -> Numbers:
    """Return random numbers, the queries scaled as models do."""
    generator = np.random.default_rng(seed)
    rows = sum(new for _, new in case.sequences)
    q = generator.standard_normal((rows, case.heads, case.size)) * case.size**-0.5
    sinks = generator.standard_normal(case.heads).astype(np.float32) if case.has_sinks else None
    prefix = generator.standard_normal((2, case.shared, case.kv_heads, case.size))
    tails = [
        generator.standard_normal((2, cached + new - case.shared, case.kv_heads, case.size))
        for cached, new in case.sequences
    ]
    return Numbers(q.astype(np.float32), sinks, prefix, [case.scale * tail for tail in tails])


def run(
    case: Case, isa: KernelInfo, numbers: Numbers | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the kernel computes and what its twin does, (T, H, D)."""
    numbers = numbers or numbers_of(case)
    q, sinks = numbers.q, numbers.sinks
    shared = cut(case, numbers.prefix)
    expected, slices, kept, positions, start = [], [], [], [], 0
    for (cached, new), tail in zip(case.sequences, numbers.tails, strict=True):
        blocks = shared + cut(case, tail)
        addresses = np.array([slab.ctypes.data for slab in blocks.slabs], np.int64)
        flags = np.array(blocks.is_packed, np.uint8)
        slices.append(
            Slice(start, start + new, cached, len(flags), pointer(addresses), pointer(flags))
        )
        kept.append((blocks, addresses, flags))
        k, v = torch.from_numpy(blocks.stored)
        expected.append(
            twins.attend(
                torch.from_numpy(q[start : start + new]), k, v, cached,
                window=case.window or None, soft_cap=case.soft_cap,
                sinks=None if sinks is None else torch.from_numpy(sinks),
            )
        )  # fmt: skip
        positions += range(case.skipped + cached, case.skipped + cached + new)
        start += new
    out = attend(case, isa, q, sinks, slices, positions)
    assert kept
    result = torch.cat(expected)
    return out, (rotate(result, hadamard(case.size)) if case.is_rotated else result).numpy()


def attend(
    case: Case,
    isa: KernelInfo,
    q: np.ndarray,
    sinks: np.ndarray | None,
    slices: list[Slice],
    positions: list[int],
) -> np.ndarray:
    slab = slab_of(case)
    out = zeros((len(q), case.heads, case.size))
    args = Attend(
        pointer(q), None if sinks is None else pointer(sinks), ctypes.pointer(slab), pointer(out),
        None, case.heads * case.size, case.heads, case.kv_heads, case.size, case.soft_cap,
    )  # fmt: skip
    program = Program()
    program.add(OpKind.ATTEND, args, slab)
    program.add(OpKind.MERGE, args)
    limits = Limits(max(len(q), 1), 64, case.heads, case.size)
    shapes = [GroupShape(case.kv_heads, case.block_size, case.window)]
    context = Context(limits, num_threads=case.num_threads, groups=shapes, info=isa)
    at = np.array(positions, np.int32)
    context.run(program, make_step(at, at, at, [(Slice * len(slices))(*slices)]))
    context.close()
    return out
