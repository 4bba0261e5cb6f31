"""Attention of many query rows in int16: accurate whatever the numbers, and for each row alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from engine.config import KVCodec
from engine.kernels import KernelInfo
from engine.kernels.structs import Codec
from tests.engine.kernels.attend_cases import Case, Numbers, numbers_of, run

# Half a step of values below 4 is 1.2e-4; weights that are far from equal err by more.
TOLERANCE = 5e-4
LONG = Case(((4000, 24),), heads=1, kv_heads=1)


def worst(case: Case, isa: KernelInfo, numbers: Numbers) -> float:
    """Return the largest error of an output."""
    out, expected = run(case, isa, numbers)
    assert np.isfinite(out).all()
    return float(np.abs(out - expected).max())


def towards(numbers: Numbers, key: int, score: float) -> None:
    """Give every query the same score with one key, on top of what it has."""
    direction = np.zeros(numbers.q.shape[-1])
    direction[0] = 1.0
    numbers.q[..., 0] = 1.0
    numbers.tails[0][0, key] = score * direction


@pytest.mark.parametrize("size_of_value", [1.0, 1e-4])
@pytest.mark.parametrize("score", [9.0, 14.0])
def test_a_key_that_takes_most_of_the_weight_leaves_the_rest_theirs(
    isa: KernelInfo, score: float, size_of_value: float
) -> None:
    numbers = numbers_of(LONG)
    towards(numbers, 0, score)
    numbers.tails[0][1, 0] *= size_of_value
    assert worst(LONG, isa, numbers) < TOLERANCE


def test_a_key_that_takes_most_of_the_weight_may_come_last(isa: KernelInfo) -> None:
    numbers = numbers_of(LONG)
    towards(numbers, 3990, 12.0)
    assert worst(LONG, isa, numbers) < TOLERANCE


def test_equal_scores_give_the_mean(isa: KernelInfo) -> None:
    numbers = numbers_of(LONG)
    numbers.q[:] = 0.0
    assert worst(LONG, isa, numbers) < 2e-5


def test_one_number_of_a_key_may_be_far_larger_than_the_others(isa: KernelInfo) -> None:
    numbers = numbers_of(LONG)
    numbers.tails[0][0, :, :, 5] = 100.0
    assert worst(LONG, isa, numbers) < TOLERANCE


def test_huge_keys_beside_tiny_ones(isa: KernelInfo) -> None:
    case = replace(LONG, codec=Codec.F32)
    numbers = numbers_of(case)
    numbers.tails[0][0, ::2] *= 1000.0
    numbers.tails[0][0, 1::2] *= 1e-3
    numbers.q *= 1e-3
    assert worst(case, isa, numbers) < TOLERANCE


def test_huge_values_beside_tiny_ones(isa: KernelInfo) -> None:
    case = replace(LONG, codec=Codec.F32)
    numbers = numbers_of(case)
    numbers.tails[0][1, ::2] *= 1000.0
    numbers.tails[0][1, 1::2] *= 1e-3
    assert worst(case, isa, numbers) < TOLERANCE * 1000.0


@pytest.mark.parametrize("packed", [None, KVCodec.INT8, KVCodec.K8V4])
@pytest.mark.parametrize("size", [64, 256])
def test_sums_do_not_overflow(isa: KernelInfo, size: int, packed: KVCodec | None) -> None:
    case = Case(((300, 20),), heads=2, kv_heads=1, size=size, packed=packed)
    numbers = numbers_of(case)
    keys, values = numbers.tails[0]
    numbers.q[:], keys[:], values[:] = 0.01, 3.0, 1000.0
    assert worst(case, isa, numbers) < 0.5
    keys[::2] = -3.0
    numbers.q[::2] = -0.01
    assert worst(case, isa, numbers) < 0.5


def test_scores_far_apart_stay_finite(isa: KernelInfo) -> None:
    case = replace(LONG, sequences=((300, 20),))
    numbers = numbers_of(case)
    numbers.q *= 1000.0
    out, _ = run(case, isa, numbers)
    assert np.isfinite(out).all()
    assert np.abs(out).max() < np.abs(numbers.tails[0][1]).max() + 1e-2


@pytest.mark.parametrize("plane", [0, 1])
def test_what_is_not_finite_is_seen(isa: KernelInfo, plane: int) -> None:
    case = Case(((100, 20),), heads=2, kv_heads=1)
    numbers = numbers_of(case)
    numbers.tails[0][plane, 50, :, 3] = 1e30
    out, _ = run(case, isa, numbers)
    assert not np.isfinite(out).any()


@pytest.mark.parametrize(
    "change",
    [{}, {"window": 150}, {"packed": KVCodec.INT8}, {"soft_cap": 3.0, "has_sinks": True}],
    ids=str,
)
def test_a_row_has_the_bits_it_has_in_any_other_batch(
    isa: KernelInfo, change: dict[str, object]
) -> None:
    """Nor does the number of threads matter, by which rows are cut into tiles."""
    case = replace(Case(((301, 140),)), **change)  # type: ignore[arg-type]
    numbers = numbers_of(case)
    whole, _ = run(replace(case, num_threads=1), isa, numbers)
    for num_threads in (2, 7):
        assert np.array_equal(run(replace(case, num_threads=num_threads), isa, numbers)[0], whole)
    later = replace(case, sequences=((301 + 45, 140 - 45),))
    part, _ = run(later, isa, replace(numbers, q=numbers.q[45:]))
    assert np.array_equal(part, whole[45:])
