"""Products of packed weights agree with dequantised weights and int16 activations.

Rows of many sequences are multiplied with the precision of the file, those of one in fixed point.
"""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from engine.kernels import twins
from engine.kernels.context import (
    Context,
    Program,
    QuantizedActs,
    make_step,
    matrices,
    pointer,
    zeros,
)
from engine.kernels.structs import Activation, Cell, Gate, Linear, Matrix, OpKind

TYPES = (
    "Q4_0",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q4_K",
    "Q5_K",
    "Q6_K",
    "Q3_K",
    "IQ4_NL",
    "IQ4_XS",
    "MXFP4",
)


def random_bytes(name: str, rows: int, columns: int, seed: int) -> np.ndarray:
    """Return random blocks of a type whose f16 scales are small finite numbers."""
    block, size = GGML_QUANT_SIZES[GGMLQuantizationType[name]]
    generator = np.random.default_rng(seed)
    raw = generator.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    scales = generator.uniform(-0.02, 0.02, (rows, columns // block, 2)).astype(np.float16)
    if name == "MXFP4":
        raw[..., 0] = generator.integers(116, 126, raw.shape[:2])
        return np.ascontiguousarray(raw.reshape(rows, -1))
    single = dict.fromkeys(("Q4_0", "Q5_0", "Q8_0", "IQ4_NL", "IQ4_XS"), (0,))
    places = {"Q6_K": (208,), "Q3_K": (108,), **single}.get(name, (0, 2))
    for i, place in enumerate(places):
        raw[..., place : place + 2] = scales[..., i : i + 1].view(np.uint8)
    return np.ascontiguousarray(raw.reshape(rows, -1))


def multiply(
    context: Context,
    name: str,
    raw: np.ndarray,
    x: np.ndarray,
    *,
    is_read: bool = False,
    bias: np.ndarray | None = None,
    added: np.ndarray | None = None,
) -> np.ndarray:
    """Quantise x and multiply, both natively. is_read: all rows are of one sequence."""
    num_rows, columns = len(raw), x.shape[1]
    packed = context.pack(raw, int(GGMLQuantizationType[name]), (num_rows, columns))
    acts, out = QuantizedActs(len(x), columns), zeros((len(x), num_rows))
    if added is not None:
        out[:] = added
    program = Program()
    args = Gate(
        pointer(x), None, None, ctypes.pointer(acts.struct), columns, columns, Activation.NONE
    )
    program.add(OpKind.GATE, args, acts)
    bias_at = None if bias is None else pointer(bias)
    is_added = added is not None
    entry = Matrix(
        pointer(packed.data), bias_at, pointer(out), num_rows, num_rows, packed.kind, is_added
    )
    array = matrices([entry])
    program.add(OpKind.LINEAR, Linear(ctypes.pointer(acts.struct), array, 1), array, packed)
    ids = np.zeros(len(x), np.int32)
    cells = [Cell(0, len(x), None)] if is_read else []
    context.run(program, make_step(ids, ids, ids, [], cells))
    return out


def check(
    context: Context,
    name: str,
    num_rows: int,
    columns: int,
    x: np.ndarray,
    *,
    is_read: bool = False,
) -> None:
    raw = random_bytes(name, num_rows, columns, seed=num_rows)
    weight = dequantize(raw, GGMLQuantizationType[name]).astype(np.float32)
    expected = twins.linear(torch.from_numpy(x), torch.from_numpy(weight)).numpy()
    size = np.abs(x).max() * np.abs(weight).max() * columns
    atol = (5e-4 if is_read else 1e-4) * size
    np.testing.assert_allclose(
        multiply(context, name, raw, x, is_read=is_read), expected, rtol=2e-3, atol=atol
    )


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("num_tokens", [1, 2, 3, 4, 7, 8, 13, 64])
def test_product_agrees_for_any_number_of_rows(
    context: Context, name: str, num_tokens: int
) -> None:
    x = np.random.default_rng(num_tokens).standard_normal((num_tokens, 512)).astype(np.float32)
    check(context, name, 40, 512, x)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("num_rows", [1, 7, 9, 33])
def test_last_tile_may_be_narrow(context: Context, name: str, num_rows: int) -> None:
    x = np.random.default_rng(num_rows).standard_normal((3, 256)).astype(np.float32)
    check(context, name, num_rows, 256, x)


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("num_tokens", [1, 9])
def test_extreme_activations_do_not_overflow(context: Context, name: str, num_tokens: int) -> None:
    x = np.where(np.arange(512) % 3 == 0, -1e4, 1e4) * np.ones((num_tokens, 1))
    check(context, name, 16, 512, x.astype(np.float32))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
@pytest.mark.parametrize("num_tokens", [1, 9])
def test_largest_weights_do_not_overflow(context: Context, name: str, num_tokens: int) -> None:
    raw = random_bytes(name, 16, 512, seed=1).reshape(16, 16, -1)
    first = {"Q4_0": 2, "Q4_1": 4, "Q5_0": 2, "Q5_1": 4, "Q8_0": 2}[name]
    raw[..., first:] = 0x80 if name == "Q8_0" else 0xFF
    raw = raw.reshape(16, -1)
    x = np.full((num_tokens, 512), 3.0, np.float32)
    weight = dequantize(raw, GGMLQuantizationType[name]).astype(np.float32)
    expected = twins.linear(torch.from_numpy(x), torch.from_numpy(weight)).numpy()
    np.testing.assert_allclose(multiply(context, name, raw, x), expected, rtol=1e-3, atol=1e-2)


def test_zero_activations_give_zero(context: Context) -> None:
    raw = random_bytes("Q4_1", 16, 64, seed=2)
    assert not multiply(context, "Q4_1", raw, np.zeros((2, 64), np.float32)).any()


@pytest.mark.parametrize("name", ["Q4_1", "Q5_K", "Q6_K", "Q8_0"])
@pytest.mark.parametrize("num_tokens", [6, 13, 30])
def test_rows_do_not_depend_on_their_batch(context: Context, name: str, num_tokens: int) -> None:
    raw = random_bytes(name, 72, 256, seed=3)
    x = np.random.default_rng(0).standard_normal((num_tokens, 256)).astype(np.float32)
    whole = multiply(context, name, raw, x)
    for row in range(num_tokens):
        alone = multiply(context, name, raw, np.ascontiguousarray(x[row : row + 1]))
        np.testing.assert_array_equal(whole[row], alone[0])


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(
    ("num_tokens", "num_rows", "columns"), [(8, 24, 256), (13, 41, 512), (64, 80, 1024)]
)
def test_what_is_read_agrees(
    context: Context, name: str, num_tokens: int, num_rows: int, columns: int
) -> None:
    x = np.random.default_rng(columns).standard_normal((num_tokens, columns)).astype(np.float32)
    check(context, name, num_rows, columns, x, is_read=True)


@pytest.mark.parametrize("name", ["Q4_1", "Q6_K", "Q8_0"])
def test_fixed_point_is_off_by_parts_of_a_thousand(context: Context, name: str) -> None:
    raw = random_bytes(name, 96, 768, seed=5)
    x = np.random.default_rng(6).standard_normal((32, 768)).astype(np.float32)
    weight = dequantize(raw, GGMLQuantizationType[name]).astype(np.float32)
    exact = x @ weight.T
    off = multiply(context, name, raw, x, is_read=True) - exact
    assert np.abs(off).max() > 0
    assert np.sqrt(np.mean(off**2)) < 2e-3 * np.sqrt(np.mean(exact**2))


@pytest.mark.parametrize("name", TYPES)
def test_reading_extremes_does_not_overflow(context: Context, name: str) -> None:
    signs = np.where(np.arange(512) % 3 == 0, -1e4, 1e4) * np.ones((9, 1))
    check(context, name, 16, 512, signs.astype(np.float32), is_read=True)
    check(context, name, 16, 512, np.full((9, 512), 1e4, np.float32), is_read=True)


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_the_largest_sums_are_exact(context: Context, name: str) -> None:
    raw = random_bytes(name, 48, 768, seed=1).reshape(48, 24, -1)
    first = {"Q4_0": 2, "Q4_1": 4, "Q5_0": 2, "Q5_1": 4, "Q8_0": 2}[name]
    raw[..., first:] = {"Q8_0": 0x80, "Q4_0": 0x00, "Q5_0": 0x00}.get(name, 0xFF)
    raw[..., :first] = raw[:1, :1, :first]
    raw = raw.reshape(48, -1)
    x = np.full((12, 768), 3.0, np.float32)
    expected = x @ dequantize(raw, GGMLQuantizationType[name]).astype(np.float32).T
    np.testing.assert_allclose(
        multiply(context, name, raw, x, is_read=True), expected, rtol=1e-3, atol=1e-3
    )


def test_reading_adds_to_what_is_there_and_the_bias(context: Context) -> None:
    generator = np.random.default_rng(7)
    raw = random_bytes("Q4_1", 50, 512, seed=8)
    x = generator.standard_normal((11, 512)).astype(np.float32)
    bias = generator.standard_normal(50).astype(np.float32)
    added = generator.standard_normal((11, 50)).astype(np.float32)
    plain = multiply(context, "Q4_1", raw, x, is_read=True)
    both = multiply(context, "Q4_1", raw, x, is_read=True, bias=bias, added=added)
    np.testing.assert_allclose(both, plain + bias + added, rtol=1e-5, atol=1e-5)
    without_bias = multiply(context, "Q4_1", raw, x, is_read=True, added=added)
    np.testing.assert_allclose(without_bias, plain + added, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["Q4_1", "Q6_K", "Q8_0"])
def test_rows_that_are_read_do_not_depend_on_their_batch(context: Context, name: str) -> None:
    raw = random_bytes(name, 56, 768, seed=3)
    x = np.random.default_rng(0).standard_normal((29, 768)).astype(np.float32)
    whole = multiply(context, name, raw, x, is_read=True)
    for first in (0, 3, 10, 21):
        part = np.ascontiguousarray(x[first : first + 8])
        np.testing.assert_array_equal(
            multiply(context, name, raw, part, is_read=True), whole[first : first + 8]
        )


def test_reading_zeros_gives_zero(context: Context) -> None:
    raw = random_bytes("Q4_1", 16, 64, seed=2)
    assert not multiply(context, "Q4_1", raw, np.zeros((9, 64), np.float32), is_read=True).any()
    raw[:] = 0
    assert not multiply(context, "Q4_1", raw, np.ones((9, 64), np.float32), is_read=True).any()


def test_rows_that_are_not_numbers_stay_alone(context: Context) -> None:
    raw = random_bytes("Q4_1", 24, 256, seed=3)
    x = np.random.default_rng(0).standard_normal((12, 256)).astype(np.float32)
    expected = multiply(context, "Q4_1", raw, x, is_read=True)
    x[5, 17] = np.nan
    read = multiply(context, "Q4_1", raw, x, is_read=True)
    np.testing.assert_array_equal(np.delete(read, 5, 0), np.delete(expected, 5, 0))
