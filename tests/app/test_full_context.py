"""A conversation that no longer fits: the question, the answers, and what is remembered of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.conversation import LeftOut, Message, MessageStatus, Role
from app.events import ReplyFinished, ReplyTrimmed
from app.prompting import branch_of
from engine.config import ChatMessage, Overflow
from engine.events import ContextCut, OverflowOption, OverflowQuestion, RollRefusal
from tests.app.conftest import App
from tests.app.test_chat import answered, finished

QUESTION = OverflowQuestion(
    prompt_tokens=120,
    limit_tokens=112,
    context_length=128,
    options=(
        OverflowOption(Overflow.DROP_OLDEST, (0, 1), 40, 50),
        OverflowOption(Overflow.ROLLING_WINDOW, (0, 1), 40, 0, RollRefusal.RECURRENT),
    ),
)


def chosen(app: App, asking: Message) -> Message:
    """Drop the oldest turns and wait for the reply."""
    app.services.chat.full_context.choose(asking.id, Overflow.DROP_OLDEST)

    def is_answer(event: ReplyFinished) -> bool:
        return event.message.id == asking.id and event.message.status is MessageStatus.COMPLETE

    return app.wait_for(ReplyFinished, is_answer).message


@pytest.fixture
def conversation_id(app: App) -> str:
    app.load()
    return app.services.chat.new_conversation().id


@pytest.fixture
def asking(app: App, conversation_id: str) -> Message:
    """A reply that asks, after one turn that was answered."""
    answered(app, conversation_id, "First")
    app.engine.question = QUESTION
    return answered(app, conversation_id, "Second")


def test_a_full_context_asks_before_anything_is_read(app, asking):
    assert asking.status is MessageStatus.ASKING
    assert len(app.engine.asked) == 1
    oldest, rolling = asking.question.choices
    assert (oldest.num_messages, oldest.num_tokens, oldest.reread_tokens) == (2, 40, 50)
    assert oldest.seconds == 0.5
    assert rolling.refusal == "recurrent"
    assert app.services.chats.message(asking.id) == asking
    assert app.services.chats.recover_unfinished() == 0, "the question outlives the program"


def test_a_choice_is_carried_out_and_remembered_on_the_branch(app, conversation_id, asking):
    path = app.services.chat.path(conversation_id)
    gone = tuple(message.id for message in path[:2])
    app.engine.cut = ContextCut(Overflow.DROP_OLDEST, (0, 1), 40)
    reply = chosen(app, asking)
    assert app.engine.asked[-1].overflow is Overflow.DROP_OLDEST
    assert reply.status is MessageStatus.COMPLETE
    assert reply.left_out == LeftOut("drop_oldest", gone, 40, 128)
    told = app.wait_for(ReplyTrimmed)
    assert told.left_out == reply.left_out
    assert app.services.chat.prompting.messages(conversation_id) == (
        ChatMessage("user", "Second"),
        ChatMessage("assistant", "one two three"),
    )
    app.engine.question = None
    answered(app, conversation_id, "Third")
    assert app.engine.asked[-1].dropped == (0, 1)
    assert app.engine.asked[-1].overflow is Overflow.ASK
    finished(app, app.services.chat.regenerate(reply.id))
    assert app.engine.asked[-1].dropped == (0, 1), "another version sees what the first one saw"


def test_an_edit_before_the_cut_sees_everything_again(app, conversation_id, asking):
    app.engine.cut = ContextCut(Overflow.DROP_OLDEST, (0, 1), 40)
    chosen(app, asking)
    app.engine.question = app.engine.cut = None
    first = app.services.chat.path(conversation_id)[0]
    _, reply = app.services.chat.edit(first.id, "Another first")
    finished(app, reply)
    assert app.engine.asked[-1].dropped == ()


def test_a_larger_context_tries_the_whole_conversation(app, conversation_id, asking):
    app.services.chats.update_message(
        asking.id,
        status=MessageStatus.COMPLETE,
        content="x",
        left_out=LeftOut("drop_oldest", (asking.parent_id,), 9, context_length=64),
    )
    app.engine.question = None
    answered(app, conversation_id, "Third")
    assert app.engine.asked[-1].dropped == ()


def test_taking_it_back_returns_the_text(app, conversation_id, asking):
    assert app.services.chat.full_context.cancel(asking.id) == "Second"
    texts = [message.content for message in app.services.chat.path(conversation_id)]
    assert texts == ["First", "one two three"]


def test_taking_back_another_version_keeps_the_first(app, conversation_id):
    reply = answered(app, conversation_id, "First")
    app.engine.question = QUESTION
    asking = finished(app, app.services.chat.regenerate(reply.id))
    assert app.services.chat.full_context.cancel(asking.id) == ""
    assert app.services.chat.path(conversation_id)[-1] == reply


def test_taking_back_a_continuation_keeps_the_reply(app, conversation_id):
    reply = answered(app, conversation_id, "First")
    app.engine.question = QUESTION
    asking = finished(app, app.services.chat.continue_reply(reply.id))
    assert asking.content == reply.content
    assert app.services.chat.full_context.cancel(asking.id) == ""
    assert app.services.chats.message(reply.id).status is MessageStatus.LENGTH


def test_starting_over_asks_the_same_in_a_new_conversation(app, conversation_id, asking):
    app.services.chat.set_system_prompt(conversation_id, "Be kind.")
    app.engine.question = None
    new = app.services.chat.full_context.start_over(asking.id)
    app.wait_for(ReplyFinished, lambda event: event.message.conversation_id == new.id)
    assert app.engine.asked[-1].messages == (
        ChatMessage("system", "Be kind."),
        ChatMessage("user", "Second"),
    )
    assert len(app.services.chat.path(conversation_id)) == 2


def test_pinned_messages_are_named_to_the_engine(app, conversation_id):
    app.services.chat.set_system_prompt(conversation_id, "Be kind.")
    reply = answered(app, conversation_id, "First")
    assert app.services.chat.set_message_pinned(reply.id, True).is_pinned
    answered(app, conversation_id, "Second")
    assert app.engine.asked[-1].pinned == (2,)
    copy = app.services.chat.clone(conversation_id, decay=1.0)
    assert [message.is_pinned for message in app.services.chat.path(copy.id)][:2] == [False, True]


def test_the_setting_decides_without_a_question(app, conversation_id):
    app.services.settings.update(overflow="keep_ends")
    app.engine.question = QUESTION
    assert answered(app, conversation_id, "First").status is MessageStatus.COMPLETE
    assert app.engine.asked[-1].overflow is Overflow.KEEP_ENDS


def test_rows_without_text_belong_to_the_message_before(app):
    def row(key, role, content):
        moment = app.services.chats.create_conversation().created_at
        return Message(key, "c", None, role, content, moment)

    path = [
        row("a", Role.USER, "one"),
        row("b", Role.ASSISTANT, ""),
        row("c", Role.USER, "two"),
        row("d", Role.ASSISTANT, "three"),
        replace(row("e", Role.USER, "four"), is_pinned=True),
    ]
    branch = branch_of(path, "system")
    assert [message.content for message in branch.messages] == [
        "system",
        "one\n\ntwo",
        "three",
        "four",
    ]
    assert branch.ids == ((), ("a", "b", "c"), ("d",), ("e",))
    assert branch.pinned == (3,)
    assert branch.indices(("b",)) == (1,)
    assert branch.rows((1, 3)) == ("a", "b", "c", "e")
