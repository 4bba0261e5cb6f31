"""Convolutions and scans agree with their twins, and leave the same state behind."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from torch import Tensor

from engine.kernels import twins
from engine.kernels.context import Context, Program, QuantizedActs, make_step
from engine.kernels.structs import Activation, Cell, Conv, OpKind, Scan

BATCHES = ([1], [5], [1, 1, 1], [2, 30, 1])


def random(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def run(context: Context, kind: OpKind, args: ctypes.Structure, sizes: list[int], cells: Tensor):
    """Run one operation over sequences of these sizes. cells: (sequences, numbers), changed."""
    program = Program()
    program.add(kind, args)
    ends = np.cumsum(sizes).tolist()
    entries = [
        Cell(end - size, end, cell.data_ptr())
        for size, end, cell in zip(sizes, ends, cells, strict=True)
    ]
    ids = np.zeros(sum(sizes), np.int32)
    context.run(program, make_step(ids, ids, ids, [], entries))


def quantised(acts: QuantizedActs, like: Tensor) -> Tensor:
    """Return what the integers of acts say; of every four columns the middle two are swapped."""
    q = torch.from_numpy(acts.q).view(len(like), -1, 4)[..., [0, 2, 1, 3]].reshape(like.shape)
    return twins.dequantize_acts(q, torch.from_numpy(acts.d))


def convolve(context: Context, sizes: list[int], channels: int, taps: int, scale: float) -> None:
    """Run a gated convolution at an offset of a wider cell and compare."""
    rows, past = sum(sizes), taps - 1
    projected = scale * random(rows, 3 * channels, seed=1)
    weight, bias = random(channels, taps, seed=2), random(channels, seed=3)
    cells = scale * random(len(sizes), channels * past + 32, seed=4)
    gate_in, gate_out, x = projected.split(channels, 1)
    expected, states, expected_cells = [], cells[:, 16 : 16 + channels * past], cells.clone()
    for row, part in enumerate((gate_in * x).split(sizes)):
        y, state = twins.short_conv(part, weight, states[row].view(channels, past))
        expected.append(y + bias)
        expected_cells[row, 16 : 16 + channels * past] = state.flatten()
    wanted = gate_out * torch.nn.functional.silu(torch.cat(expected))
    acts, out = QuantizedActs(rows, channels), torch.empty(rows, channels)
    turned = weight.T.contiguous()
    args = Conv(
        x.data_ptr(), gate_in.data_ptr(), gate_out.data_ptr(), turned.data_ptr(), bias.data_ptr(),
        out.data_ptr(), ctypes.pointer(acts.struct), 3 * channels, 16, channels, taps,
        Activation.SILU,
    )  # fmt: skip
    run(context, OpKind.CONV, args, sizes, cells)
    size = float(wanted.abs().max())
    torch.testing.assert_close(out, wanted, atol=1e-6 * size, rtol=1e-5)
    torch.testing.assert_close(quantised(acts, out), out, atol=2e-5 * size, rtol=0)
    assert torch.equal(cells, expected_cells)


@pytest.mark.parametrize("sizes", BATCHES, ids=str)
@pytest.mark.parametrize(("channels", "taps"), [(32, 2), (64, 3), (160, 4), (256, 8)])
def test_convolution(context, sizes, channels, taps):
    convolve(context, sizes, channels, taps, scale=1.0)


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e5])
def test_convolution_of_numbers_of_any_size(context, scale):
    convolve(context, [3, 9], 64, 3, scale)


def scan(context: Context, sizes: list[int], channels: int, num_states: int, dt: Tensor) -> None:
    """Run a scan and compare. dt: (T, channels)."""
    rows, size = sum(sizes), channels * num_states
    u, z, d = (
        random(rows, channels, seed=1),
        random(rows, channels, seed=2),
        random(channels, seed=3),
    )
    a = -torch.exp(random(channels, num_states, seed=4))
    bc = random(rows, 5 + 2 * num_states, seed=5)
    b, c = bc[:, 5 : 5 + num_states], bc[:, 5 + num_states :]
    cells = random(len(sizes), size + 16, seed=6)
    expected, expected_cells, start = [], cells.clone(), 0
    for row, length in enumerate(sizes):
        part = slice(start, start + length)
        before = cells[row, 16:].view(channels, num_states)
        y, state = twins.scan(u[part], dt[part], a, b[part], c[part], before)
        expected.append(y)
        expected_cells[row, 16:] = state.flatten()
        start += length
    wanted = (torch.cat(expected) + d * u) * torch.nn.functional.silu(z)
    acts, out, turned = QuantizedActs(rows, channels), torch.empty(rows, channels), a.T.contiguous()
    args = Scan(
        u.data_ptr(), dt.data_ptr(), b.data_ptr(), c.data_ptr(), z.data_ptr(), turned.data_ptr(),
        d.data_ptr(), out.data_ptr(), ctypes.pointer(acts.struct), bc.shape[1], channels, 16,
        channels, num_states,
    )  # fmt: skip
    run(context, OpKind.SCAN, args, sizes, cells)
    largest = float(wanted.abs().max())
    torch.testing.assert_close(out, wanted, atol=3e-6 * largest, rtol=2e-5)
    torch.testing.assert_close(cells, expected_cells, atol=1e-5, rtol=2e-5)
    torch.testing.assert_close(quantised(acts, out), out, atol=2e-5 * largest, rtol=0)


@pytest.mark.parametrize("sizes", BATCHES, ids=str)
@pytest.mark.parametrize(("channels", "num_states"), [(32, 1), (64, 16), (96, 7), (128, 64)])
def test_scan(context, sizes, channels, num_states):
    scan(context, sizes, channels, num_states, random(sum(sizes), channels, seed=7))


@pytest.mark.parametrize("step", [-200.0, -30.0, -1e-3, 0.0, 20.0, 40.0, 1000.0])
def test_scan_with_steps_of_any_size(context, step):
    """Steps of nothing keep the state, long ones forget it."""
    scan(context, [2, 6], 64, 16, torch.full((8, 64), step))
