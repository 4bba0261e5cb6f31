"""The quick output head of a real model draws what the whole one draws."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.config import EngineConfig
from engine.gguf_file import GGUFFile
from engine.kernels import available
from engine.loader import load_model
from engine.memory.factory import build_memory
from engine.model_config import ModelConfig
from engine.native_runner import NativeRunner
from engine.quant.linear import Compute

NUM_TOKENS = 200
pytestmark = pytest.mark.slow


def no_matter() -> None:
    """Let logits be overwritten."""


@pytest.mark.skipif(available() is None, reason="the native kernels are not built")
def test_greedy_tokens_and_the_forty_largest_are_the_same(gemma3_path: Path) -> None:
    file = GGUFFile.open(gemma3_path)
    config = ModelConfig.from_gguf(file)
    model = load_model(file, config, Compute(), is_lazy=True)
    memory = build_memory(config.memory_spec(b""), EngineConfig(hot_budget_bytes=100 << 20))
    runner, sequence, token = NativeRunner(model, num_threads=2), memory.create(), 2
    num_rough = 0
    for position in range(NUM_TOKENS):
        assert memory.allocate([(sequence, 1)])
        view = memory.step([(sequence, 1)])
        exact, one, forty = (
            runner.forward_last([token], [position], view, keep=no_matter, num_sure=count)[0].copy()
            for count in (0, 1, 40)
        )
        memory.commit(sequence, [token])
        num_rough += int((one != exact).sum())
        order = np.argsort(-exact, kind="stable")[:40]
        assert one.argmax() == order[0]
        assert one[order[0]] == exact[order[0]]
        np.testing.assert_array_equal(np.argsort(-forty, kind="stable")[:40], order)
        np.testing.assert_array_equal(forty[order], exact[order])
        token = int(order[position % 3])
    runner.close()
    assert num_rough > NUM_TOKENS * config.vocab_size // 2, "the quick way was never taken"
