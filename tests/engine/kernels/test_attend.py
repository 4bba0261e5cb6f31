"""Attention over block slabs agrees with the plain product, for every shape of batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.config import KVCodec
from engine.kernels import KernelInfo
from engine.kernels.structs import Codec
from tests.engine.kernels.attend_cases import Case, run

# What few rows are multiplied with is exact.
TOLERANCE = 5e-5
# Many rows, of one sequence or of several with a common prefix, are multiplied in int16. Of values
# near 1 the largest of a token is below 4 and has a step of 4 / 2**14, half of which an output may
# be off that is nearly one token's value.
DENSE_TOLERANCE = 3e-4


def check(case: Case, isa: KernelInfo) -> None:
    out, expected = run(case, isa)
    is_dense = case.shared > 0 or max(new for _, new in case.sequences) >= 8
    atol = DENSE_TOLERANCE if is_dense else TOLERANCE
    np.testing.assert_allclose(out, expected, atol=atol, rtol=2e-4)


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
        {"codec": Codec.BF16},
        {"skipped": 100, "window": 50},
        {"num_threads": 1},
        {"num_threads": 5},
    ],
    ids=str,
)
def test_every_kind_of_layer(isa: KernelInfo, new: int, change: dict[str, object]) -> None:
    check(replace(Case(((333, new),)), **change), isa)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"window": 300},
        {"window": 300, "block_size": 128, "num_threads": 7},
        {"soft_cap": 3.0, "has_sinks": True},
        {"size": 256, "heads": 4, "kv_heads": 1, "num_threads": 7},
    ],
    ids=str,
)
def test_few_rows_behind_many_keys(isa: KernelInfo, change: dict[str, object]) -> None:
    """Their keys are cut into spans, the last of which not all rows see."""
    check(replace(Case(((1000, 12),)), **change), isa)  # type: ignore[arg-type]


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
@pytest.mark.parametrize(("scale", "new"), [(0.0, 40), (1e-6, 40), (1e-6, 1), (2000.0, 1)])
def test_packed_blocks_of_extreme_numbers(
    isa: KernelInfo, codec: KVCodec, scale: float, new: int
) -> None:
    out, expected = run(Case(((100, new),), packed=codec, scale=scale), isa)
    np.testing.assert_allclose(out, expected, atol=1e-3 * scale, rtol=1e-3)


def test_batch_of_unequal_sequences(isa: KernelInfo) -> None:
    check(Case(((0, 1), (500, 1), (31, 3), (64, 1))), isa)


def test_decode_beside_prefill(isa: KernelInfo) -> None:
    check(Case(((200, 1), (100, 30), (7, 1))), isa)


@pytest.mark.parametrize("shared", [128, 512])
@pytest.mark.parametrize("num_sequences", [2, 4, 12])
def test_shared_prefix(isa: KernelInfo, shared: int, num_sequences: int) -> None:
    sequences = tuple((shared + 5 * i, 1) for i in range(num_sequences))
    check(Case(sequences, shared=shared), isa)
