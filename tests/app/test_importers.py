from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from app.conversation import LeftOut, MessageStatus, Role
from app.errors import ExportError, ImportFormatError
from app.export import to_json, to_markdown, write_text
from app.importers import read_file, read_text
from app.store.chat_store import ChatStore
from app.transcript import TranscriptMessage, in_order


@pytest.fixture
def store(tmp_path):
    store = ChatStore(tmp_path / "chats.db")
    yield store
    store.close()


def branched(store: ChatStore) -> str:
    key = store.create_conversation(title="Branches", system_prompt="Be kind.", folder="F").id
    ask = store.add_message(key, parent_id=None, role=Role.USER, content="Why 为什么?")
    first = store.add_message(key, parent_id=ask.id, role=Role.ASSISTANT, content="Because 1")
    store.add_message(key, parent_id=ask.id, role=Role.ASSISTANT, content="Because 2")
    store.update_message(first.id, reasoning="hmm", status=MessageStatus.STOPPED)
    store.set_leaf(key, first.id)
    return key


def outline(store: ChatStore, key: str) -> list[tuple]:
    messages = store.messages(key)
    texts = {item.id: item.content for item in messages}
    return [
        (texts.get(item.parent_id), item.role, item.content, item.reasoning, item.status)
        for item in messages
    ]


def test_our_own_json_comes_back_with_every_branch(store):
    key = branched(store)
    text = to_json([(store.conversation(key), store.messages(key))])
    (transcript,) = read_text(text)
    copy = store.add_transcript(transcript)
    assert copy.id != key
    assert outline(store, copy.id) == outline(store, key)
    assert [item.content for item in store.path(copy.id)] == ["Why 为什么?", "Because 1"]
    before = store.conversation(key)
    assert (copy.title, copy.system_prompt, copy.folder) == ("Branches", "Be kind.", "F")
    assert copy.created_at == before.created_at


def test_pins_and_what_a_reply_left_out_come_back(store):
    key = branched(store)
    ask, first, second = store.messages(key)
    store.update_message(ask.id, is_pinned=True)
    out = LeftOut("drop_oldest", (ask.id, first.id), 40, 128, refusal="no_room")
    store.update_message(second.id, left_out=out)
    text = to_json([(store.conversation(key), store.messages(key))])
    assert json.loads(text)["version"] == 2
    copy = store.add_transcript(*read_text(text))
    new_ask, new_first, new_second = store.messages(copy.id)
    assert [message.is_pinned for message in store.messages(copy.id)] == [True, False, False]
    assert new_second.left_out == replace(out, ids=(new_ask.id, new_first.id))
    assert new_first.left_out is None


def test_a_file_of_the_first_version_is_read_and_one_of_a_newer_program_refused(store):
    key = branched(store)
    document = json.loads(to_json([(store.conversation(key), store.messages(key))]))
    for message in document["conversations"][0]["messages"]:
        del message["is_pinned"], message["left_out"]
    (transcript,) = read_text(json.dumps(document | {"version": 1}))
    copy = store.add_transcript(transcript)
    assert outline(store, copy.id) == outline(store, key)
    assert not any(message.is_pinned or message.left_out for message in store.messages(copy.id))
    with pytest.raises(ImportFormatError, match="newer"):
        read_text(json.dumps(document | {"version": 3}))


def test_markdown_shows_the_branch_and_folds_the_others(store):
    key = branched(store)
    text = to_markdown(store.conversation(key), store.path(key), store.messages(key))
    assert text.startswith("# Branches\n\n> Be kind.\n")
    assert "## Model\n" in text
    assert "Because 1" in text
    assert "<summary>Model (version 2 of 2)</summary>" in text
    assert "Because 2" not in to_markdown(store.conversation(key), store.path(key))


def test_an_export_is_written_whole_or_not_at_all(tmp_path):
    write_text(tmp_path / "a.md", "text")
    assert (tmp_path / "a.md").read_text() == "text"
    with pytest.raises(ExportError):
        write_text(tmp_path / "missing" / "a.md", "text")


def node(key, parent, role=None, text="", **more):
    message = {
        "author": {"role": role},
        "create_time": 1_700_000_000.5,
        "content": {"content_type": "text", "parts": [text]},
        "recipient": "all",
        **more,
    }
    return key, {"id": key, "parent": parent, "message": message if role else None}


CHATGPT = [
    {
        "title": "Trees",
        "create_time": 1_700_000_000.0,
        "current_node": "a2",
        "mapping": dict(
            [
                node("root", None),
                node("sys", "root", "system", "Be brief."),
                node("u1", "sys", "user", "Hi"),
                node("t1", "u1", "assistant", "search()", recipient="browser"),
                node("t2", "t1", "tool", "result"),
                node("a1", "t2", "assistant", "Hello 1"),
                node("a2", "u1", "assistant", "Hello 2"),
            ]
        ),
    }
]


def test_a_chatgpt_export_keeps_its_branches_and_skips_tools(store):
    (transcript,) = read_text(json.dumps(CHATGPT))
    key = store.add_transcript(transcript).id
    assert [item.content for item in store.path(key)] == ["Hi", "Hello 2"]
    assert [item.content for item in store.siblings(store.path(key)[1].id)] == [
        "Hello 1",
        "Hello 2",
    ]
    conversation = store.conversation(key)
    assert (conversation.title, conversation.system_prompt) == ("Trees", "Be brief.")
    assert conversation.created_at.year == 2023


def test_a_simplechat_dump_becomes_conversations(store):
    chat = [
        {"role": "system", "content": "Be nice."},
        {"role": "user", "content": "What is water? Tell me."},
        {"role": "assistant", "content": "H2O"},
    ]
    wrapped = [{"ns": item} for item in chat]
    dump = {
        "SimpleChat-Default": json.dumps({"iLastSys": 0, "xchat": chat}),
        "SimpleChat-Cooking": {"iLastSys": 0, "xchat": wrapped},
        "theme": "dark",
    }
    first, second = (store.add_transcript(item) for item in read_text(json.dumps(dump)))
    assert (first.title, first.system_prompt) == ("What is water?", "Be nice.")
    assert second.title == "Cooking"
    assert [item.content for item in store.path(second.id)][-1] == "H2O"


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", "{}", "3", '{"a": [1]}', "[" * 100_000, '[{"mapping": 1}]'[:-2]]
)
def test_what_is_no_export_is_a_typed_error(text):
    with pytest.raises(ImportFormatError):
        read_text(text)


def test_an_unreadable_file_is_a_typed_error(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ImportFormatError):
        read_file(tmp_path / "x.json")
    with pytest.raises(ImportFormatError):
        read_file(tmp_path / "missing.json")


def mutate(value, dice: random.Random):
    if isinstance(value, dict):
        return {key: mutate(item, dice) for key, item in value.items() if dice.random() > 0.05}
    if isinstance(value, list):
        return [mutate(item, dice) for item in value]
    if dice.random() < 0.1:
        return dice.choice([None, 0, -1e30, "", [], {}, "root", True])
    return value


@pytest.mark.parametrize("seed", range(60))
def test_a_damaged_export_is_imported_or_refused(seed):
    dice = random.Random(seed)
    try:
        for transcript in read_text(json.dumps(mutate(CHATGPT, dice))):
            known: set[str | None] = {None}
            for message in transcript.messages:
                assert message.parent_id in known
                known.add(message.id)
    except ImportFormatError:
        pass


def test_messages_are_put_in_order_and_circles_are_cut():
    def item(key, parent):
        return TranscriptMessage(key, parent, Role.USER, key)

    ordered = in_order([item("b", "a"), item("a", None), item("x", "y"), item("y", "x")])
    assert [entry.id for entry in ordered][:2] == ["a", "b"]
    placed: set[str | None] = {None}
    for entry in ordered:
        assert entry.parent_id in placed
        placed.add(entry.id)
    assert len(ordered) == 4
