"""The seam between file bytes and torch."""

from __future__ import annotations

import pytest
import torch

from engine.gguf_file import GGMLType
from engine.quant.dequantize import dequantize
from engine.quant.linear import Compute, FusedLinear, QuantEmbedding, QuantExperts, QuantLinear
from tests.engine.quant.test_dequantize import random_bytes


def linear(rows: int, *, seed: int = 0, compute: Compute = Compute(), bias=None):  # noqa: B008
    data = random_bytes("Q4_1", (rows, 64), seed)
    return QuantLinear(data, GGMLType.Q4_1, (rows, 64), compute=compute, bias=bias)


def test_product_uses_the_dequantised_weight():
    part = linear(32, bias=torch.arange(32.0))
    x = torch.randn(3, 64)
    weight = dequantize(part.data, part.ggml_type, part.shape)
    torch.testing.assert_close(part(x), x @ weight.T + torch.arange(32.0))


def test_nothing_is_dequantised_before_it_is_used():
    part = linear(32)
    assert not part.is_materialized
    part(torch.randn(1, 64))
    assert part.is_materialized


def test_fused_parts_share_one_matrix():
    parts = [linear(32, seed=1), linear(64, seed=2, bias=torch.ones(64))]
    alone = [linear(32, seed=1), linear(64, seed=2, bias=torch.ones(64))]
    x = torch.randn(2, 64)
    fused = FusedLinear(parts)
    torch.testing.assert_close(fused(x), torch.cat([part(x) for part in alone], dim=-1))
    assert parts[1].weight.untyped_storage().data_ptr() == (
        fused.weight.untyped_storage().data_ptr()
    )


def test_materialising_one_part_materialises_the_group():
    parts = [linear(32, seed=1), linear(64, seed=2)]
    fused = FusedLinear(parts)
    parts[0].materialize()
    assert parts[1].is_materialized
    assert fused.weight.shape == (96, 64)


def test_without_room_weights_are_never_kept():
    compute = Compute(keeps_weights=False)
    parts = [linear(32, seed=1, compute=compute), linear(64, seed=2, compute=compute)]
    x = torch.randn(2, 64)
    kept = torch.cat([linear(32, seed=1)(x), linear(64, seed=2)(x)], dim=-1)
    torch.testing.assert_close(FusedLinear(parts)(x), kept)
    parts[0].materialize()
    assert not any(part.is_materialized for part in parts)


def test_embedding_returns_float32_rows():
    data = random_bytes("Q8_0", (20, 64))
    embedding = QuantEmbedding(data, GGMLType.Q8_0, (20, 64), compute=Compute())
    rows = embedding(torch.tensor([7, 7, 0]))
    expected = dequantize(data, GGMLType.Q8_0, (20, 64))[[7, 7, 0]]
    torch.testing.assert_close(rows, expected, rtol=0, atol=0)


def test_only_chosen_experts_are_dequantised():
    data = random_bytes("Q4_0", (4 * 8, 64))
    experts = QuantExperts(data, GGMLType.Q4_0, (4, 8, 64), compute=Compute())
    x = torch.randn(2, 64)
    weight = dequantize(data, GGMLType.Q4_0, (4, 8, 64))[2]
    torch.testing.assert_close(experts(x, 2), x @ weight.T)
    assert [part.is_materialized for part in experts.experts] == [False, False, True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_input_and_output_are_float32(dtype):
    assert linear(32, compute=Compute(dtype, dtype))(torch.randn(1, 64)).dtype == torch.float32
