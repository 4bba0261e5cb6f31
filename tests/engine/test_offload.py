"""Layers on another device: the same tokens, stored states that do not depend on it, and limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig, KVCodec
from engine.device import find_accelerator
from engine.engine import Engine
from engine.gguf_file import GGUFFile
from engine.memory.cold_store import MemoryColdStore
from engine.model_config import ModelConfig
from engine.offload import num_that_fit, place_layers
from tests.engine.pretend_device import PretendDevice
from tests.engine.test_engine import CONFIG, reply, request
from tests.engine.tiny_models import TinyModel, write_tiny_model
from tests.reference import REFERENCE, needs_reference

PLAIN = replace(CONFIG, context_length=1024, kernels=False, compute="float32", kv_codec=KVCodec.F32)
# The CPU as well, but another device by its name.
OTHER = "cpu:1"
QUESTION = "Hello, please tell me a long story about a lighthouse and the sea. " * 3


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    model = TinyModel(architecture="llama", context_length=4096)
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf", model)


def answer(
    path: Path, config: EngineConfig, *more: str, store: MemoryColdStore | None = None
) -> tuple[Engine, tuple[int, ...], int]:
    """Return the engine, the ids of its reply and how many tokens it read."""
    engine = Engine.load(path, config, store=store)
    _, finished = reply(engine, request(QUESTION, *more, max_tokens=8))
    return engine, finished.token_ids, finished.usage.recomputed_tokens


def test_a_model_on_two_devices_says_the_same(tiny):
    whole, expected, _ = answer(tiny, PLAIN)
    split, found, _ = answer(tiny, replace(PLAIN, device=OTHER, offload_share=0.5))
    assert found == expected
    assert whole.info.devices == (("cpu", 2),)
    assert split.info.devices == (("cpu", 1), (OTHER, 1))
    assert OTHER in split.info.compute
    use = split.breakdown().tiers[0]
    assert use.used_bytes >= whole.breakdown().tiers[0].used_bytes
    for engine in (whole, split):
        engine.unload()


@pytest.mark.parametrize("codec", [KVCodec.F32, KVCodec.INT8])
def test_what_was_stored_with_one_share_is_not_read_again_with_another(tiny, codec):
    store = MemoryColdStore()
    config = replace(PLAIN, kv_codec=codec, device=OTHER)
    first, ids, num_read = answer(tiny, replace(config, offload_share=1.0), store=store)
    first.unload()
    for share in (0.5, 0.0, None):
        engine = Engine.load(tiny, replace(config, offload_share=share), store=store)
        _, finished = reply(engine, request(QUESTION, max_tokens=8))
        assert finished.token_ids == ids
        assert finished.usage.recomputed_tokens < num_read // 8
        engine.unload()


def _slow(kind: str) -> object:
    return pytest.param(kind, marks=pytest.mark.slow)


@needs_reference
@pytest.mark.parametrize("kind", ["lfm2", *map(_slow, ("mamba", "gemma3", "gpt-oss"))])
def test_nothing_computes_with_tensors_of_two_devices(kind):
    path = REFERENCE / "models" / f"{kind}.gguf"
    whole, expected, _ = answer(path, PLAIN)
    whole.unload()
    with PretendDevice():
        for share in (0.5, 1.0):
            config = replace(PLAIN, device="pretend:0", offload_share=share)
            engine, found, _ = answer(path, config)
            assert found == expected
            engine.unload()


def test_quantised_and_copied_blocks_stay_on_their_devices(tiny):
    with PretendDevice():
        store = MemoryColdStore()
        config = replace(
            PLAIN, kv_codec=KVCodec.INT8, device="pretend:0", offload_share=0.5, block_size=16
        )
        engine, ids, num_read = answer(tiny, config, store=store)
        engine.rest("c")
        messages = request(QUESTION).messages
        again = reply(engine, request(QUESTION, max_tokens=8, conversation="other"))[1]
        assert len(again.token_ids) == len(ids)
        engine.clone("c", messages, "copy", 0.5)
        engine.unload()
        engine, _, num_read_again = answer(tiny, config, store=store)
        assert num_read_again < num_read // 4
        engine.unload()


def test_as_many_layers_as_fit_are_counted_from_the_last_one():
    assert num_that_fit([10, 20, 30], 5, 4) == 0
    assert num_that_fit([10, 20, 30], 5, 54) == 1
    assert num_that_fit([10, 20, 30], 5, 55) == 2
    assert num_that_fit([10, 20, 30], 5, 1000) == 3


def test_the_share_is_one_of_the_layers_there_are(tiny):
    file = GGUFFile.open(tiny)
    spec = ModelConfig.from_gguf(file).memory_spec(b"")

    def devices(**wishes) -> list[str]:
        config = EngineConfig(context_length=512, **wishes)
        return [str(device) for device in place_layers(file, spec, config, 2).layers]

    assert devices() == devices(device=OTHER, offload_share=0.0) == ["cpu", "cpu"]
    assert devices(device=OTHER, offload_share=0.1) == ["cpu", OTHER]
    assert devices(device=OTHER, offload_share=1.0) == [OTHER, OTHER]
    assert devices(device=OTHER) == [OTHER, OTHER]
    with pytest.raises(ValueError, match="offload_share"):
        devices(device=OTHER, offload_share=1.5)
    with pytest.raises(ValueError, match="unknown device"):
        devices(device="no such thing")
    file.close()


def test_without_an_accelerator_everything_is_on_the_cpu():
    assert find_accelerator("cpu") is None
    assert find_accelerator(OTHER) == torch.device(OTHER)
    if not torch.accelerator.is_available():
        assert find_accelerator("auto") is None
