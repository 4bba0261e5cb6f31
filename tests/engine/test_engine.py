"""The engine over a tiny model: reuse, branches, asides, cancelling, restarting, running full."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from engine.config import (
    ChatMessage,
    EngineConfig,
    GenerateRequest,
    KVCodec,
    Overflow,
    SamplingParams,
)
from engine.engine import Engine
from engine.errors import (
    ContextOverflowError,
    LoadCancelledError,
    OutOfMemoryError,
    StoreError,
)
from engine.events import (
    Finished,
    FinishReason,
    LoadProgress,
    MissCause,
    PrefillProgress,
    TextDelta,
)
from engine.memory.cold_store import MemoryColdStore
from engine.memory.storage import SnapshotJob
from tests.engine.tiny_models import write_tiny_model

GREEDY = SamplingParams(temperature=0.0)
BLOCK = 16
CONFIG = EngineConfig(
    block_size=BLOCK,
    hot_budget_bytes=8 << 20,
    num_threads=1,
    prefill_chunk=32,
    compute="float32",
)


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def engine(model_path: Path) -> Iterator[Engine]:
    engine = Engine.load(model_path, CONFIG)
    yield engine
    engine.unload()


def chat(*contents: str) -> tuple[ChatMessage, ...]:
    roles = ("user", "assistant")
    return tuple(ChatMessage(roles[i % 2], text) for i, text in enumerate(contents))


def request(*contents: str, conversation: str = "c", **options) -> GenerateRequest:
    options.setdefault("sampling", GREEDY)
    options.setdefault("max_tokens", 24)
    return GenerateRequest(conversation, chat(*contents), **options)


def reply(engine: Engine, asked: GenerateRequest) -> tuple[str, Finished]:
    events = list(engine.generate(asked))
    assert isinstance(events[-1], Finished)
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    return text, events[-1]


def test_a_first_reply_reads_everything_and_says_so(engine):
    events = list(engine.generate(request("Hello there, how are you today? " * 3)))
    finished = events[-1]
    assert finished.usage.reused.total == 0
    assert finished.usage.recomputed_tokens == finished.usage.prompt_tokens
    assert finished.miss_reason.cause is MissCause.NEW_CONVERSATION
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    assert [event.done_tokens for event in progress] == [
        *range(CONFIG.prefill_chunk, finished.usage.prompt_tokens, CONFIG.prefill_chunk),
        finished.usage.prompt_tokens,
    ]
    assert finished.finish_reason is FinishReason.LENGTH
    assert len(finished.token_ids) == 24


def test_the_next_turn_reads_only_what_is_new(engine):
    text, first = reply(engine, request("Hello"))
    _, second = reply(engine, request("Hello", text, "And then?"))
    before = first.usage.prompt_tokens + first.usage.completion_tokens
    assert second.usage.reused.hot == before - 1  # the last token drawn was never evaluated
    assert second.miss_reason is None


def test_greedy_replies_do_not_depend_on_what_was_reused(engine):
    text, _ = reply(engine, request("Hello"))
    _, reused = reply(engine, request("Hello", text, "And then?"))
    engine.forget("c")
    assert reused.usage.reused.total > 0
    engine.probe().clear()
    text_again, _ = reply(engine, request("Hello"))
    _, fresh = reply(engine, request("Hello", text_again, "And then?"))
    assert text_again == text
    assert fresh.token_ids == reused.token_ids


def test_two_conversations_share_what_they_have_in_common(engine):
    system = "You are a very patient and thorough assistant who explains everything. " * 2
    reply(engine, request(system, conversation="a"))
    _, other = reply(engine, request(system, conversation="b"))
    assert other.usage.recomputed_tokens <= BLOCK
    assert engine.breakdown().shared_blocks > 0


def test_regenerating_reads_nothing_but_the_replys_opening(engine):
    first_text, _ = reply(engine, request("Hello"))
    second_text, second = reply(engine, request("Hello"))
    assert second_text == first_text
    assert second.usage.recomputed_tokens <= BLOCK
    assert second.miss_reason is None


def test_a_branch_can_be_returned_to_without_reading(engine):
    text, _ = reply(engine, request("Hello"))
    reply(engine, request("Hello", text, "Left?"))
    reply(engine, request("Hello", text, "Right?"))
    left_text, _ = reply(engine, request("Hello", text, "Left?"))
    _, back = reply(engine, request("Hello", text, "Left?", left_text, "More"))
    assert back.miss_reason is None
    assert back.usage.recomputed_tokens < 2 * BLOCK


def test_an_edited_message_is_explained(engine):
    reply(engine, request("Tell me about the sea."))
    _, finished = reply(engine, request("Tell me about the sky."))
    assert finished.miss_reason.cause is MissCause.HISTORY_CHANGED


def test_an_aside_leaves_the_conversation_as_it_was(engine):
    text, _ = reply(engine, request("Hello"))
    used = engine.breakdown().tiers[0].used_bytes
    _, aside = reply(engine, request("Hello", text, "A title?", ephemeral=True, max_tokens=4))
    assert aside.usage.reused.total > 0
    assert engine.breakdown().tiers[0].used_bytes <= used + 2 * 8192 * 8
    _, next_turn = reply(engine, request("Hello", text, "And then?"))
    assert next_turn.miss_reason is None


@pytest.mark.parametrize("sampling", [GREEDY, SamplingParams(temperature=1.5, seed=3)], ids=str)
def test_continuing_goes_on_where_the_reply_was_cut(engine, sampling):
    asked = partial(request, "Hello", sampling=sampling, ignore_eos=True)
    _, whole = reply(engine, asked(max_tokens=16, conversation="whole"))
    text, start = reply(engine, asked(max_tokens=8))
    _, rest = reply(engine, asked(text, max_tokens=8))
    assert start.token_ids + rest.token_ids == whole.token_ids
    assert rest.usage.recomputed_tokens == 1


def test_cancelling_before_a_chunk_keeps_what_was_read(engine):
    asked = request("A long message that takes several chunks to read. " * 6)
    calls = iter([False, False, True])
    events = list(engine.generate(asked, is_cancelled=lambda: next(calls, True)))
    assert events[-1].finish_reason is FinishReason.CANCELLED
    assert events[-1].token_ids == ()
    _, again = reply(engine, asked)
    assert again.usage.reused.total >= 2 * CONFIG.prefill_chunk - BLOCK


def test_closing_the_generator_keeps_the_reply_so_far(engine):
    generator = engine.generate(request("Hello"))
    text = ""
    for event in generator:
        text += event.text if isinstance(event, TextDelta) else ""
        if isinstance(event, TextDelta) and event.num_tokens >= 5:
            break
    generator.close()
    _, finished = reply(engine, request("Hello", text, "Go on"))
    assert finished.miss_reason is None
    assert finished.usage.recomputed_tokens < BLOCK + 10


def test_a_stop_string_ends_the_reply_and_is_not_shown(engine):
    text, _ = reply(engine, request("Hello", conversation="free"))
    stop = text[3:6]
    stopped, finished = reply(engine, request("Hello", stop=(stop,)))
    assert stopped == text[: text.index(stop)]
    assert finished.finish_reason is FinishReason.STOP


def test_a_seed_makes_sampling_repeatable(engine):
    sampling = SamplingParams(temperature=1.0, seed=7)
    first, _ = reply(engine, request("Hello", sampling=sampling))
    second, _ = reply(engine, request("Hello", sampling=sampling))
    other, _ = reply(engine, request("Hello", sampling=SamplingParams(temperature=1.0, seed=8)))
    assert first == second
    assert other != first


def test_a_prompt_that_does_not_fit_is_refused_with_numbers(engine):
    with pytest.raises(ContextOverflowError) as refusal:
        list(engine.generate(request("word " * 2000)))
    assert refusal.value.prompt_tokens > refusal.value.context_length == 1024
    _, after = reply(engine, request("Hello"))
    assert after.token_ids


def test_a_reply_ends_where_the_context_ends(model_path):
    engine = Engine.load(model_path, EngineConfig(context_length=64, num_threads=1))
    _, finished = reply(engine, request("Hello", max_tokens=None))
    assert finished.finish_reason is FinishReason.LENGTH
    assert finished.usage.prompt_tokens + finished.usage.completion_tokens == 64
    engine.unload()


def test_idle_conversations_make_room_and_come_back_from_the_store(model_path):
    store = MemoryColdStore()
    small = EngineConfig(block_size=BLOCK, hot_budget_bytes=200_000, num_threads=1)
    engine = Engine.load(model_path, small, store=store)
    replies = {}
    for name in "abcdefgh":
        asked = request(f"Hello, this is {name}. " * 8, conversation=name)
        replies[name], _ = reply(engine, asked)
    text = f"Hello, this is {'a'}. " * 8
    _, back = reply(engine, request(text, replies["a"], "Still there?", conversation="a"))
    assert back.usage.reused.cold > 0
    assert back.usage.recomputed_tokens < 3 * BLOCK
    engine.unload()


def test_one_conversation_larger_than_the_budget_is_told_so(model_path):
    tiny = EngineConfig(block_size=BLOCK, hot_budget_bytes=70_000, num_threads=1)
    engine = Engine.load(model_path, tiny)
    with pytest.raises(OutOfMemoryError):
        list(engine.generate(request("word " * 100)))
    engine.unload()


def test_a_new_process_continues_a_reply_as_this_one_would(model_path):
    store = MemoryColdStore()
    sampling = SamplingParams(temperature=1.5, seed=3)
    asked = partial(request, "Hello", sampling=sampling, ignore_eos=True)
    first = Engine.load(model_path, CONFIG, store=store)
    _, whole = reply(first, asked(max_tokens=16, conversation="whole"))
    text, start = reply(first, asked(max_tokens=8))
    first.unload()
    second = Engine.load(model_path, CONFIG, store=store)
    _, rest = reply(second, asked(text, max_tokens=8))
    second.unload()
    assert start.token_ids + rest.token_ids == whole.token_ids


@pytest.mark.parametrize("codec", [KVCodec.F16, KVCodec.F32])
def test_a_new_process_goes_on_bit_identically(model_path, codec):
    config = EngineConfig(block_size=BLOCK, kv_codec=codec, num_threads=1, compute="float32")
    store = MemoryColdStore()
    question = "Hello, please tell me a long story about a lighthouse."
    first = Engine.load(model_path, config, store=store)
    text, _ = reply(first, request(question))
    _, uninterrupted = reply(first, request(question, text, "And then?", ephemeral=True))
    first.unload()

    second = Engine.load(model_path, config, store=store)
    readiness = second.readiness("c", chat(question, text, "And then?"))
    _, resumed = reply(second, request(question, text, "And then?"))
    assert resumed.token_ids == uninterrupted.token_ids
    assert resumed.usage.reused.cold == uninterrupted.usage.reused.hot
    assert resumed.usage.recomputed_tokens == readiness.unread_tokens
    assert resumed.miss_reason is None
    second.unload()


class RefusingStore(MemoryColdStore):
    """A store that keeps nothing: switched off, or on a full disk."""

    def submit(self, job: SnapshotJob) -> None:
        job.on_done(False)


def test_what_the_store_refused_is_not_promised(model_path):
    engine = Engine.load(model_path, CONFIG, store=RefusingStore())
    text, _ = reply(engine, request("Hello"))
    readiness = engine.readiness("c", chat("Hello", text, "And then?"))
    assert readiness.stored_tokens == 0
    assert readiness.hot_tokens > 0
    engine.unload()


def test_a_forgotten_conversation_is_read_again(model_path):
    store = MemoryColdStore()
    engine = Engine.load(model_path, CONFIG, store=store)
    text, _ = reply(engine, request("Hello"))
    engine.forget("c")
    engine.probe().clear()
    _, again = reply(engine, request("Hello", text, "And then?"))
    assert again.usage.reused.total == 0
    engine.unload()


def test_loading_can_be_cancelled_and_tells_its_progress(model_path):
    seen: list[LoadProgress] = []
    with pytest.raises(LoadCancelledError):
        Engine.load(model_path, CONFIG, on_progress=seen.append, is_cancelled=lambda: True)
    seen.clear()
    Engine.load(model_path, CONFIG, on_progress=seen.append).unload()
    assert seen[-1] == LoadProgress(1.0, "ready")
    assert all(0.0 <= progress.fraction <= 1.0 for progress in seen)


def test_a_long_conversation_loses_its_oldest_turns_and_then_only_grows(model_path):
    engine = Engine.load(model_path, replace(CONFIG, context_length=512))
    contents = ["Hello, this is the first of many messages."]
    dropped, num_recomputed = [], []
    for turn in range(12):
        asked = request(*contents, overflow=Overflow.DROP_OLDEST, max_tokens=12)
        text, finished = reply(engine, asked)
        dropped.append(finished.dropped_messages)
        num_recomputed.append(finished.usage.recomputed_tokens)
        contents += [text, f"And this is message number {turn}."]
    with pytest.raises(ContextOverflowError):
        list(engine.generate(request(*contents)))
    trimmings = [turn for turn in range(1, 12) if dropped[turn] != dropped[turn - 1]]
    assert 1 <= len(trimmings) <= 4
    for turn in range(1, 12):
        if turn not in trimmings:
            assert num_recomputed[turn] < 90
    plan = engine.plan_overflow(request(*contents, overflow=Overflow.DROP_OLDEST))
    assert set(dropped[-1]) <= set(plan.dropped)
    assert engine.plan_overflow(request(*contents)) is None
    engine.unload()


class BrokenStore(MemoryColdStore):
    """Refuses to tell what it holds."""

    def read_manifests(self, fingerprint: bytes, conversation_id: str, branch: str | None = None):
        raise StoreError("The stored states are damaged.")

    def existing(self, fingerprint: bytes, hashes):
        raise StoreError("The stored states are damaged.")


def test_a_store_that_cannot_be_read_fails_no_reply(model_path):
    engine = Engine.load(model_path, CONFIG, store=BrokenStore())
    _, first = reply(engine, request("Hello there, how are you today? " * 3))
    assert first.usage.completion_tokens > 0
    engine.release("c")
    _, again = reply(engine, request("Hello there, how are you today? " * 3))
    assert again.token_ids == first.token_ids
    engine.unload()


class CountingStore(MemoryColdStore):
    """Counts how often somebody asks for what is stored of a conversation."""

    num_reads = 0

    def read_manifests(self, fingerprint: bytes, conversation_id: str, branch: str | None = None):
        self.num_reads += 1
        return super().read_manifests(fingerprint, conversation_id, branch)


def test_what_is_stored_of_a_conversation_is_read_once_to_bring_it_back(model_path):
    store = CountingStore()
    text = "Hello there, how are you today? " * 3
    engine = Engine.load(model_path, CONFIG, store=store)
    answer, _ = reply(engine, request(text))
    engine.unload()
    store.num_reads = 0
    engine = Engine.load(model_path, CONFIG, store=store)
    later, second = reply(engine, request(text, answer, "And then?"))
    assert second.usage.reused.cold > 0
    assert store.num_reads == 1
    # It went on since: what was read then is not what is stored of it now.
    engine.release("c")
    _, third = reply(engine, request(text, answer, "And then?", later, "And what else?"))
    assert store.num_reads == 2
    assert third.usage.reused.total > second.usage.reused.total
    engine.unload()
