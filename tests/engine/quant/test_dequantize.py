"""Dequantisation is exact against gguf's own, on random bytes."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf.quants import dequantize as gguf_dequantize

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf_file import GGMLType
from engine.quant.dequantize import FORMATS, dequantize, dequantize_rows, tensor_bytes

HALF_OFFSETS = {
    "Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,), "Q2_K": (80, 82),
    "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,), "IQ4_NL": (0,), "IQ4_XS": (0,),
}  # fmt: skip


def random_bytes(name: str, shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    """Random blocks whose scales are finite; everything else may be any byte."""
    rng = np.random.default_rng(seed)
    block = FORMATS[name]
    count = shape[0] * shape[1] // block.block_size
    if name in ("F32", "F16", "BF16"):
        numbers = rng.standard_normal(count).astype(np.float32)
        if name == "BF16":
            return (numbers.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return numbers.astype(np.float16 if name == "F16" else np.float32).view(np.uint8)
    blocks = rng.integers(0, 256, (count, block.num_bytes), dtype=np.uint8)
    for offset in HALF_OFFSETS.get(name, ()):
        scales = rng.standard_normal((count, 1)).astype(np.float16)
        blocks[:, offset : offset + 2] = scales.view(np.uint8)
    if name == "MXFP4":
        blocks[:, 0] = rng.integers(0, 250, count, dtype=np.uint8)
    return blocks.reshape(-1)


@pytest.mark.parametrize("name", FORMATS)
def test_dequantize_equals_gguf_bit_for_bit(name):
    shape = (37, 512)
    data = random_bytes(name, shape)
    kind = gguf.GGMLQuantizationType[name]
    expected = gguf_dequantize(data.reshape(shape[0], -1), kind).reshape(shape)
    found = dequantize(data, GGMLType[name], shape)
    np.testing.assert_array_equal(found.numpy(), expected.astype(np.float32))


@pytest.mark.parametrize("name", FORMATS)
def test_rows_equal_the_whole_tensor(name):
    shape = (11, 256)
    data = random_bytes(name, shape)
    rows = torch.tensor([3, 0, 10, 3])
    whole = dequantize(data, GGMLType[name], shape)
    torch.testing.assert_close(
        dequantize_rows(data, GGMLType[name], shape, rows), whole[rows], rtol=0, atol=0
    )


def test_chunk_borders_do_not_show():
    shape = (2060, 512)
    data = random_bytes("Q4_1", shape)
    whole = dequantize(data, GGMLType.Q4_1, shape)
    last = dequantize_rows(data, GGMLType.Q4_1, shape, torch.tensor([2059]))
    torch.testing.assert_close(whole[2059:], last, rtol=0, atol=0)


def test_each_weight_is_rounded_once_to_the_wanted_type():
    data = random_bytes("Q6_K", (4, 256))
    exact = dequantize(data, GGMLType.Q6_K, (4, 256))
    found = dequantize(data, GGMLType.Q6_K, (4, 256), dtype=torch.bfloat16)
    torch.testing.assert_close(found, exact.bfloat16(), rtol=0, atol=0)


def test_unsupported_type_lists_what_is_supported():
    with pytest.raises(UnsupportedModelError, match="IQ1_S") as caught:
        tensor_bytes(GGMLType.IQ1_S, (1, 256))
    assert "Q4_K" in caught.value.detail


def test_wrong_size_is_a_model_file_error():
    with pytest.raises(ModelFileError):
        dequantize(np.zeros(17, np.uint8), GGMLType.Q8_0, (1, 32))
    with pytest.raises(ModelFileError):
        tensor_bytes(GGMLType.Q8_0, (2, 33))
