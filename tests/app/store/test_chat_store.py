from __future__ import annotations

import threading
import time
from datetime import timedelta

import pytest

from app.conversation import Message, MessageStatus, ReplyStats, Role
from app.errors import NotFoundError
from app.search import CLOSE, OPEN
from app.store.base import now
from app.store.chat_store import ChatStore
from engine.config import SamplingParams
from engine.events import MissCause, MissReason, ReusedTokens, Timing, Usage

STATS = ReplyStats(
    usage=Usage(10, ReusedTokens(1, 2, 3), 5),
    timing=Timing(1.0, 2.0, 3.0, 4.0),
    miss_reason=MissReason(MissCause.EVICTED, 6, "a", "b"),
    model="tiny",
)


@pytest.fixture
def store(tmp_path):
    store = ChatStore(tmp_path / "chats.db")
    yield store
    store.close()


def add(store: ChatStore, conversation_id: str, parent: Message | None, text: str) -> Message:
    role = Role.USER if parent is None or parent.role is Role.ASSISTANT else Role.ASSISTANT
    parent_id = parent.id if parent else None
    return store.add_message(conversation_id, parent_id=parent_id, role=role, content=text)


def dialogue(store: ChatStore, *texts: str) -> tuple[str, list[Message]]:
    conversation_id = store.create_conversation(title="Talk").id
    messages: list[Message] = []
    for text in texts:
        messages.append(add(store, conversation_id, messages[-1] if messages else None, text))
    return conversation_id, messages


def texts(messages: list[Message]) -> list[str]:
    return [message.content for message in messages]


def test_what_was_written_is_there_after_reopening(tmp_path):
    store = ChatStore(tmp_path / "chats.db")
    conversation = store.create_conversation(
        title="T", model="m", system_prompt="s", sampling=SamplingParams(seed=3), folder="f"
    )
    message = add(store, conversation.id, None, "Hello 世界")
    reply = add(store, conversation.id, message, "Hi")
    reply = store.update_message(reply.id, reasoning="why", stats=STATS)
    store.close()
    store = ChatStore(tmp_path / "chats.db")
    assert store.path(conversation.id) == [message, reply]
    assert reply.stats == STATS
    kept = store.conversation(conversation.id)
    assert (kept.sampling, kept.folder, kept.leaf_id) == (SamplingParams(seed=3), "f", reply.id)
    store.close()


def test_versions_of_a_reply_are_siblings(store):
    key, (question, first) = dialogue(store, "q", "a1")
    second = store.add_message(key, parent_id=question.id, role=Role.ASSISTANT, content="a2")
    assert (second.version, second.num_versions) == (2, 2)
    assert texts(store.path(key)) == ["q", "a2"]
    assert texts(store.siblings(first.id)) == ["a1", "a2"]
    assert store.message(first.id).num_versions == 2


def test_showing_a_version_descends_to_its_newest_leaf(store):
    key, (question, first, follow) = dialogue(store, "q", "a1", "q2")
    store.add_message(key, parent_id=question.id, role=Role.ASSISTANT, content="a2")
    assert store.set_leaf(key, first.id) == follow.id
    assert texts(store.path(key)) == ["q", "a1", "q2"]


def test_deleting_a_message_hides_what_is_below_and_undo_brings_it_back(store):
    key, messages = dialogue(store, "q", "a", "q2", "a2")
    store.delete_message(messages[1].id)
    assert texts(store.path(key)) == ["q"]
    assert store.search("a2") == []
    store.restore_message(messages[1].id)
    assert texts(store.path(key)) == ["q", "a", "q2", "a2"]


def test_deleting_a_version_shows_its_neighbour(store):
    key, (question, first) = dialogue(store, "q", "a1")
    second = store.add_message(key, parent_id=question.id, role=Role.ASSISTANT, content="a2")
    store.delete_message(second.id)
    assert texts(store.path(key)) == ["q", "a1"]
    assert store.message(first.id).num_versions == 1


def test_purging_erases_only_what_was_deleted_long_enough_ago(store):
    key, messages = dialogue(store, "q", "a")
    other, _ = dialogue(store, "other")
    store.delete_conversation(other)
    store.delete_message(messages[1].id)
    assert store.purge_deleted(now() - timedelta(days=1)) == []
    assert store.purge_deleted(now() + timedelta(seconds=1)) == [other]
    with pytest.raises(NotFoundError):
        store.message(messages[1].id)
    assert texts(store.path(key)) == ["q"]


def test_a_deleted_conversation_comes_back_with_undo(store):
    key, _ = dialogue(store, "findable words")
    store.delete_conversation(key)
    assert store.conversations() == []
    assert store.search("findable") == []
    store.restore_conversation(key)
    assert [item.id for item in store.conversations()] == [key]


def test_pinned_come_first_and_archived_are_hidden(store):
    a, b, c = (store.create_conversation(title=name).id for name in "abc")
    store.update_conversation(a, is_pinned=True)
    store.update_conversation(b, is_archived=True)
    assert [item.id for item in store.conversations()] == [a, c]
    assert {item.id for item in store.conversations(include_archived=True)} == {a, b, c}


def test_conversations_keep_the_order_given_by_hand(store):
    a, b, c = (store.create_conversation(title=name).id for name in "abc")
    store.move_conversation(a, before_id=c)
    assert [item.id for item in store.conversations()] == [a, c, b]
    store.move_conversation(a, before_id=None)
    assert [item.id for item in store.conversations()] == [c, b, a]


def test_sampling_can_be_unset_while_other_fields_stay(store):
    key = store.create_conversation(title="T", sampling=SamplingParams()).id
    assert store.update_conversation(key, draft="d").sampling == SamplingParams()
    assert store.update_conversation(key, sampling=None).sampling is None
    assert store.conversation(key).draft == "d"


def test_folders_are_those_in_use(store):
    key = store.create_conversation(folder="Work").id
    store.create_conversation(folder="home")
    assert store.folders() == ["home", "Work"]
    store.delete_conversation(key)
    assert store.folders() == ["home"]


@pytest.mark.parametrize("word", ["量子", "纠缠态", "entangle", "ENTANGLE", "tangl", "50%", "a_b"])
def test_search_finds_chinese_parts_of_words_and_odd_characters(store, word):
    key, (message, _) = dialogue(store, "量子纠缠态 means Entanglement at 50% a_b", "zzz")
    dialogue(store, "nothing of the kind", "量 子 500 axb")
    assert [(hit.conversation_id, hit.message_id) for hit in store.search(word)] == [
        (key, message.id)
    ]


def test_search_wants_every_word_and_marks_them(store):
    dialogue(store, "the quick fox")
    key, _ = dialogue(store, "the quick brown fox 狐狸")
    hit = store.search("brown 狐狸 qu")[0]
    assert hit.conversation_id == key
    assert f"{OPEN}brown{CLOSE}" in hit.snippet
    assert f"{OPEN}狐狸{CLOSE}" in hit.snippet


def test_search_puts_titles_first_and_lists_a_conversation_once(store):
    texted, _ = dialogue(store, "violin", "violin")
    titled = store.create_conversation(title="Violin lessons").id
    assert [hit.conversation_id for hit in store.search("violin")] == [titled, texted]


@pytest.mark.parametrize("text", ['"', '""', "' OR 1=1", '"a b', "*", "NEAR(", "\0", "a\\", "-x:y"])
def test_search_takes_any_text(store, text):
    dialogue(store, "harmless")
    assert store.search(text) == []


def test_a_streaming_reply_is_found_once_it_is_done(store):
    key, (question,) = dialogue(store, "q")
    reply = store.add_message(
        key,
        parent_id=question.id,
        role=Role.ASSISTANT,
        content="",
        status=MessageStatus.STREAMING,
    )
    store.update_message(reply.id, content="platypus")
    assert store.search("platypus") == []
    store.update_message(reply.id, status=MessageStatus.COMPLETE)
    assert len(store.search("platypus")) == 1
    store.update_message(reply.id, content="wombat")
    assert store.search("platypus") == []
    assert len(store.search("wombat")) == 1


def test_replies_that_were_streaming_when_the_program_ended_become_stopped(store):
    key, (question,) = dialogue(store, "q")
    reply = store.add_message(
        key,
        parent_id=question.id,
        role=Role.ASSISTANT,
        content="partial",
        status=MessageStatus.STREAMING,
    )
    assert store.recover_unfinished() == 1
    assert store.message(reply.id).status is MessageStatus.STOPPED
    assert len(store.search("partial")) == 1
    assert store.recover_unfinished() == 0


def test_what_is_not_there_is_a_typed_error(store):
    key, (message,) = dialogue(store, "q")
    other = store.create_conversation().id
    with pytest.raises(NotFoundError):
        store.path("nowhere")
    with pytest.raises(NotFoundError):
        store.update_message("nowhere", content="x")
    with pytest.raises(NotFoundError):
        store.set_leaf(key, "nowhere")
    with pytest.raises(NotFoundError):
        store.add_message(other, parent_id=message.id, role=Role.USER, content="x")


def test_visits_tell_what_is_likely_opened_next(store):
    a, b, c = (store.create_conversation(title=name).id for name in "abc")
    for _ in range(4):
        store.record_visit(a)
        store.record_visit(b)
    store.record_visit(c)
    store.record_visit(a)
    assert store.likely_next(a)[0] == b
    assert a not in store.likely_next(a)


def test_two_threads_may_write_and_read_at_once(store):
    key, (message,) = dialogue(store, "q")
    errors: list[BaseException] = []

    def write(number: int) -> None:
        try:
            for at in range(25):
                store.update_message(message.id, content=f"{number} {at}")
                store.add_message(key, parent_id=message.id, role=Role.ASSISTANT, content="r")
                store.path(key)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(store.messages(key)) == 76


def test_a_long_conversation_opens_without_reading_other_branches_in_full(store):
    key, messages = dialogue(store, *(f"message {at} " + "word " * 40 for at in range(60)))
    # Of the processor: other work on the machine must not count.
    started = time.thread_time()
    path = store.path(key)
    assert time.thread_time() - started < 1.0
    assert [message.id for message in path] == [message.id for message in messages]
