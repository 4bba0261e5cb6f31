"""Layers against hand values and slow obvious forms."""

from __future__ import annotations

import math

import pytest
import torch

from engine.layers.mamba import selective_scan
from engine.layers.norm import LayerNorm, RMSNorm
from engine.layers.rope import RopeStyle, RotaryEmbedding, frequencies
from engine.layers.short_conv import causal_conv
from engine.memory.interface import BatchSlice
from engine.model_config import RopeConfig


class Cells:
    """Recurrent cells of one layer for a batch of slices."""

    def __init__(self, lengths: list[int], **cells: torch.Tensor) -> None:
        ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
        self.slices = tuple(
            BatchSlice(i, end - length, end, 0)
            for i, (length, end) in enumerate(zip(lengths, ends, strict=True))
        )
        self.cells = cells

    def read_state(self, layer, name):
        return self.cells[name]

    def write_state(self, layer, name, state):
        self.cells[name] = state


def rotate(style: RopeStyle, config: RopeConfig, x: torch.Tensor, position: int) -> torch.Tensor:
    rope = RotaryEmbedding(config, style)
    rotated = x.clone()
    rope(torch.tensor([position])).apply_(rotated)
    return rotated


@pytest.mark.parametrize(
    ("style", "pairs"),
    [(RopeStyle.INTERLEAVED, [(0, 1), (2, 3)]), (RopeStyle.NEOX, [(0, 2), (1, 3)])],
)
def test_rope_turns_pairs_by_position_times_frequency(style, pairs):
    x = torch.randn(1, 2, 6)
    found = rotate(style, RopeConfig(dim=4, theta=100.0), x, position=3)
    for (a, b), frequency in zip(pairs, (1.0, 0.1), strict=True):
        angle = 3 * frequency
        first = x[..., a] * math.cos(angle) - x[..., b] * math.sin(angle)
        second = x[..., b] * math.cos(angle) + x[..., a] * math.sin(angle)
        torch.testing.assert_close(found[..., a], first)
        torch.testing.assert_close(found[..., b], second)
    torch.testing.assert_close(found[..., 4:], x[..., 4:])


def test_rope_stays_exact_far_away():
    config = RopeConfig(dim=2, theta=10000.0)
    found = rotate(RopeStyle.NEOX, config, torch.tensor([[[1.0, 0.0]]]), position=1_000_003)
    assert float(found[0, 0, 0]) == pytest.approx(math.cos(1_000_003), abs=1e-6)


def test_linear_scaling_slows_every_pair():
    plain = frequencies(RopeConfig(dim=8, theta=100.0))
    scaled = frequencies(RopeConfig(dim=8, theta=100.0, factor=4.0))
    torch.testing.assert_close(scaled, plain / 4)


def test_yarn_keeps_fast_pairs_and_slows_slow_ones():
    config = RopeConfig(64, 10000.0, scaling="yarn", factor=8.0, original_context_length=4096)
    ratio = frequencies(RopeConfig(64, 10000.0)) / frequencies(config)
    assert float(ratio[0]) == pytest.approx(1.0)
    assert float(ratio[-1]) == pytest.approx(8.0)
    assert bool((ratio.diff() >= 0).all())


def test_factors_of_the_file_divide_frequencies():
    factors = torch.tensor([1.0, 2.0, 4.0, 8.0])
    config = RopeConfig(dim=8, theta=100.0)
    torch.testing.assert_close(frequencies(config, factors), frequencies(config) / factors.double())


def test_norms_by_hand_values():
    x = torch.tensor([[3.0, 4.0]])
    rms = RMSNorm(torch.tensor([1.0, 2.0]), 0.0)(x)
    torch.testing.assert_close(rms, torch.tensor([[3.0, 8.0]]) / math.sqrt(12.5))
    layer = LayerNorm(torch.ones(2), torch.tensor([0.0, 1.0]), 0.0)(x)
    torch.testing.assert_close(layer, torch.tensor([[-1.0, 2.0]]))


def test_convolution_of_two_slices_equals_that_of_each_alone():
    weight, x = torch.randn(4, 3), torch.randn(7, 4)
    cells = torch.randn(2, 4, 2)
    together = Cells([5, 2], conv=cells)
    found = causal_conv(x, weight, 0, together)
    for row, rows in enumerate((slice(0, 5), slice(5, 7))):
        alone = Cells([rows.stop - rows.start], conv=cells[row : row + 1])
        torch.testing.assert_close(causal_conv(x[rows], weight, 0, alone), found[rows])
        torch.testing.assert_close(alone.cells["conv"][0], together.cells["conv"][row])


def test_convolution_carries_its_history():
    weight, x = torch.randn(4, 3), torch.randn(6, 4)
    whole = causal_conv(x, weight, 0, Cells([6], conv=torch.zeros(1, 4, 2)))
    cells = Cells([1], conv=torch.zeros(1, 4, 2))
    steps = [causal_conv(x[t : t + 1], weight, 0, cells) for t in range(6)]
    torch.testing.assert_close(torch.cat(steps), whole)


def test_scan_in_two_parts_equals_one():
    x, dt = torch.randn(6, 3), torch.rand(6, 3)
    a, b, c = -torch.rand(3, 2), torch.randn(6, 2), torch.randn(6, 2)
    whole, last = selective_scan(x, dt, a, b, c, torch.zeros(3, 2))
    first, middle = selective_scan(x[:4], dt[:4], a, b[:4], c[:4], torch.zeros(3, 2))
    second, end = selective_scan(x[4:], dt[4:], a, b[4:], c[4:], middle)
    torch.testing.assert_close(torch.cat([first, second]), whole)
    torch.testing.assert_close(end, last)
