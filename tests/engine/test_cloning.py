"""Copies of conversations over a tiny model: what they keep, cost, and go on with."""

from __future__ import annotations

import pytest

from engine.engine import Engine
from engine.errors import EngineError, UnsupportedModelError
from engine.memory.cold_store import MemoryColdStore
from tests.engine.test_engine import CONFIG, chat, reply, request
from tests.engine.tiny_models import TinyModel, write_tiny_model

QUESTION = "Hello, please tell me a long story about a lighthouse and the sea. " * 5


@pytest.fixture(scope="module")
def model_path(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


def held(engine):
    return engine.breakdown().held_bytes


def test_a_thinned_copy_keeps_its_part_and_goes_on(model_path):
    engine = Engine.load(model_path, CONFIG)
    text, _ = reply(engine, request(QUESTION))
    before = held(engine)
    copy = engine.clone("c", chat(QUESTION, text), "copy", 0.5)
    assert copy.num_places == -(-copy.num_tokens // 2)
    assert held(engine) - before <= 0.6 * before
    _, finished = reply(engine, request(QUESTION, text, "And then?", conversation="copy"))
    assert finished.usage.reused.total == copy.num_tokens
    _, whole = reply(engine, request(QUESTION, text, "And then?"))
    assert whole.usage.reused.total == copy.num_tokens
    engine.unload()


def test_a_whole_copy_shares_everything_and_answers_alike(model_path):
    engine = Engine.load(model_path, CONFIG)
    text, _ = reply(engine, request(QUESTION))
    before = engine.breakdown().tiers[0].num_blocks
    copy = engine.clone("c", chat(QUESTION, text), "copy", 1.0)
    assert copy.num_places == copy.num_tokens
    assert engine.breakdown().tiers[0].num_blocks <= before + 1
    _, one = reply(engine, request(QUESTION, text, "And then?", conversation="copy"))
    _, other = reply(engine, request(QUESTION, text, "And then?"))
    assert one.token_ids == other.token_ids
    engine.unload()


def test_a_thinned_copy_survives_a_restart(model_path):
    store = MemoryColdStore()
    engine = Engine.load(model_path, CONFIG, store=store)
    text, _ = reply(engine, request(QUESTION))
    copy = engine.clone("c", chat(QUESTION, text), "copy", 0.8)
    asked = request(QUESTION, text, "And then?", conversation="copy")
    _, expected = reply(
        engine, request(*[m.content for m in asked.messages], conversation="copy", ephemeral=True)
    )
    engine.unload()
    engine = Engine.load(model_path, CONFIG, store=store)
    _, resumed = reply(engine, asked)
    assert resumed.usage.reused.cold == copy.num_tokens
    assert resumed.token_ids == expected.token_ids
    engine.unload()


def test_an_edit_in_a_thinned_copy_is_read_in_full(model_path):
    engine = Engine.load(model_path, CONFIG)
    text, _ = reply(engine, request(QUESTION))
    engine.clone("c", chat(QUESTION, text), "copy", 0.5)
    _, edited = reply(engine, request(QUESTION + "Now!", conversation="copy"))
    _, fresh = reply(engine, request(QUESTION + "Now!", conversation="other"))
    assert edited.token_ids == fresh.token_ids
    engine.unload()


def test_refusals_say_why(model_path, tmp_path):
    engine = Engine.load(model_path, CONFIG)
    with pytest.raises(EngineError, match="read"):
        engine.clone("c", chat(QUESTION), "copy", 0.5)
    text, _ = reply(engine, request(QUESTION))
    with pytest.raises(ValueError, match="decay"):
        engine.clone("c", chat(QUESTION, text), "copy", 1.5)
    engine.unload()
    windowed = write_tiny_model(tmp_path / "gemma.gguf", TinyModel(architecture="gemma3"))
    engine = Engine.load(windowed, CONFIG)
    text, _ = reply(engine, request(QUESTION))
    with pytest.raises(UnsupportedModelError):
        engine.clone("c", chat(QUESTION, text), "copy", 0.5)
    assert engine.clone("c", chat(QUESTION, text), "copy", 1.0).num_tokens > 0
    engine.unload()
