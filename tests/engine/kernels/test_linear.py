"""Products of packed weights agree with dequantised weights and int16 activations."""

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
from engine.kernels.structs import Activation, Gate, Linear, Matrix, OpKind

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


def multiply(context: Context, name: str, raw: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Quantise x and multiply, both natively."""
    num_rows, columns = len(raw), x.shape[1]
    packed = context.pack(raw, int(GGMLQuantizationType[name]), (num_rows, columns))
    acts, out = QuantizedActs(len(x), columns), zeros((len(x), num_rows))
    program = Program()
    args = Gate(
        pointer(x), None, None, ctypes.pointer(acts.struct), columns, columns, Activation.NONE
    )
    program.add(OpKind.GATE, args, acts)
    entry = Matrix(pointer(packed.data), None, pointer(out), num_rows, num_rows, packed.kind)
    array = matrices([entry])
    program.add(OpKind.LINEAR, Linear(ctypes.pointer(acts.struct), array, 1), array, packed)
    ids = np.zeros(len(x), np.int32)
    context.run(program, make_step(ids, ids, ids, []))
    return out


def check(context: Context, name: str, num_rows: int, columns: int, x: np.ndarray) -> None:
    raw = random_bytes(name, num_rows, columns, seed=num_rows)
    weight = dequantize(raw, GGMLQuantizationType[name]).astype(np.float32)
    expected = twins.linear(torch.from_numpy(x), torch.from_numpy(weight)).numpy()
    size = np.abs(x).max() * np.abs(weight).max() * columns
    np.testing.assert_allclose(
        multiply(context, name, raw, x), expected, rtol=2e-3, atol=1e-4 * size
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
