"""Conversations: rows first, then the engine; branches, versions, stopping, deleting."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from app.conversation import Message, MessageStatus, ReadyTier, Role
from app.errors import DatabaseFullError
from app.events import CacheChanged, ReplyDelta, ReplyFinished, ReplyProgress, ReplyQueued
from app.prompting import ReplyOptions
from engine.config import ChatMessage, SamplingParams
from engine.errors import ContextOverflowError
from tests.app.conftest import App


def answered(app: App, conversation_id: str, text: str) -> Message:
    _, reply = app.services.chat.send(conversation_id, text)
    return finished(app, reply)


def finished(app: App, reply: Message) -> Message:
    return app.wait_for(ReplyFinished, lambda event: event.message.id == reply.id).message


@pytest.fixture
def conversation_id(app: App) -> str:
    app.load()
    return app.services.chat.new_conversation().id


def test_a_message_is_stored_before_any_model_is_there(app):
    conversation = app.services.chat.new_conversation()
    message, reply = app.services.chat.send(conversation.id, "Hello")
    assert app.services.chats.message(message.id).content == "Hello"
    assert app.services.chats.message(reply.id).status is MessageStatus.STREAMING
    app.load()
    assert finished(app, reply).content == "one two three"


def test_a_reply_streams_and_ends_with_what_it_cost(app, conversation_id):
    reply = answered(app, conversation_id, "Hello")
    assert reply.status is MessageStatus.COMPLETE
    assert reply.stats is not None
    assert reply.stats.usage.recomputed_tokens == 5
    assert app.services.chats.message(reply.id) == reply
    deltas = [event.text for event in app.events if isinstance(event, ReplyDelta)]
    assert "".join(deltas) == reply.content
    kinds = [type(event) for event in app.events]
    assert kinds.index(ReplyQueued) < kinds.index(ReplyDelta)
    assert kinds.index(ReplyProgress) < kinds.index(ReplyDelta)


def test_the_model_sees_system_prompt_and_branch(app, conversation_id):
    app.services.chat.set_system_prompt(conversation_id, "Be kind.")
    answered(app, conversation_id, "Hello")
    answered(app, conversation_id, "More")
    assert app.engine.asked[-1].messages == (
        ChatMessage("system", "Be kind."),
        ChatMessage("user", "Hello"),
        ChatMessage("assistant", "one two three"),
        ChatMessage("user", "More"),
    )


def test_the_first_message_names_the_conversation(app, conversation_id):
    answered(app, conversation_id, "How do tides work? I live by the sea.")
    assert app.services.chats.conversation(conversation_id).title == "How do tides work?"


def test_options_of_one_reply_go_before_settings(app, conversation_id):
    options = ReplyOptions(SamplingParams(temperature=0.0), max_tokens=7)
    _, reply = app.services.chat.send(conversation_id, "Hello", options=options)
    finished(app, reply)
    assert app.engine.asked[-1].sampling.temperature == 0.0
    assert app.engine.asked[-1].max_tokens == 7


def test_regenerating_adds_a_version_beside_the_old_one(app, conversation_id):
    old = answered(app, conversation_id, "Hello")
    new = finished(app, app.services.chat.regenerate(old.id))
    assert (new.version, new.num_versions) == (2, 2)
    assert new.parent_id == old.parent_id
    assert app.engine.asked[-1].messages == (ChatMessage("user", "Hello"),)
    path = app.services.chat.show_version(old.id)
    assert path[-1].id == old.id


def test_editing_branches_and_erases_nothing(app, conversation_id):
    reply = answered(app, conversation_id, "Hello")
    first = app.services.chats.message(reply.parent_id)
    edited, second_reply = app.services.chat.edit(first.id, "Good morning")
    finished(app, second_reply)
    texts = [message.content for message in app.services.chat.path(conversation_id)]
    assert texts == ["Good morning", "one two three"]
    assert [version.content for version in app.services.chat.versions(edited.id)] == [
        "Hello",
        "Good morning",
    ]


def test_editing_a_reply_changes_the_text_without_generating(app, conversation_id):
    reply = answered(app, conversation_id, "Hello")
    num_asked = len(app.engine.asked)
    edited = app.services.chat.edit(reply.id, "Hi!")
    assert edited.role is Role.ASSISTANT
    assert app.services.chat.path(conversation_id)[-1].content == "Hi!"
    assert len(app.engine.asked) == num_asked


def test_stopping_keeps_what_was_drawn_and_continuing_goes_on_from_there(app, conversation_id):
    app.engine.gate = threading.Semaphore(1)
    _, reply = app.services.chat.send(conversation_id, "Hello")
    app.wait_for(ReplyDelta)
    assert app.services.chat.is_busy(conversation_id)
    app.services.chat.stop(conversation_id)
    app.engine.gate.release(5)
    stopped = finished(app, reply)
    assert stopped.status is MessageStatus.STOPPED
    assert stopped.content.startswith("one ")
    app.engine.gate.release(5)
    app.events.clear()
    continued = finished(app, app.services.chat.continue_reply(reply.id))
    assert continued.content == stopped.content + "one two three"
    assert app.engine.asked[-1].messages[-1] == ChatMessage("assistant", stopped.content)
    assert not app.services.chat.is_busy(conversation_id)


def test_a_failure_is_kept_with_the_message_in_plain_words(app, conversation_id):
    app.engine.fails_with = ContextOverflowError(200, 128)
    reply = answered(app, conversation_id, "Hello")
    assert reply.status is MessageStatus.ERROR
    assert "200 tokens" in reply.error
    assert not app.services.chat.is_busy(conversation_id)


def test_after_a_failure_two_user_messages_become_one_for_the_model(app, conversation_id):
    app.engine.fails_with = ContextOverflowError(200, 128)
    answered(app, conversation_id, "Hello")
    app.engine.fails_with = None
    answered(app, conversation_id, "Still there?")
    assert app.engine.asked[-1].messages == (ChatMessage("user", "Hello\n\nStill there?"),)


def test_a_message_sent_while_busy_waits_and_sees_the_finished_reply(app, conversation_id):
    app.engine.gate = threading.Semaphore(0)
    app.services.chat.send(conversation_id, "Hello")
    _, second = app.services.chat.send(conversation_id, "And?")
    app.engine.gate.release(10)
    finished(app, second)
    assert app.engine.asked[-1].messages[1] == ChatMessage("assistant", "one two three")


def test_a_reply_under_way_is_shown_as_far_as_it_is(app, conversation_id):
    app.engine.gate = threading.Semaphore(1)
    _, reply = app.services.chat.send(conversation_id, "Hello")
    delta = app.wait_for(ReplyDelta)
    assert delta.offset == 0
    assert app.services.chat.path(conversation_id)[-1].content == "one "
    app.engine.gate.release(5)
    finished(app, reply)
    offsets = [event.offset for event in app.events if isinstance(event, ReplyDelta)]
    assert offsets == [0, 4, 8]


def test_deleting_a_conversation_can_be_undone(app, conversation_id):
    answered(app, conversation_id, "Hello")
    app.services.chat.delete_conversation(conversation_id)
    assert app.services.chat.conversations() == []
    app.services.chat.undo_delete_conversation(conversation_id)
    assert len(app.services.chat.path(conversation_id)) == 2


def test_a_reply_in_another_conversation_leaves_an_unread_mark(app, conversation_id):
    app.services.chat.open(conversation_id)
    other = app.services.chat.new_conversation().id
    answered(app, conversation_id, "Hello")
    answered(app, other, "Hello")
    assert not app.services.chats.conversation(conversation_id).is_unread
    assert app.services.chats.conversation(other).is_unread
    app.services.chat.open(other)
    assert not app.services.chats.conversation(other).is_unread


def test_readiness_and_context_use_follow_a_reply(app, conversation_id):
    answered(app, conversation_id, "Hello")
    app.wait_for(CacheChanged, lambda event: event.reuse_rate == 0.5)
    assert app.services.chat.context_use(conversation_id) == (13, 128)
    deadline = threading.Event()
    while app.services.chat.readiness(conversation_id) is None:
        assert not deadline.wait(0.01)
    readiness = app.services.chat.readiness(conversation_id)
    assert readiness.tier is ReadyTier.HOT
    assert readiness.seconds == pytest.approx(0.02)


def test_several_replies_are_versions_of_each_other(app, conversation_id):
    message, replies = app.services.chat.send_for_versions(conversation_id, "Hello", 3)
    for reply in replies:
        assert finished(app, reply).content == "one two three"
    rows = app.services.chats.siblings(replies[1].id)
    assert [row.id for row in rows] == [reply.id for reply in replies]
    assert {row.parent_id for row in rows} == {message.id}
    path = app.services.chat.path(conversation_id)
    assert path[-1].id == replies[0].id
    assert len(app.engine.asked) == 3
    assert not app.services.chat.is_busy(conversation_id)


def test_several_replies_are_stopped_and_fail_together(app, conversation_id):
    app.engine.gate = threading.Semaphore(0)
    _, replies = app.services.chat.send_for_versions(conversation_id, "Hello", 2)
    app.wait_for(ReplyProgress)
    app.services.chat.stop(conversation_id)
    app.engine.gate.release(2)
    assert {finished(app, reply).status for reply in replies} == {MessageStatus.STOPPED}
    app.engine.gate, app.engine.fails_with = None, ContextOverflowError(9, 8)
    _, replies = app.services.chat.send_for_versions(conversation_id, "More", 2)
    assert {finished(app, reply).status for reply in replies} == {MessageStatus.ERROR}


def test_a_reply_that_cannot_be_saved_is_kept_and_saved_later(app, conversation_id, monkeypatch):
    store, full = app.services.chats, DatabaseFullError("The disk is full.")
    app.engine.gate = threading.Semaphore(1)
    _, reply = app.services.chat.send(conversation_id, "Hello")
    app.wait_for(ReplyDelta)
    with monkeypatch.context() as patch:
        patch.setattr(store, "update_message", raising(full))
        patch.setattr(store, "update_conversation", raising(full))
        app.engine.gate.release(2)
        event = app.wait_for(ReplyFinished)
        assert event.error is not None
        assert event.error.kind == "DatabaseFullError"
        assert event.message.content == "one two three"
        assert app.services.chat.path(conversation_id)[-1] == event.message
        with pytest.raises(DatabaseFullError):
            app.services.chat.send(conversation_id, "More")
    app.wait_for(ReplyFinished, lambda event: event.error is None)
    saved = store.message(reply.id)
    assert (saved.content, saved.status) == ("one two three", MessageStatus.COMPLETE)
    assert app.services.chat.path(conversation_id)[-1] == saved
    app.engine.gate.release(3)
    assert answered(app, conversation_id, "More").content == "one two three"


def test_what_could_not_be_saved_is_saved_before_the_next_message_is_sent(
    app, conversation_id, monkeypatch
):
    app.services.worker.idle_job = lambda: None
    with monkeypatch.context() as patch:
        patch.setattr(app.services.chats, "update_message", raising(DatabaseFullError("Full.")))
        answered(app, conversation_id, "Hello")
    answered(app, conversation_id, "More")
    contents = [message.content for message in app.engine.asked[-1].messages]
    assert contents == ["Hello", "one two three", "More"]


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise error

    return fail
