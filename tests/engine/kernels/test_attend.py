"""Attention over block slabs agrees with the plain product, for every shape of batch."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, replace

import numpy as np
import pytest
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

DTYPES = {Codec.F16: np.float16, Codec.F32: np.float32}


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


def blocks_of(case: Case, kv: np.ndarray) -> list[np.ndarray]:
    """Cut keys and values (2, S, K, D) into slabs [K|V][head][token][size]; the rest is NaN."""
    num_blocks = -(-kv.shape[1] // case.block_size)
    shape = (2, case.kv_heads, case.block_size, case.size)
    slabs = [np.full(shape, np.nan, DTYPES[case.codec]) for _ in range(num_blocks)]
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
    slabs: list[np.ndarray] = list(blocks_of(case, kv))
    stored = kv.astype(DTYPES[case.codec]).astype(np.float32)
    flags = [0] * len(slabs)
    if case.packed is not None:
        for block in range(1, kv.shape[1] // case.block_size, 2):
            slabs[block], numbers = packed_block(case, slabs[block])
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
    keys, values = torch.from_numpy(slab.astype(np.float32))
    planes = pack_planes(case.packed, keys, values)
    packed = np.full(layout.slab_bytes, 0x7F, np.uint8)
    for plane, source in zip(layout.planes, planes, strict=True):
        data = source.contiguous().numpy().view(np.uint8).ravel()
        packed[plane.offset : plane.offset + len(data)] = data
    read = (planes[0].float() * planes[2].float(), unpack_values(case.packed, planes[1], planes[3]))
    return packed, torch.stack(read).transpose(1, 2).numpy()


def slab_of(case: Case) -> Slab:
    plane = case.kv_heads * case.block_size * case.size * np.dtype(DTYPES[case.codec]).itemsize
    rotation = Rotated.VALUES if case.is_rotated else Rotated(0)
    packed = None
    if case.packed is not None:
        offsets = [plane.offset for plane in packed_layout(case).planes]
        packed = ctypes.pointer(PackedSlab(*offsets, Codec[case.packed.name]))
    return Slab(
        0, plane, plane // case.kv_heads, 0, case.block_size, case.codec, case.window, rotation, 0,
        packed,
    )  # fmt: skip


def run(case: Case, isa: KernelInfo, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return what the kernel computes and what its twin does, (T, H, D)."""
    generator = np.random.default_rng(seed)
    rows = sum(new for _, new in case.sequences)
    q = generator.standard_normal((rows, case.heads, case.size)).astype(np.float32)
    sinks = generator.standard_normal(case.heads).astype(np.float32) if case.has_sinks else None
    prefix = generator.standard_normal((2, case.shared, case.kv_heads, case.size))
    shared = cut(case, prefix)
    expected, slices, kept, positions, start = [], [], [], [], 0
    for cached, new in case.sequences:
        shape = (2, cached + new - case.shared, case.kv_heads, case.size)
        tail = generator.standard_normal(shape) * case.scale
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


def check(case: Case, isa: KernelInfo) -> None:
    out, expected = run(case, isa)
    np.testing.assert_allclose(out, expected, atol=5e-5, rtol=2e-4)


@pytest.mark.parametrize("cached", [0, 1, 31, 32, 63, 300, 1000])
@pytest.mark.parametrize("new", [1, 5, 8, 40])
def test_one_sequence(isa: KernelInfo, cached: int, new: int) -> None:
    check(Case(((cached, new),)), isa)


@pytest.mark.parametrize("new", [1, 40])
@pytest.mark.parametrize(
    "change",
    [
        {"heads": 2, "kv_heads": 2},
        {"heads": 8, "kv_heads": 1},
        {"heads": 5, "kv_heads": 1, "size": 128},
        {"size": 80},
        {"size": 256, "heads": 4, "kv_heads": 1},
        {"block_size": 16},
        {"block_size": 128},
        {"window": 50},
        {"window": 7},
        {"soft_cap": 3.0},
        {"has_sinks": True},
        {"codec": Codec.F32},
        {"skipped": 100, "window": 50},
        {"num_threads": 1},
        {"num_threads": 5},
    ],
    ids=str,
)
def test_every_kind_of_layer(isa: KernelInfo, new: int, change: dict[str, object]) -> None:
    check(replace(Case(((333, new),)), **change), isa)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", [KVCodec.INT8, KVCodec.K8V4])
@pytest.mark.parametrize("new", [1, 5, 40])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"heads": 2, "kv_heads": 2},
        {"heads": 8, "kv_heads": 1},
        {"heads": 5, "kv_heads": 1, "size": 128},
        {"size": 96},
        {"size": 256, "heads": 4, "kv_heads": 1, "is_rotated": True},
        {"block_size": 16},
        {"block_size": 128},
        {"window": 50},
        {"window": 333},
        {"soft_cap": 3.0},
        {"has_sinks": True},
        {"is_rotated": True},
    ],
    ids=str,
)
def test_packed_blocks(
    isa: KernelInfo, codec: KVCodec, new: int, change: dict[str, object]
) -> None:
    check(replace(Case(((333, new),), packed=codec), **change), isa)  # type: ignore[arg-type]


@pytest.mark.parametrize("codec", [KVCodec.INT8, KVCodec.K8V4])
def test_packed_shared_prefix(isa: KernelInfo, codec: KVCodec) -> None:
    sequences = tuple((512 + 40 * i, 1) for i in range(12))
    check(Case(sequences, shared=512, packed=codec), isa)


@pytest.mark.parametrize("codec", [KVCodec.INT8, KVCodec.K8V4])
@pytest.mark.parametrize("scale", [0.0, 1e-6, 2000.0])
def test_packed_blocks_of_extreme_numbers(isa: KernelInfo, codec: KVCodec, scale: float) -> None:
    out, expected = run(Case(((100, 1),), packed=codec, scale=scale), isa)
    np.testing.assert_allclose(out, expected, atol=1e-3 * scale, rtol=1e-3)


def test_batch_of_unequal_sequences(isa: KernelInfo) -> None:
    check(Case(((0, 1), (500, 1), (31, 3), (64, 1))), isa)


def test_decode_beside_prefill(isa: KernelInfo) -> None:
    check(Case(((200, 1), (100, 30), (7, 1))), isa)


@pytest.mark.parametrize("shared", [128, 512])
def test_shared_prefix(isa: KernelInfo, shared: int) -> None:
    sequences = tuple((shared + 5 * i, 1) for i in range(12))
    check(Case(sequences, shared=shared), isa)


def test_large_scores_stay_finite(isa: KernelInfo) -> None:
    case = Case(((100, 1),), soft_cap=0.0, size=64)
    out, _ = run(case, isa, seed=1)
    assert np.isfinite(out).all()
