"""Settings changed between two runs: what was read is converted and reused, not read again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from engine.config import EngineConfig, KVCodec
from engine.engine import Engine
from engine.memory.cold_store import MemoryColdStore
from tests.engine.test_engine import CONFIG, reply, request
from tests.engine.tiny_models import TinyModel, write_tiny_model

BEFORE = replace(CONFIG, context_length=1024, kernels=False)
QUESTION = "Hello, please tell me a long story about a lighthouse and the sea. " * 5
CHANGES = {
    "nothing": {},
    "f32": {"kv_codec": KVCodec.F32},
    "bf16": {"kv_codec": KVCodec.BF16},
    "int8": {"kv_codec": KVCodec.INT8},
    "k8v4": {"kv_codec": KVCodec.K8V4},
    "int8, blocks that suit": {"kv_codec": KVCodec.INT8, "block_size": None},
    "larger blocks": {"block_size": 64},
    "longer context": {"context_length": 4096},
    "shorter context": {"context_length": 640},
    "hot budget": {"hot_budget_bytes": 2 << 20},
    "warm budget": {"warm_budget_bytes": 1 << 20},
    "chunk": {"prefill_chunk": 128},
    "all": {
        "kv_codec": KVCodec.INT8,
        "block_size": 32,
        "context_length": 700,
        "hot_budget_bytes": 3 << 20,
        "warm_budget_bytes": 0,
        "prefill_chunk": 16,
    },
}


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def stored(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, MemoryColdStore, str, tuple[int, ...]]:
    """A model, the store after a first run, its reply, and the next one without interruption."""
    model = TinyModel(architecture=request.param, context_length=4096)
    path = write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf", model)
    store = MemoryColdStore()
    engine = Engine.load(path, BEFORE, store=store)
    text, _ = reply(engine, ask())
    _, finished = reply(engine, ask(text, "And then?", ephemeral=True))
    engine.unload()
    return path, store, text, finished.token_ids


def ask(*more: str, **options):
    return request(QUESTION, *more, **options)


@pytest.mark.parametrize("change", CHANGES)
def test_what_was_read_under_other_settings_is_not_read_again(stored, change):
    path, store, text, expected = stored
    config: EngineConfig = replace(BEFORE, **CHANGES[change])
    engine = Engine.load(path, config, store=store)
    _, finished = reply(engine, ask(text, "And then?", ephemeral=True))
    new = ask(text, "And then?").messages[-1:]
    num_new = engine.count_tokens(new) + 8
    assert finished.usage.recomputed_tokens <= num_new
    assert finished.usage.reused.total >= finished.usage.prompt_tokens - num_new
    if config.kv_codec is BEFORE.kv_codec:
        assert finished.token_ids == expected
    engine.unload()
