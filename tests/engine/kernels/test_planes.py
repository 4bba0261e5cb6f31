"""A block packed by the kernels has the bytes that torch gives it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.config import KVCodec
from engine.kernels import KernelInfo
from engine.kernels.context import pointer
from engine.kernels.planes import pack_plane
from engine.kernels.structs import PlanePack
from engine.memory.quantize import pack_planes

LAYERS, ROWS = 2, 24


def numbers_like(kind: str, width: int) -> np.ndarray:
    """Return (LAYERS, ROWS, width) float16."""
    generator = np.random.default_rng(0)
    numbers = generator.standard_normal((LAYERS, ROWS, width))
    if kind == "zeros":
        numbers[:] = 0
    if kind == "ties":
        numbers = generator.integers(-127, 128, numbers.shape) / 2
        numbers[..., ::32] = 63.5
    if kind == "extremes":
        numbers *= 10.0 ** generator.integers(-7, 5, (LAYERS, ROWS, 1))
        numbers[0, 0, 0], numbers[0, 1, 1] = 65504, -65504
    return np.clip(numbers, -65504, 65504).astype(np.float16)


def packed(isa: KernelInfo, numbers: np.ndarray, *, has_nibbles: bool) -> tuple[np.ndarray, ...]:
    """Return the bytes and float16 scales of every layer, both with room to spare between."""
    width = numbers.shape[-1]
    out_bytes, scales = (width // 2, width // 32) if has_nibbles else (width, 1)
    out = np.zeros((LAYERS, ROWS + 1, out_bytes), np.uint8)
    scale = np.zeros((LAYERS, ROWS + 2, scales), np.float16)
    args = PlanePack(
        pointer(numbers), pointer(out), pointer(scale), numbers.strides[0], out.strides[0],
        scale.strides[0], LAYERS, ROWS, width, int(has_nibbles),
    )  # fmt: skip
    pack_plane(isa, args)
    assert not out[:, ROWS:].any()
    assert not scale[:, ROWS:].any()
    return out[:, :ROWS], scale[:, :ROWS]


@pytest.mark.parametrize("kind", ["normal", "zeros", "ties", "extremes"])
@pytest.mark.parametrize("width", [32, 64, 96, 256])
def test_bytes_are_those_of_torch(isa: KernelInfo, width: int, kind: str) -> None:
    numbers = numbers_like(kind, width)
    tensor = torch.from_numpy(numbers)
    planes = pack_planes(KVCodec.K8V4, tensor, tensor)
    for at, has_nibbles in ((0, False), (1, True)):
        out, scale = packed(isa, numbers, has_nibbles=has_nibbles)
        assert np.array_equal(out.view(planes[at].numpy().dtype), planes[at].numpy())
        assert np.array_equal(scale, planes[at + 2].numpy())
