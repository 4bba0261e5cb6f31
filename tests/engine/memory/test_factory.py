"""How many tokens a block has where nobody says so."""

from __future__ import annotations

import pytest

from engine.config import EngineConfig, KVCodec
from engine.memory.factory import block_size_of, build_memory
from engine.memory.interface import AttentionGroup, MemorySpec, RecurrentState

# As in SmolLM2 135M and Gemma 3 270M.
SMOLLM2 = (AttentionGroup(tuple(range(30)), 3, 64),)
FULL, OTHERS = (5, 11, 17), tuple(i for i in range(18) if i % 6 != 5)
GEMMA = (AttentionGroup(FULL, 1, 256), AttentionGroup(OTHERS, 1, 256, window=512))
STATE = RecurrentState((0,), (("ssm", (16, 16)),))


def spec_of(groups=(), recurrent=None):
    return MemorySpec(b"model", groups, recurrent)


@pytest.mark.parametrize(
    ("groups", "codec", "expected"),
    [
        (SMOLLM2, KVCodec.F16, 32),
        (SMOLLM2, KVCodec.INT8, 32),
        (GEMMA, KVCodec.F16, 32),
        (GEMMA, KVCodec.INT8, 64),  # the three full layers take 50 KB in 32 tokens
        (GEMMA, KVCodec.K8V4, 64),
    ],
)
def test_blocks_of_few_bytes_have_more_tokens(groups, codec, expected):
    assert block_size_of(spec_of(groups), EngineConfig(kv_codec=codec)) == expected


def test_a_wish_is_followed():
    config = EngineConfig(kv_codec=KVCodec.INT8, block_size=16)
    assert block_size_of(spec_of(GEMMA), config) == 16


def test_a_model_without_attention_has_the_usual_size():
    assert block_size_of(spec_of(recurrent=STATE), EngineConfig()) == 32


@pytest.mark.parametrize("recurrent", [None, STATE])
def test_the_memory_has_the_size_that_suits(recurrent):
    config = EngineConfig(kv_codec=KVCodec.INT8, hot_budget_bytes=16 << 20)
    memory = build_memory(spec_of(GEMMA, recurrent), config)
    assert memory.breakdown().block_size == 64
