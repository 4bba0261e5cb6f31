"""The output head looks at some bits of its weights, and is exact where that can matter."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from engine.kernels import twins
from engine.kernels.context import (
    Context,
    Program,
    QuantizedActs,
    add_head,
    make_step,
    matrices,
    pointer,
    zeros,
)
from engine.kernels.structs import Activation, Gate, Linear, Matrix, OpKind

Q8_0 = GGMLQuantizationType.Q8_0
NUM_ROWS, WIDTH = 24_007, 96


class Head:
    """One output head of Q8_0 weights, packed in parts."""

    def __init__(self, context: Context, weight: np.ndarray, most_rows: int = 16) -> None:
        self._context = context
        raw = quantize(weight, Q8_0)
        self.weight = torch.from_numpy(dequantize(raw, Q8_0).astype(np.float32))
        self._packed = context.pack(raw, int(Q8_0), weight.shape, has_parts=True)
        self._x = zeros((most_rows, weight.shape[1]))
        self._out = zeros((most_rows, len(weight)))
        self._program = self._build(QuantizedActs(most_rows, weight.shape[1]))

    def logits(self, x: np.ndarray, *, num_sure: int) -> np.ndarray:
        """Return the logits (T, V) of activations x (T, C)."""
        self._x[: len(x)] = x
        self._out[:] = np.nan
        ids = np.arange(len(x), dtype=np.int32)
        step = make_step(ids, ids, ids, [], num_sure=num_sure)
        self._context.run(self._program, step)
        return self._out[: len(x)].copy()

    def _build(self, acts: QuantizedActs) -> Program:
        program = Program()
        num_rows, width = self._packed.shape
        args = Gate(
            pointer(self._x), None, None, ctypes.pointer(acts.struct), width, width, Activation.NONE
        )
        program.add(OpKind.GATE, args, acts)
        entry = Matrix(
            pointer(self._packed.data), None, pointer(self._out), num_rows, num_rows,
            self._packed.kind,
        )  # fmt: skip
        array = matrices([entry])
        add_head(program, Linear(ctypes.pointer(acts.struct), array, 1, 1), array)
        return program


def random_weight(seed: int, rows: int = NUM_ROWS) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, WIDTH)).astype(np.float32)


def random_acts(seed: int, rows: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, WIDTH)).astype(np.float32)


def is_sure(head: Head, x: np.ndarray, num_sure: int) -> np.ndarray:
    """Check the largest logits against the exact product; return which of all are as exact."""
    exact, quick = head.logits(x, num_sure=0)[0], head.logits(x, num_sure=num_sure)[0]
    order = np.argsort(-exact, kind="stable")[:num_sure]
    np.testing.assert_array_equal(np.argsort(-quick, kind="stable")[:num_sure], order)
    np.testing.assert_array_equal(quick[order], exact[order])
    return np.asarray(quick == exact)


@pytest.mark.parametrize("num_rows", [1, 9, 250])
@pytest.mark.parametrize("num_tokens", [1, 2, 5, 13])
def test_whole_product_is_that_of_the_weights(
    context: Context, num_rows: int, num_tokens: int
) -> None:
    head, x = Head(context, random_weight(1, num_rows)), random_acts(2, num_tokens)
    expected = twins.linear(torch.from_numpy(x), head.weight)
    np.testing.assert_allclose(head.logits(x, num_sure=0), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("num_sure", [1, 8])
def test_largest_are_exact_and_the_others_near(context: Context, num_sure: int) -> None:
    head = Head(context, random_weight(3))
    for seed in range(4):
        x = random_acts(seed)
        x[0, seed] += 4.0
        same = is_sure(head, x, num_sure)
        assert same.mean() < 0.5, "the whole product was computed"
        quick = head.logits(x, num_sure=num_sure)[0]
        rough, less_rough = (
            np.abs(twins.sketch(torch.from_numpy(x), head.weight, bits=bits)[0].numpy() - quick)
            for bits in (3, 4)
        )
        tolerance = 1e-3 * float(quick.std())
        assert (np.minimum(rough, less_rough)[~same] <= tolerance).all()
        assert (rough[~same] <= tolerance).any()
        assert (less_rough[~same] <= tolerance).any()


def test_several_rows_are_exact_whatever_is_asked(context: Context) -> None:
    head, x = Head(context, random_weight(4)), random_acts(5, 3)
    whole = head.logits(x, num_sure=0)
    np.testing.assert_array_equal(head.logits(x, num_sure=1), whole)


def test_equal_rows_are_all_exact(context: Context) -> None:
    head = Head(context, np.repeat(random_weight(6, 1), NUM_ROWS, 0))
    assert is_sure(head, random_acts(7), 1).all()


@pytest.mark.parametrize("factor", [1e3, -1e3])
def test_one_huge_row_hides_nothing(context: Context, factor: float) -> None:
    weight = random_weight(8)
    weight[12_345] *= factor
    head = Head(context, weight)
    for seed in range(3):
        is_sure(head, random_acts(seed), 2)


def test_zero_activations_give_zeros(context: Context) -> None:
    head = Head(context, random_weight(9))
    assert not head.logits(np.zeros((1, WIDTH), np.float32), num_sure=1).any()


def test_weights_that_the_bound_does_not_fit_are_noticed(context: Context) -> None:
    # The low nibbles are 0 and the activations positive: rough logits are all off the same way, but
    # for the largest one, which is off the other way.
    weight = np.full((NUM_ROWS, WIDTH), 16.0, np.float32)
    weight += 16.0 * np.random.default_rng(12).integers(0, 2, weight.shape)
    weight[:, ::32] = 127.0
    weight[777] = np.where(np.arange(WIDTH) % 32 == 0, 127.0, 31.0)
    assert is_sure(Head(context, weight), np.ones((1, WIDTH), np.float32), 1).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_unusable_activations_are_not_hidden(context: Context, value: float) -> None:
    head, x = Head(context, random_weight(10)), random_acts(11)
    x[0, 40] = value
    quick, exact = head.logits(x, num_sure=1), head.logits(x, num_sure=0)
    np.testing.assert_array_equal(np.isfinite(quick), np.isfinite(exact))
