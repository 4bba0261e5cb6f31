"""Sliding windows, recurrent and hybrid models: going back reads at most a block too much."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from engine.config import ChatMessage, EngineConfig, GenerateRequest, KVCodec, SamplingParams
from engine.engine import Engine
from engine.events import Finished, TextDelta
from engine.kernels import available
from engine.memory.cold_store import MemoryColdStore
from tests.reference import REFERENCE, needs_reference

pytestmark = needs_reference
KERNELS = " with kernels"
KINDS = ("lfm2", "mamba", "gemma3", "lfm2" + KERNELS, "mamba" + KERNELS)
BLOCK = 16
CONFIG = EngineConfig(
    block_size=BLOCK,
    kv_codec=KVCodec.F32,
    hot_budget_bytes=1 << 25,
    prefill_chunk=64,
    num_threads=1,
    compute="float32",
    kernels=False,
)
# Most tokens of a closing and an opening in the tiny vocabulary.
WRAPPING = 12
FIRST = "Tell me about the sea and the ships that went there. "
LONG = "You know the old stories, and you tell them in the order in which they happened. " * 2


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param.endswith(KERNELS) and available() is None:
        pytest.skip("the native kernels are not built")
    return request.param


def load(kind: str, store: MemoryColdStore | None = None) -> Engine:
    name = kind.removesuffix(KERNELS)
    config = replace(CONFIG, kernels=name != kind)
    engine = Engine.load(REFERENCE / "models" / f"{name}.gguf", config, store=store)
    assert engine.info.compute.startswith("kernels") == config.kernels
    return engine


def messages(*contents: str) -> tuple[ChatMessage, ...]:
    roles = ("system", "user", "assistant")
    return tuple(
        ChatMessage(roles[0] if i == 0 else roles[1 + (i + 1) % 2], text)
        for i, text in enumerate(contents)
    )


def ask(engine: Engine, *contents: str, **options) -> tuple[str, Finished]:
    request = GenerateRequest(
        options.pop("conversation", "c"),
        messages(*contents),
        sampling=SamplingParams(temperature=0.0),
        max_tokens=options.pop("max_tokens", 40),
        **options,
    )
    events = list(engine.generate(request))
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, events[-1]


def num_tokens(engine: Engine, text: str) -> int:
    """Tokens of one message and what the template puts around it and the reply."""
    return (
        engine.count_tokens(messages(LONG, text)) - engine.count_tokens(messages(LONG)) + WRAPPING
    )


def fresh(kind: str, *contents: str, **options) -> tuple[int, ...]:
    engine = load(kind)
    _, finished = ask(engine, *contents, **options)
    engine.unload()
    return finished.token_ids


def assert_as_read_anew(kind: str, engine: Engine, finished: Finished) -> None:
    """Compare a reply with what an engine says that reads the same tokens from nothing."""
    session = max(engine._pool.sessions("c"), key=lambda session: session.last_used)
    *known, token = session.token_ids[: finished.usage.prompt_tokens]
    other = load(kind)
    probe = other.probe()
    sequence = probe.read(known)
    said = []
    for _ in finished.token_ids:
        token = probe._evaluate(sequence, [token], is_last=True)
        said.append(token)
    other.unload()
    assert tuple(said) == finished.token_ids


def test_regenerating_reads_at_most_a_block(kind):
    engine = load(kind)
    text, first = ask(engine, LONG, FIRST)
    again_text, again = ask(engine, LONG, FIRST)
    assert again_text == text
    assert again.token_ids == first.token_ids
    assert again.usage.recomputed_tokens <= BLOCK
    assert_as_read_anew(kind, engine, again)
    engine.unload()


def test_the_next_turn_reads_only_what_is_new(kind):
    engine = load(kind)
    text, first = ask(engine, LONG, FIRST)
    _, second = ask(engine, LONG, FIRST, text, "More")
    before = first.usage.prompt_tokens + first.usage.completion_tokens
    assert second.usage.reused.total == before - 1
    assert_as_read_anew(kind, engine, second)
    engine.unload()


def test_editing_an_earlier_message_reads_the_edit_and_at_most_a_block(kind):
    engine = load(kind)
    text, _ = ask(engine, LONG, FIRST)
    reply, _ = ask(engine, LONG, FIRST, text, "More of that, please.")
    ask(engine, LONG, FIRST, text, "More of that, please.", reply, "And then?")
    _, edited = ask(engine, LONG, FIRST, text, "Less of that, please.")
    assert edited.usage.recomputed_tokens <= num_tokens(engine, "Less of that, please.") + BLOCK
    assert_as_read_anew(kind, engine, edited)
    _, first_edited = ask(engine, LONG, "Tell me about the sky.")
    changed = num_tokens(engine, "Tell me about the sky.")
    assert first_edited.usage.recomputed_tokens <= changed + BLOCK
    assert first_edited.token_ids == fresh(kind, LONG, "Tell me about the sky.")
    engine.unload()


def test_an_edit_inside_a_long_message_reads_what_follows_and_at_most_a_block(kind):
    engine = load(kind)
    ask(engine, LONG, LONG + "Once there was a ship")
    _, edited = ask(engine, LONG, LONG + "Once there was a lake")
    assert edited.usage.recomputed_tokens <= num_tokens(engine, "lake") + BLOCK
    assert edited.token_ids == fresh(kind, LONG, LONG + "Once there was a lake")
    engine.unload()


def test_a_branch_is_returned_to_without_reading(kind):
    engine = load(kind)
    text, _ = ask(engine, LONG, FIRST)
    left, _ = ask(engine, LONG, FIRST, text, "Left?")
    ask(engine, LONG, FIRST, text, "Right?")
    _, back = ask(engine, LONG, FIRST, text, "Left?", left, "More")
    assert back.usage.recomputed_tokens <= num_tokens(engine, "More") + BLOCK
    assert_as_read_anew(kind, engine, back)
    engine.unload()


def test_after_a_restart_every_way_back_is_still_short(kind):
    store = MemoryColdStore()
    engine = load(kind, store)
    text, _ = ask(engine, LONG, FIRST, max_tokens=100)
    reply, _ = ask(engine, LONG, FIRST, text, "More of that, please.", max_tokens=100)
    _, uninterrupted = ask(
        engine, LONG, FIRST, text, "More of that, please.", reply, "And?", ephemeral=True
    )
    engine.unload()

    engine = load(kind, store)
    _, resumed = ask(engine, LONG, FIRST, text, "More of that, please.", reply, "And?")
    assert resumed.token_ids == uninterrupted.token_ids
    assert resumed.usage.recomputed_tokens <= num_tokens(engine, "And?")
    assert_as_read_anew(kind, engine, resumed)
    engine.unload()

    engine = load(kind, store)
    again, regenerated = ask(engine, LONG, FIRST, text, "More of that, please.", max_tokens=100)
    assert again == reply
    assert regenerated.usage.recomputed_tokens <= BLOCK
    assert_as_read_anew(kind, engine, regenerated)
    _, edited = ask(engine, LONG, FIRST, text, "Less of that, please.")
    assert edited.usage.recomputed_tokens <= num_tokens(engine, "Less of that, please.") + BLOCK
    assert_as_read_anew(kind, engine, edited)
    _, first_edited = ask(engine, LONG, "Tell me about the sky.")
    changed = num_tokens(engine, "Tell me about the sky.")
    assert first_edited.usage.recomputed_tokens <= changed + BLOCK
    assert first_edited.token_ids == fresh(kind, LONG, "Tell me about the sky.")
    engine.unload()


def test_a_branch_of_a_stored_conversation_is_returned_to_after_a_restart(kind):
    store = MemoryColdStore()
    engine = load(kind, store)
    text, _ = ask(engine, LONG, FIRST)
    left, _ = ask(engine, LONG, FIRST, text, "Left?")
    ask(engine, LONG, FIRST, text, "Right?")
    engine.unload()
    engine = load(kind, store)
    _, back = ask(engine, LONG, FIRST, text, "Left?", left, "More")
    assert back.usage.recomputed_tokens <= num_tokens(engine, "More") + BLOCK
    assert_as_read_anew(kind, engine, back)
    _, third = ask(engine, LONG, FIRST, text, "Straight on?")
    assert third.usage.recomputed_tokens <= num_tokens(engine, "Straight on?") + BLOCK
    assert_as_read_anew(kind, engine, third)
    engine.unload()
