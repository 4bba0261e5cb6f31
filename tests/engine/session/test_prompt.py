"""Planning prompts: only what a session lacks is rendered, and borders lie between messages."""

from __future__ import annotations

from engine.config import ChatMessage
from engine.session.prompt import PromptPlanner
from engine.session.session import Session, message_digest
from tests.engine.session.fake_text import (
    BracketTemplate,
    ByteTokenizer,
    carry_out,
    chat,
    text_of,
)


def planner(template: BracketTemplate | None = None, **options: bool) -> PromptPlanner:
    return PromptPlanner(template or BracketTemplate(), ByteTokenizer(**options))


def answered(session: Session, planning: PromptPlanner, *contents: str, reply: str) -> None:
    """Let the session answer a chat with a reply that was generated, not rendered."""
    start = carry_out(session, planning.plan(session, chat(*contents)))
    session.append(list(reply.encode()))
    digest = message_digest(ChatMessage("assistant", reply))
    session.close_span(digest, start, is_open=True)


def test_first_turn_renders_everything_with_one_segment_per_message():
    plan = planner().plan(Session("c", "b"), chat("hi", system="be kind"))
    texts = [ByteTokenizer().decode(segment.token_ids) for segment in plan.segments]
    assert texts == ["[system|be kind]", "[user|hi]", "[assistant|"]
    assert plan.num_kept == 0


def test_next_turn_closes_the_reply_and_adds_only_the_new_message():
    session, planning = Session("c", "b"), planner()
    answered(session, planning, "hi", reply="hello")
    plan = planning.plan(session, chat("hi", "hello", "bye"))
    texts = [ByteTokenizer().decode(segment.token_ids) for segment in plan.segments]
    assert texts == ["][user|bye]", "[assistant|"]
    carry_out(session, plan)
    assert text_of(session) == "[user|hi][assistant|hello][user|bye][assistant|"


def test_regenerating_keeps_the_question_and_drops_the_reply():
    session, planning = Session("c", "b"), planner()
    answered(session, planning, "hi", reply="hello")
    plan = planning.plan(session, chat("hi"))
    assert plan.num_kept == 1
    assert [segment.digest for segment in plan.segments] == [None]


def test_editing_a_message_keeps_what_stands_before_it():
    session, planning = Session("c", "b"), planner()
    answered(session, planning, "hi", reply="hello")
    carry_out(session, planning.plan(session, chat("hi", "hello", "bye")))
    plan = planning.plan(session, chat("hi", "hello", "wait"))
    assert plan.num_kept == 2
    carry_out(session, plan)
    assert text_of(session) == "[user|hi][assistant|hello][user|wait][assistant|"


def test_white_space_around_a_reply_does_not_make_it_another_message():
    session, planning = Session("c", "b"), planner()
    answered(session, planning, "hi", reply=" hello\n")
    assert planning.plan(session, chat("hi", "hello", "bye")).num_kept == 2


def test_an_open_reply_is_continued_without_new_tokens():
    session, planning = Session("c", "b"), planner()
    answered(session, planning, "hi", reply="hel")
    plan = planning.plan(session, chat("hi", "hel"))
    assert plan.continues
    assert plan.segments == ()


def test_a_reply_that_is_not_in_the_log_is_put_there_before_it_is_continued():
    session, planning = Session("c", "b"), planner()
    plan = planning.plan(session, chat("hi", "hel"))
    carry_out(session, plan)
    assert text_of(session) == "[user|hi][assistant|hel"
    assert not plan.continues


def test_the_log_is_the_truth_where_a_template_renders_history_anew():
    session = Session("c", "b")
    planning = planner(BracketTemplate(rewrites=True))
    answered(session, planning, "hi", reply="hello")
    plan = planning.plan(session, chat("hi", "hello", "bye"))
    assert plan.num_kept == 2
    carry_out(session, plan)
    assert text_of(session) == "[user|hi][assistant|hello][user|bye][assistant|"


def test_a_template_that_refuses_a_lone_system_message_merges_it_with_the_next():
    session = Session("c", "b")
    planning = planner(BracketTemplate(refuses_system_only=True))
    carry_out(session, planning.plan(session, chat("hi", system="be kind")))
    assert session.is_merged(1)
    plan = planning.plan(session, chat("bye", system="be kind"))
    assert plan.num_kept == 0
    carry_out(session, plan)
    assert text_of(session) == "[system|be kind][user|bye][assistant|"


def test_bos_stands_once_at_the_very_start():
    session, planning = Session("c", "b"), planner(adds_bos=True)
    plan = planning.plan(session, chat("hi", system="be kind"))
    ids = [token for segment in plan.segments for token in segment.token_ids]
    assert ids[0] == ByteTokenizer.bos_id
    assert ids.count(ByteTokenizer.bos_id) == 1
