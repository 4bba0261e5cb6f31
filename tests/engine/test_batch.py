"""Several replies to one prompt, and replies that grow side by side: right, shared, given back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

import pytest

from engine.config import ChatMessage, EngineConfig, GenerateRequest, KVCodec, SamplingParams
from engine.decoder import Decoder
from engine.engine import Engine
from engine.errors import OutOfMemoryError
from engine.events import (
    BatchEvent,
    Finished,
    FinishReason,
    GenerateEvent,
    PrefillProgress,
    TextDelta,
    Waiting,
)
from tests.engine.tiny_models import write_tiny_model
from tests.reference import REFERENCE, needs_reference

GREEDY = SamplingParams(temperature=0.0)
# Of these seeds no draw falls next to the border between two tokens: a prompt that replies share is
# attended in numbers that differ in the fourth digit, and such a draw might go the other way.
SEED = 24
DRAWN = SamplingParams(temperature=1.5, top_k=40, seed=SEED)
BLOCK = 16
SLAB = 8192  # of the tiny model, in float32: 2 layers, K and V, 2 heads, 16 tokens of 16 numbers
CONFIG = EngineConfig(
    block_size=BLOCK,
    kv_codec=KVCodec.F32,
    hot_budget_bytes=8 << 20,
    num_threads=1,
    prefill_chunk=32,
    compute="float32",
)
LONG = "The sea was calm that morning, and the boats came home. " * 3


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def load(model_path: Path) -> Iterator[Callable[..., Engine]]:
    loaded: list[Engine] = []

    def make(**options) -> Engine:
        path = options.pop("path", model_path)
        loaded.append(Engine.load(path, replace(CONFIG, **options)))
        return loaded[-1]

    yield make
    for engine in loaded:
        engine.unload()


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many replies each decoding pass was for."""
    sizes: list[int] = []
    original = Decoder._evaluate_last

    def counted(self: Decoder, batch: list, num_sure: int) -> None:
        sizes.append(len(batch))
        original(self, batch, num_sure)

    monkeypatch.setattr(Decoder, "_evaluate_last", counted)
    return sizes


def request(*contents: str, conversation: str = "c", **options) -> GenerateRequest:
    roles = ("user", "assistant")
    messages = tuple(ChatMessage(roles[i % 2], text) for i, text in enumerate(contents))
    options.setdefault("sampling", GREEDY)
    options.setdefault("max_tokens", 24)
    return GenerateRequest(conversation, messages, **options)


def finished(events: Iterator[BatchEvent]) -> dict[int, Finished]:
    return {one.index: one.event for one in events if isinstance(one.event, Finished)}


def alone(engine: Engine, asked: GenerateRequest) -> Finished:
    *_, last = engine.generate(replace(asked, conversation_id="alone", ephemeral=True))
    assert isinstance(last, Finished)
    return last


def held_bytes(engine: Engine) -> int:
    return engine.breakdown().held_bytes


@pytest.mark.parametrize("kernels", [True, False])
def test_greedy_replies_are_those_of_one_alone(load, kernels, passes):
    engine = load(kernels=kernels)
    expected = alone(engine, request(LONG)).token_ids
    passes.clear()
    replies = finished(engine.generate_batch(request(LONG), 5))
    assert [replies[index].token_ids for index in range(5)] == [expected] * 5
    assert {reply.timing.mean_batch_size for reply in replies.values()} == {5.0}
    assert passes == [5] * 23  # the first token needs no pass, the last one has no successor


def test_each_reply_draws_with_its_own_seed(load):
    engine = load()
    replies = finished(engine.generate_batch(request(LONG, sampling=DRAWN), 4))
    for index in range(4):
        own = request(LONG, sampling=replace(DRAWN, seed=SEED + index))
        assert replies[index].token_ids == alone(engine, own).token_ids
    assert len({reply.token_ids for reply in replies.values()}) == 4


@needs_reference
@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("kind", ["lfm2", "mamba", "gemma3"])
def test_every_kind_of_memory_can_be_shared(load, kind, kernels):
    engine = load(path=REFERENCE / "models" / f"{kind}.gguf", kernels=kernels)
    greedy = alone(engine, request(LONG)).token_ids
    drawn = [request(LONG, sampling=replace(DRAWN, seed=SEED + index)) for index in range(3)]
    replies = finished(engine.generate_batch(request(LONG), 2))
    assert [reply.token_ids for reply in replies.values()] == [greedy] * 2
    replies = finished(engine.generate_batch(drawn[0], 3))
    for index, own in enumerate(drawn):
        assert replies[index].token_ids == alone(engine, own).token_ids


def test_greedy_replies_of_a_real_model_are_those_of_one_alone(load, smollm2_path):
    engine = load(path=smollm2_path, hot_budget_bytes=256 << 20, prefill_chunk=128)
    asked = request("Tell me about the sea.", max_tokens=12)
    expected = alone(engine, asked).token_ids
    replies = finished(engine.generate_batch(asked, 9))
    assert {reply.token_ids for reply in replies.values()} == {expected}


def test_what_else_is_evaluated_leaves_waiting_replies_alone(load):
    """The logits of replies that have not had their turn yet outlive the passes in between."""
    asked = request(LONG, sampling=DRAWN)
    expected = finished(load().generate_batch(asked, 3))
    engine = load()
    probe = engine.probe()
    events: list[BatchEvent] = []
    for event in engine.generate_batch(asked, 3):
        events.append(event)
        list(probe.logits([1, 2, 3, 4], chunk=4))
    found = finished(events)
    assert [found[at].token_ids for at in range(3)] == [expected[at].token_ids for at in range(3)]


def test_the_prompt_is_read_once(load):
    engine = load()
    events = list(engine.generate_batch(request(LONG), 4))
    assert {one.index for one in events if isinstance(one.event, PrefillProgress)} == {0}
    usages = [reply.usage for reply in finished(iter(events)).values()]
    assert [usage.recomputed_tokens for usage in usages] == [usages[0].prompt_tokens, 0, 0, 0]
    assert {usage.completion_tokens for usage in usages} == {24}


def test_memory_is_one_prefix_and_a_tail_for_each(load):
    engine = load()
    first = alone(engine, request(LONG))
    assert held_bytes(engine) == 0
    events = engine.generate_batch(request(LONG, ephemeral=True), 6)
    most = max(held_bytes(engine) for _ in events)
    num_shared, rest = divmod(first.usage.prompt_tokens, BLOCK)
    num_own = -(-(rest + 24) // BLOCK)
    assert most <= (num_shared + 6 * num_own) * SLAB
    assert most >= (num_shared + 6 * (num_own - 1)) * SLAB
    assert held_bytes(engine) == 0


def test_a_reply_that_ends_leaves_the_others_to_go_on(load, passes):
    engine = load()
    texts: dict[int, str] = {}
    for one in engine.generate_batch(request(LONG, sampling=DRAWN), 3):
        if isinstance(one.event, TextDelta):
            texts[one.index] = texts.get(one.index, "") + one.event.text
    stop = texts[1][3]
    passes.clear()
    replies = finished(engine.generate_batch(request(LONG, sampling=DRAWN, stop=(stop,)), 3))
    for index, reply in replies.items():
        assert (reply.finish_reason is FinishReason.STOP) == (stop in texts[index])
        own = request(LONG, sampling=replace(DRAWN, seed=SEED + index), stop=(stop,))
        assert reply.token_ids == alone(engine, own).token_ids
    assert passes[0] == 3
    assert passes[-1] < 3


def test_one_reply_or_all_can_be_cancelled(load):
    engine = load()
    seen: list[int] = []

    def is_cancelled(index: int) -> bool:
        return index == 1 and seen.count(1) >= 3

    for one in engine.generate_batch(request(LONG), 3, is_cancelled=is_cancelled):
        if isinstance(one.event, TextDelta):
            seen.append(one.index)
        if isinstance(one.event, Finished):
            cancelled = one.event.finish_reason is FinishReason.CANCELLED
            assert cancelled == (one.index == 1)
    replies = finished(engine.generate_batch(request("Hi"), 3, is_cancelled=lambda index: True))
    assert [reply.finish_reason for reply in replies.values()] == [FinishReason.CANCELLED] * 3
    assert all(not reply.token_ids for reply in replies.values())


def test_closing_gives_everything_back_and_keeps_what_was_computed(load):
    engine = load()
    events = engine.generate_batch(request(LONG, ephemeral=True), 4)
    for _ in range(20):
        next(events)
    assert held_bytes(engine) > 0
    events.close()
    assert held_bytes(engine) == 0
    assert alone(engine, request(LONG)).usage.recomputed_tokens <= BLOCK


def test_the_conversation_goes_on_from_any_reply(load):
    engine = load()
    texts = {index: "" for index in range(3)}
    for one in engine.generate_batch(request(LONG, sampling=DRAWN), 3):
        if isinstance(one.event, TextDelta):
            texts[one.index] += one.event.text
    for text in texts.values():
        *_, last = engine.generate(request(LONG, text, "More"))
        assert last.miss_reason is None
        assert last.usage.recomputed_tokens < 2 * BLOCK


def test_more_replies_than_branches_are_remembered_while_they_grow(load):
    engine = load()
    replies = finished(engine.generate_batch(request(LONG), 24))
    assert len({reply.token_ids for reply in replies.values()}) == 1
    assert len(engine._pool.sessions("c")) == 24
    list(engine.generate_batch(request("Something else"), 1))
    assert len(engine._pool.sessions("c")) == 16


def test_with_little_memory_replies_wait_for_each_other(load):
    expected = alone(load(), request(LONG)).token_ids
    prompt_blocks = -(-alone(load(), request(LONG)).usage.prompt_tokens // BLOCK)
    engine = load(hot_budget_bytes=(prompt_blocks + 6) * SLAB, warm_budget_bytes=0)
    events = list(engine.generate_batch(request(LONG), 8))
    replies = finished(iter(events))
    assert [reply.token_ids for reply in replies.values()] == [expected] * 8
    assert any(isinstance(one.event, Waiting) for one in events)


def test_a_prompt_that_never_fits_is_refused(load):
    engine = load(hot_budget_bytes=4 * SLAB, warm_budget_bytes=0)
    with pytest.raises(OutOfMemoryError):
        list(engine.generate_batch(request(LONG), 2))


def interleaved(*replies: Iterator[GenerateEvent]) -> list[tuple[int, ...]]:
    """Advance replies in turns; return their tokens."""
    rounds = list(zip_longest(*replies))
    return [
        next(event for event in one if isinstance(event, Finished)).token_ids
        for one in zip(*rounds, strict=True)
    ]


def test_different_prompts_that_take_turns_share_passes(load, passes):
    engine = load()
    asked = [request(text * 2, conversation=text) for text in ("Hello you. ", "Boats! ", "Sea? ")]
    expected = [alone(engine, one).token_ids for one in asked]
    passes.clear()
    assert interleaved(*(engine.generate(one) for one in asked)) == expected
    assert passes.count(3) > 10


def test_two_replies_to_the_same_messages_do_not_disturb_each_other(load):
    engine = load()
    expected = alone(engine, request(LONG)).token_ids
    both = interleaved(engine.generate(request(LONG)), engine.generate(request(LONG)))
    assert both == [expected] * 2


def test_replies_that_do_not_fit_together_take_turns_in_memory(load):
    asked = [request(LONG + name, conversation=name) for name in ("a", "b", "c")]
    expected = [alone(load(), one).token_ids for one in asked]
    blocks = -(-(alone(load(), asked[0]).usage.prompt_tokens + 24) // BLOCK)
    engine = load(hot_budget_bytes=(blocks + 2) * SLAB, warm_budget_bytes=0)
    assert interleaved(*(engine.generate(one) for one in asked)) == expected


def test_an_interrupted_reply_comes_back_when_another_took_its_memory(load):
    background, urgent = request(LONG + "a", conversation="a"), request(LONG, conversation="b")
    expected = alone(load(), background).token_ids
    blocks = -(-(alone(load(), background).usage.prompt_tokens + 24) // BLOCK)
    engine = load(hot_budget_bytes=(blocks + 2) * SLAB, warm_budget_bytes=0)
    reply = engine.generate(background)
    started = [next(reply) for _ in range(12)]
    assert isinstance(started[-1], TextDelta)
    assert len(alone(engine, urgent).token_ids) == 24
    assert list(reply)[-1].token_ids == expected


@pytest.mark.parametrize("n", [0, 65])
def test_a_senseless_number_is_refused(load, n):
    with pytest.raises(ValueError, match="n is out of range"):
        next(load().generate_batch(request("Hi"), n))
