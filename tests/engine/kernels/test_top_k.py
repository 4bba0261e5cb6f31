"""The largest logits of a row: what a full sort says, for every length and every k."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.kernels import KernelInfo
from engine.kernels.top_k import TopK


def by_sorting(row: torch.Tensor, k: int) -> tuple[list[float], list[int]]:
    """Return the k largest, of equals the first."""
    order = np.lexsort((np.arange(len(row)), -row.numpy()))[:k]
    return row.numpy()[order].tolist(), order.tolist()


def check(isa: KernelInfo, row: torch.Tensor, k: int) -> None:
    assert TopK(k, isa).of(row.numpy()) == by_sorting(row, k)


def random(size: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", [1, 31, 32, 33, 320, 1000, 49152, 49157])
def test_any_length(isa, size):
    for k in {1, min(size, 7), min(size, 40), min(size, 1024), size // 2 + 1}:
        check(isa, random(size, seed=size), k)


def test_equal_numbers_keep_their_order(isa):
    check(isa, torch.zeros(500), 40)
    check(isa, random(5000).mul(2).round(), 200)


def test_largest_numbers_in_one_place(isa):
    """Only few blocks hold any of them, or every one of them is in its own."""
    row = random(10_000)
    row[9_970:] += 100
    check(isa, row, 40)
    row = random(3200)
    row[::32] += 100
    check(isa, row, 100)


def test_large_and_small_numbers(isa):
    row = random(400) * 5e37
    row[7], row[8], row[9] = 3e38, -3e38, 1e-45
    check(isa, row, 100)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("place", [0, 70, 99])
def test_rows_that_are_no_numbers_are_refused(isa, value, place):
    row = random(100)
    row[place] = value
    assert TopK(5, isa).of(row.numpy()) is None


def test_a_column_of_a_table(isa):
    table = random(4 * 600).view(600, 4)
    check(isa, table[:, 1], 9)
