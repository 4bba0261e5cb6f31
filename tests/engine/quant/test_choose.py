"""The choice of number type: measured once, remembered, adapted to memory."""

from __future__ import annotations

import pytest
import torch

from engine.quant import choose
from engine.quant.choose import Timing, choose_compute, fit_compute
from engine.quant.linear import Compute


def measured_as(monkeypatch, prefill: Timing, decode: Timing) -> list[int]:
    calls: list[int] = []

    def measure():
        calls.append(1)
        return prefill, decode

    monkeypatch.setattr(choose, "measure", measure)
    return calls


def test_forced_type_needs_no_measurement(monkeypatch):
    calls = measured_as(monkeypatch, Timing(1, 2), Timing(1, 2))
    assert choose_compute("bfloat16", "cpu").dtype == torch.bfloat16
    assert choose_compute("float32", "cpu").head_dtype == torch.float32
    assert not calls


def test_faster_type_wins_for_layers_and_head(monkeypatch):
    measured_as(monkeypatch, Timing(10, 50), Timing(10, 5))
    compute = choose_compute("auto", "cpu")
    assert (compute.dtype, compute.head_dtype) == (torch.float32, torch.bfloat16)


def test_a_small_gain_does_not_cost_precision(monkeypatch):
    measured_as(monkeypatch, Timing(10, 9.5), Timing(10, 9.5))
    assert choose_compute("auto", "cpu").dtype == torch.float32


def test_measurement_is_remembered(monkeypatch, tmp_path):
    calls = measured_as(monkeypatch, Timing(10, 1), Timing(10, 1))
    first = choose_compute("auto", "cpu", tmp_path)
    second = choose_compute("auto", "cpu", tmp_path)
    assert first == second
    assert len(calls) == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", "not json", '{"x": 3}'])
def test_unreadable_memory_is_measured_again(monkeypatch, tmp_path, text):
    calls = measured_as(monkeypatch, Timing(10, 1), Timing(10, 1))
    (tmp_path / choose.CACHE_NAME).write_text(text, encoding="utf-8")
    choose_compute("auto", "cpu", tmp_path)
    assert len(calls) == 1


def test_unknown_word_is_refused():
    with pytest.raises(ValueError, match="int3"):
        choose_compute("int3", "cpu")


def test_weights_shrink_with_the_memory_there_is():
    assert fit_compute(Compute(), 1000, 10_000) == Compute()
    assert fit_compute(Compute(), 1000, 3000).dtype == torch.bfloat16
    assert not fit_compute(Compute(), 1000, 2000).keeps_weights
