"""Norms of any kind and stride agree with their twins; so do rows that grow."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.kernels import twins
from engine.kernels.context import Context, Program, QuantizedActs, make_step
from engine.kernels.structs import Grow, OpKind, RowNorm


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def run(
    context: Context, kind: OpKind, args: ctypes.Structure, positions: list[int], rows: list[int]
) -> None:
    program = Program()
    program.add(kind, args)
    at = np.array(positions, np.int32)
    context.run(program, make_step(at, at, np.array(rows, np.int32), []))


def normalise(context: Context, x: Tensor, *, is_centered: bool, has_bias: bool) -> None:
    """Normalise a part of wider rows in place, then rows 2 and 0 of it into activations."""
    weight, bias = random(x.shape[1], seed=1), random(x.shape[1], seed=2) if has_bias else None
    bias_address = None if bias is None else bias.data_ptr()
    wide = torch.cat([torch.full((len(x), 16), 7.0), x, torch.full((len(x), 4), 7.0)], 1)
    part = wide[:, 16:-4]
    expected = twins.row_norm(x, weight, bias, 1e-5, is_centered=is_centered)
    picked = [2, 0]
    acts, out = QuantizedActs(2, x.shape[1]), torch.empty(2, x.shape[1])
    args = RowNorm(
        part.data_ptr(), weight.data_ptr(), bias_address, out.data_ptr(),
        ctypes.pointer(acts.struct), wide.shape[1], x.shape[1], x.shape[1], int(is_centered), 1e-5,
        1,
    )  # fmt: skip
    run(context, OpKind.ROW_NORM, args, [0] * len(x), picked)
    size = float(expected.abs().max())
    torch.testing.assert_close(out, expected[picked], atol=3e-6 * size, rtol=1e-5)
    assert np.abs(acts.d).max() <= 1.001 * size / 32767
    args = RowNorm(
        part.data_ptr(), weight.data_ptr(), bias_address, part.data_ptr(), None, wide.shape[1],
        wide.shape[1], x.shape[1], int(is_centered), 1e-5, 0,
    )  # fmt: skip
    run(context, OpKind.ROW_NORM, args, [0] * len(x), [])
    torch.testing.assert_close(part, expected, atol=3e-6 * size, rtol=1e-5)
    assert (wide[:, :16] == 7).all()
    assert (wide[:, -4:] == 7).all()


@pytest.mark.parametrize("is_centered", [True, False])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("width", [32, 96, 1024])
def test_rows_of_any_width(context, width, is_centered, has_bias):
    normalise(context, random(5, width, seed=width), is_centered=is_centered, has_bias=has_bias)


@pytest.mark.parametrize("scale", [0.0, 1e-6, 1e8])
def test_rows_of_any_size(context, scale):
    normalise(context, scale * random(3, 64, seed=3), is_centered=True, has_bias=True)


def test_a_large_mean_does_not_hide_the_differences(context):
    x = torch.full((3, 64), 1000.0) + torch.arange(64) % 2
    normalise(context, x, is_centered=True, has_bias=False)


def test_rows_grow_beyond_the_period(context):
    positions = [0, 1, 99, 100, 101, 5000]
    wide = random(len(positions), 80, seed=4)
    expected = wide.clone()
    expected[:, :64] = twins.grow(wide[:, :64], torch.tensor(positions), 0.1, 100)
    run(context, OpKind.GROW, Grow(wide.data_ptr(), 80, 0.1, 64, 100), positions, [])
    torch.testing.assert_close(wide, expected, atol=0, rtol=1e-6)
