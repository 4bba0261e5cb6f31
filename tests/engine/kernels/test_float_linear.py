"""Products of float matrices agree with torch, for every type and every shape."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from engine.kernels.context import Context, Program, make_step, matrices, pointer, zeros
from engine.kernels.structs import Codec, FloatLinear, Matrix, OpKind

TYPES = {Codec.F32: torch.float32, Codec.F16: torch.float16, Codec.BF16: torch.bfloat16}


def multiply(
    context: Context,
    x: torch.Tensor,
    weights: list[torch.Tensor],
    *,
    bias: torch.Tensor | None = None,
    before: torch.Tensor | None = None,
) -> torch.Tensor:
    """Multiply with matrices side by side; x may be a part of wider rows. Returns (T, N)."""
    num_rows = sum(len(weight) for weight in weights)
    out = zeros((len(x), num_rows))
    if before is not None:
        out[:] = before.numpy()
    codecs = {dtype: codec for codec, dtype in TYPES.items()}
    entries, column = [], 0
    for weight in weights:
        entries.append(
            Matrix(
                weight.data_ptr(), None if bias is None else bias.data_ptr() + 4 * column,
                pointer(out) + 4 * column, num_rows, len(weight), codecs[weight.dtype],
                int(before is not None),
            )
        )  # fmt: skip
        column += len(weight)
    array = matrices(entries)
    args = FloatLinear(x.data_ptr(), array, x.stride(0), x.shape[1], len(weights))
    program = Program()
    program.add(OpKind.FLOAT_LINEAR, args, array)
    ids = np.zeros(len(x), np.int32)
    context.run(program, make_step(ids, ids, ids, []))
    return torch.from_numpy(out)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", TYPES.values(), ids=str)
@pytest.mark.parametrize("num_tokens", [1, 2, 3, 5, 32])
@pytest.mark.parametrize(("num_rows", "columns"), [(1, 16), (8, 4), (13, 50), (40, 256), (7, 1)])
def test_product_agrees_for_every_shape(context, dtype, num_tokens, num_rows, columns):
    x, weight = random(num_tokens, columns), random(num_rows, columns, seed=1).to(dtype)
    expected = (x.double() @ weight.double().T).float()
    torch.testing.assert_close(multiply(context, x, [weight]), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("num_tokens", [1, 7])
def test_matrices_of_several_types_lie_side_by_side(context, num_tokens):
    wide, bias, before = random(num_tokens, 96), random(30, seed=2), random(num_tokens, 30, seed=3)
    x = wide[:, 32:80]
    weights = [random(10, 48, seed=i).to(dtype) for i, dtype in enumerate(TYPES.values())]
    expected = before + bias + x @ torch.cat([weight.float() for weight in weights]).T
    found = multiply(context, x, weights, bias=bias, before=before)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("dtype", TYPES.values(), ids=str)
def test_small_and_large_weights_are_exact(context, dtype):
    """Subnormals and the largest numbers of a type come through."""
    info = torch.finfo(dtype)
    smallest = 2.0**-24 if dtype is torch.float16 else info.tiny
    weight = torch.tensor([[smallest], [-smallest], [info.max], [0.0], [-0.0]], dtype=dtype)
    x = torch.ones(4, 1)
    assert torch.equal(multiply(context, x, [weight]), weight.float().T.expand(4, 5))


def test_rows_do_not_depend_on_their_batch(context):
    x, weight = random(11, 200), random(21, 200, seed=1).half()
    whole = multiply(context, x, [weight])
    for row in range(len(x)):
        assert torch.equal(multiply(context, x[row : row + 1], [weight])[0], whole[row])
