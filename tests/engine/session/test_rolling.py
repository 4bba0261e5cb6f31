"""Rolled logs read as if the lost turns had never been; rolled conversations read nothing again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from engine.config import ChatMessage, KVCodec, Overflow
from engine.engine import Engine
from engine.events import ContextCut, Finished, RollRefusal
from engine.memory.cold_store import MemoryColdStore
from engine.session.prompt import PromptPlanner
from engine.session.rolling import Rolling, roll_log
from engine.session.session import Session, message_digest
from tests.engine.session.fake_text import (
    BracketTemplate,
    ByteTokenizer,
    carry_out,
    chat,
    text_of,
)
from tests.engine.test_engine import CONFIG, reply, request
from tests.engine.tiny_models import TinyModel, write_tiny_model

SYSTEM = "[system|be kind]"


class DefaultSystemTemplate(BracketTemplate):
    """Puts a system prompt of its own before a conversation that has none."""

    def render(self, messages, *, add_generation_prompt):
        has_own = bool(messages) and messages[0].role != "system"
        text = super().render(messages, add_generation_prompt=add_generation_prompt)
        return ("[system|default]" if has_own else "") + text

    def text_after(self, messages, count, *, add_generation_prompt):
        full = self.render(messages, add_generation_prompt=add_generation_prompt)
        kept = self.render(messages[:count], add_generation_prompt=False)
        return full[len(kept) - 1 :]


class FoldingTemplate(BracketTemplate):
    """Knows no system role: that text goes into the first message of the person."""

    def render(self, messages, *, add_generation_prompt):
        if messages and messages[0].role == "system":
            first = messages[1].content if len(messages) > 1 else ""
            folded = ChatMessage("user", f"{messages[0].content}\n{first}")
            messages = [folded, *messages[2:]]
        return super().render(messages, add_generation_prompt=add_generation_prompt)

    def text_after(self, messages, count, *, add_generation_prompt):
        full = self.render(messages, add_generation_prompt=add_generation_prompt)
        kept = self.render(messages[:count], add_generation_prompt=False)
        return full[len(kept) - 1 :]


def spoken(planner, messages):
    """A log in which every reply was generated: its closing comes with the next message."""
    session = Session("c", "b")
    for count, message in enumerate(messages, start=1):
        if message.role == "assistant":
            start = carry_out(session, planner.plan(session, messages[: count - 1]))
            session.append(list(message.content.encode()))
            session.close_span(message_digest(message), start, is_open=True)
    return session


def rolled_text(template, messages, kept, *, session=None, **tokenizer):
    planner = PromptPlanner(template, ByteTokenizer(**tokenizer))
    session = session or spoken(planner, messages)
    found = roll_log(session, messages, kept, planner)
    if found is None:
        return None
    assert list(found.places) == sorted(set(found.places))
    assert [span.digest for span in found.spans] == [message_digest(messages[i]) for i in kept]
    new = Session("c", "n")
    new.append([session.token_ids[place] for place in found.places])
    new.spans.extend(found.spans)
    assert new.spans[-1].end == len(new.token_ids)
    return text_of(new)


TURNS = ("hi", "hello", "how", "fine", "bye", "see you")


def test_a_log_with_a_system_prompt_goes_on_behind_it():
    text = rolled_text(BracketTemplate(), chat(*TURNS, system="be kind"), [0, 3, 4, 5, 6])
    assert text == f"{SYSTEM}[user|how][assistant|fine][user|bye][assistant|see you"


def test_a_log_without_one_begins_like_a_new_chat():
    text = rolled_text(BracketTemplate(), chat(*TURNS), [4, 5], adds_bos=True)
    assert text == "[user|bye][assistant|see you"
    text = rolled_text(DefaultSystemTemplate(), chat(*TURNS), [4, 5])
    assert text == "[system|default][user|bye][assistant|see you"


def test_a_system_prompt_inside_the_first_message_stays():
    text = rolled_text(FoldingTemplate(), chat(*TURNS, system="be kind"), [0, 5, 6])
    assert text == "[user|be kind\nbye][assistant|see you"


def test_a_turn_that_stays_is_closed_once():
    text = rolled_text(BracketTemplate(), chat(*TURNS), [0, 1, 4, 5])
    assert text == "[user|hi][assistant|hello][user|bye][assistant|see you"


def test_a_turn_behind_two_gaps_is_closed_once():
    more = (*TURNS, "again", "yes")
    text = rolled_text(BracketTemplate(), chat(*more, system="be kind"), [0, 3, 4, 7, 8])
    assert text == f"{SYSTEM}[user|how][assistant|fine][user|again][assistant|yes"


def test_replies_that_were_read_and_not_generated_are_closed_already():
    planner = PromptPlanner(BracketTemplate(), ByteTokenizer())
    messages = chat(*TURNS, "end", system="be kind")
    session = Session("c", "b")
    carry_out(session, planner.plan(session, messages))
    text = rolled_text(BracketTemplate(), messages, [0, 3, 4, 7], session=session)
    assert text == f"{SYSTEM}[user|how][assistant|fine][user|end]"


def test_text_that_stands_nowhere_in_the_log_is_no_border():
    planner = PromptPlanner(BracketTemplate(), ByteTokenizer())
    session = spoken(planner, chat(*TURNS))
    assert rolled_text(DefaultSystemTemplate(), chat(*TURNS), [4, 5], session=session) is None


def test_other_memories_are_refused():
    rolling = Rolling(object(), None, None, None)
    assert rolling.roll("c", (), []) is rolling.num_ready("c", (), []) is RollRefusal.RECURRENT


# Over a tiny model

TALK = "And this is message number {0}, which says a little more."


def run(engine, num_turns, policy=Overflow.ROLLING_WINDOW, contents=None, **options):
    """Talk; yield the conversation so far, what was cut and how each reply ended."""
    contents = contents if contents is not None else ["Hello, this is the first message."]
    dropped = options.pop("dropped", ())
    for turn in range(num_turns):
        asked = request(*contents, overflow=policy, dropped=dropped, max_tokens=4, **options)
        events = list(engine.generate(asked))
        cut = events[0] if isinstance(events[0], ContextCut) else None
        dropped = cut.dropped if cut is not None else ()
        finished = events[-1]
        assert isinstance(finished, Finished)
        text = "".join(getattr(event, "text", "") for event in events)
        contents += [text, TALK.format(turn)]
        yield cut, finished


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def model_path(request, tmp_path_factory):
    model = TinyModel(architecture=request.param, window=64)
    return write_tiny_model(tmp_path_factory.mktemp("model") / f"{request.param}.gguf", model)


@pytest.fixture(scope="module")
def llama_path(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


def test_a_rolling_window_reads_only_what_is_new(model_path):
    codec = KVCodec.INT8 if model_path.stem == "gemma3" else KVCodec.F16
    engine = Engine.load(model_path, replace(CONFIG, context_length=512, kv_codec=codec))
    num_cuts = 0
    for cut, finished in run(engine, 10):
        assert finished.usage.recomputed_tokens < 100
        assert finished.usage.prompt_tokens <= 512
        if cut is not None:
            assert cut.refusal is None
            num_cuts += cut.dropped_tokens > 0
    assert 1 <= num_cuts <= 4
    engine.unload()


def test_a_rolled_conversation_goes_on_after_a_restart_and_from_an_edit(llama_path):
    store, config = MemoryColdStore(), replace(CONFIG, context_length=512)
    contents = ["Hello, this is the first message."]
    engine = Engine.load(llama_path, config, store=store)
    *_, (cut, _) = run(engine, 8, contents=contents)
    assert len(cut.dropped) >= 2
    engine.unload()
    engine = Engine.load(llama_path, config, store=store)
    ((_, after),) = run(engine, 1, contents=list(contents), dropped=cut.dropped)
    assert after.usage.reused.cold > 200
    assert after.usage.recomputed_tokens < 100
    edited = [*contents[:-3], "Something else."]
    ((_, branch),) = run(engine, 1, contents=edited, dropped=cut.dropped)
    assert branch.usage.recomputed_tokens < 100
    engine.unload()


def test_a_conversation_rolls_right_after_a_restart(model_path):
    store, config = MemoryColdStore(), replace(CONFIG, context_length=512)
    contents = ["Hello, this is the first message."]
    engine = Engine.load(model_path, config, store=store)
    *_, (cut, _) = run(engine, 7, contents=contents)
    assert cut is None
    engine.unload()
    engine = Engine.load(model_path, config, store=store)
    ((cut, finished),) = run(engine, 1, contents=contents)
    assert cut.refusal is None
    assert finished.usage.recomputed_tokens < 100
    engine.unload()


def test_a_reply_that_is_continued_rolls_too(llama_path):
    engine = Engine.load(llama_path, replace(CONFIG, context_length=512))
    contents = ["Hello, this is the first message."]
    *_, (cut, _) = run(engine, 7, contents=contents)
    assert cut is None
    asked = request(*contents[:-1], overflow=Overflow.ROLLING_WINDOW, max_tokens=60)
    events = list(engine.generate(asked))
    assert events[0].dropped_tokens > 0
    assert events[0].refusal is None
    assert events[-1].usage.recomputed_tokens < 16
    engine.unload()


def test_what_a_policy_costs_is_told_before_it_happens(llama_path):
    engine = Engine.load(llama_path, replace(CONFIG, context_length=512))
    contents = ["Hello, this is the first message."]
    asked = request(*contents, max_tokens=4)
    while (question := engine.overflow_question(asked)) is None:
        list(run(engine, 1, contents=contents))
        asked = request(*contents, max_tokens=4)
    assert question.limit_tokens == 508
    assert question.prompt_tokens > 508
    options = {option.policy: option for option in question.options}
    oldest, rolling = options[Overflow.DROP_OLDEST], options[Overflow.ROLLING_WINDOW]
    assert oldest.dropped == rolling.dropped == tuple(range(len(oldest.dropped)))
    assert options[Overflow.KEEP_ENDS].dropped[0] == 2
    assert oldest.reread_tokens > 200
    assert rolling.reread_tokens <= 16
    kept = question.prompt_tokens - oldest.dropped_tokens
    _, finished = reply(engine, replace(asked, overflow=Overflow.DROP_OLDEST, ephemeral=True))
    # Read again, a reply of random bytes may have another number of tokens.
    assert abs(finished.usage.prompt_tokens - kept) < 50
    _, finished = reply(engine, replace(asked, overflow=Overflow.ROLLING_WINDOW))
    # The closing of the last lost reply goes with it.
    assert kept - 2 == finished.usage.prompt_tokens
    assert finished.dropped_messages == rolling.dropped
    assert engine.overflow_question(replace(asked, dropped=rolling.dropped)) is None
    engine.unload()


def test_a_message_too_long_by_itself_asks_no_question(llama_path):
    engine = Engine.load(llama_path, replace(CONFIG, context_length=512))
    assert engine.overflow_question(request("word " * 600)) is None
    engine.unload()
