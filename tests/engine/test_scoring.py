"""Comparing predictions: by hand values, and a format against itself and against the exact one."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

from engine.config import EngineConfig, KVCodec
from engine.engine import Engine
from engine.scoring import compare, score_codec
from tests.engine.tiny_models import write_tiny_model


def test_equal_predictions_differ_in_nothing():
    torch.manual_seed(0)
    logits = [torch.randn(4, 7), torch.randn(2, 7)]
    nll, nll_exact, top1, kl = compare([(x, x) for x in logits], [0, 1, 2, 3, 4, 5])
    assert nll == nll_exact
    assert (top1, kl) == (1.0, pytest.approx(0.0, abs=1e-7))


def test_the_numbers_are_those_calculated_by_hand():
    exact = torch.tensor([[0.75, 0.25], [0.5, 0.5]]).log()
    other = torch.tensor([[0.25, 0.75], [0.5, 0.5]]).log()
    nll, nll_exact, top1, kl = compare([(exact, other)], [0, 0, 1])
    assert nll == pytest.approx(-(math.log(0.25) + math.log(0.5)) / 2)
    assert nll_exact == pytest.approx(-(math.log(0.75) + math.log(0.5)) / 2)
    assert top1 == 0.5
    assert kl == pytest.approx((0.75 * math.log(3) + 0.25 * math.log(1 / 3)) / 2)


def test_the_last_token_predicts_nothing_that_is_known():
    logits = torch.zeros(1, 2)
    chunks = [(logits, logits)] * 3
    nll, _, _, _ = compare(chunks, [0, 1, 1])
    assert nll == pytest.approx(math.log(2))


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    path = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")
    engine = Engine.load(path, EngineConfig(block_size=16, num_threads=1))
    yield engine
    engine.unload()


@pytest.mark.parametrize("codec", [KVCodec.F16, KVCodec.INT8, KVCodec.K8V4])
def test_a_coarser_format_is_smaller_and_nearly_as_good(engine, codec):
    token_ids = engine.token_ids("The quick brown fox and the lazy dog. " * 12)[:257]
    score = score_codec(engine, codec, token_ids, chunk=16)
    assert score.num_tokens == 256
    assert score.nll == pytest.approx(score.nll_exact, rel=0.02)
    if codec is KVCodec.F16:
        assert (score.nll, score.top1) == (score.nll_exact, 1.0)
        assert score.bytes_per_token == score.exact_bytes_per_token
    else:
        assert 0.0 < score.kl < 0.01
        assert score.bytes_per_token < score.exact_bytes_per_token
        assert score.hot_bytes < score.exact_hot_bytes


def test_scoring_leaves_nothing_in_the_memory_of_conversations(engine):
    before = engine.breakdown()
    score_codec(engine, KVCodec.F16, engine.token_ids("one two three"), chunk=2)
    assert engine.breakdown() == before
