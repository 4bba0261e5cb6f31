"""Conversations between machines: what is said on one is seen, joined and deleted on the others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from app.cli import run
from app.conversation import Message, MessageStatus, Role
from app.paths import app_paths
from app.settings_file import SettingsStore
from app.shared_texts import ChatTexts
from app.store.chat_store import ChatStore
from app.store.kv_store import KVStore
from app.store.merging import Merged
from app.store.shared.store import SharedStore
from app.transcript import Transcript
from tests.app.store.kv_samples import chain, job
from tests.app.waiting import WAIT_S, wait_until


class Home:
    """chats.db and kv.db of one machine, and its way to the server."""

    def __init__(self, folder: Path, url: str) -> None:
        self.chats = ChatStore(folder / "chats.db")
        self.kv = KVStore(folder / "kv.db", 1 << 26)
        self.merged: list[str] = []
        texts = ChatTexts(self.chats, self.merged.append)
        self.shared = SharedStore(
            self.kv.replicas, texts, on_change=self._ignore, on_arrived=self._ignore
        )
        self.shared.set_url(url)

    def say(self, conversation_id: str, text: str, *, parent: Message | None = None) -> Message:
        parent_id = self.chats.conversation(conversation_id).leaf_id
        message = self.chats.add_message(
            conversation_id,
            parent_id=parent_id if parent is None else parent.id,
            role=Role.USER,
            content=text,
        )
        self.shared.note_changed(conversation_id)
        return message

    def settle(self) -> None:
        assert self.shared.wait_settled(WAIT_S).is_settled

    def elsewhere(self) -> list[str]:
        return [one.id for one in self.shared.state.elsewhere]

    def said(self, conversation_id: str) -> set[str]:
        return {message.content for message in self.chats.messages(conversation_id)}

    def on_screen(self, conversation_id: str) -> list[str]:
        return [message.content for message in self.chats.path(conversation_id)]

    def close(self) -> None:
        self.shared.close(1.0)
        self.kv.close(WAIT_S)
        self.chats.close()

    @staticmethod
    def _ignore(what: object) -> None:
        del what


@pytest.fixture
def homes(tmp_path, shared_url) -> Iterator[tuple[Home, Home]]:
    first, second = (Home(tmp_path / name, shared_url) for name in ("a", "b"))
    yield first, second
    first.close()
    second.close()


@pytest.fixture
def tides(homes) -> str:
    """A conversation that both machines have."""
    first, second = homes
    conversation = first.chats.create_conversation(title="Tides", system_prompt="Be brief.")
    first.say(conversation.id, "one")
    first.say(conversation.id, "two")
    wait_until(lambda: second.elsewhere() == [conversation.id])
    assert second.chats.conversations() == []
    second.shared.bring([conversation.id])
    wait_until(lambda: bool(second.chats.conversations()))
    # It may have been brought before the second message was there.
    wait_until(lambda: second.on_screen(conversation.id) == ["one", "two"])
    second.settle()
    return conversation.id


def test_a_conversation_is_brought_when_it_is_wanted(homes, tides):
    first, second = homes
    assert second.on_screen(tides) == ["one", "two"]
    brought = second.chats.conversation(tides)
    assert (brought.title, brought.system_prompt) == ("Tides", "Be brief.")
    assert second.elsewhere() == []
    assert [m.id for m in first.chats.path(tides)] == [m.id for m in second.chats.path(tides)]


def test_what_is_said_later_comes_by_itself(homes, tides):
    first, second = homes
    first.say(tides, "three")
    wait_until(lambda: second.on_screen(tides) == ["one", "two", "three"])
    second.say(tides, "four")
    wait_until(lambda: first.on_screen(tides) == ["one", "two", "three", "four"])
    # Told after it is there.
    wait_until(lambda: first.merged != [])
    assert first.merged == [tides]


@pytest.mark.parametrize("is_first", [True, False])
def test_what_is_said_while_something_comes_is_sent_too(homes, tides, monkeypatch, is_first):
    first, second = homes
    merge = second.chats.merge_transcript

    def merge_meanwhile(conversation_id: str, transcript: Transcript) -> Merged:
        is_said = "four" in second.said(tides)
        if not is_said and is_first:
            second.say(tides, "four")
        merged = merge(conversation_id, transcript)
        if not is_said and not is_first:
            second.say(tides, "four")
        return merged

    monkeypatch.setattr(second.chats, "merge_transcript", merge_meanwhile)
    first.say(tides, "three")
    for home in homes:
        wait_until(lambda home=home: home.said(tides) == {"one", "two", "three", "four"})


def test_what_is_on_screen_there_ends_before_a_reply_that_grows(homes):
    first, second = homes
    conversation = first.chats.create_conversation(title="Tides")
    asked = first.say(conversation.id, "one")
    growing = first.chats.add_message(
        conversation.id,
        parent_id=asked.id,
        role=Role.ASSISTANT,
        content="",
        status=MessageStatus.STREAMING,
    )
    first.shared.note_changed(conversation.id)
    first.settle()
    wait_until(lambda: second.elsewhere() == [conversation.id])
    second.shared.bring([conversation.id])
    wait_until(lambda: bool(second.chats.conversations()))
    assert second.on_screen(conversation.id) == ["one"]
    first.chats.update_message(growing.id, content="two", status=MessageStatus.COMPLETE)
    first.shared.note_changed(conversation.id)
    wait_until(lambda: second.on_screen(conversation.id) == ["one", "two"])


def test_two_machines_that_go_on_apart_get_two_branches(homes, tides, shared_url):
    first, second = homes
    for home in homes:
        home.shared.set_url("")
    first.say(tides, "mine")
    second.say(tides, "yours")
    for home in homes:
        home.shared.set_url(shared_url)
    both = {"one", "two", "mine", "yours"}
    for home in homes:
        wait_until(lambda home=home: home.said(tides) == both)
    assert first.on_screen(tides)[-1] == "mine"
    assert second.on_screen(tides)[-1] == "yours"


def test_the_longer_form_of_a_message_stays(homes, tides):
    first, second = homes
    message = first.chats.path(tides)[-1]
    first.chats.update_message(message.id, content="two and a half")
    first.shared.note_changed(tides)
    wait_until(lambda: "two and a half" in second.said(tides))
    second.settle()
    first.settle()
    assert first.said(tides) == second.said(tides) == {"one", "two and a half"}


def test_what_is_deleted_here_goes_from_the_server(homes, tides, shared_url):
    first, second = homes
    extra = first.say(tides, "a secret")
    first.settle()
    first.chats.delete_message(extra.id)
    first.shared.note_changed(tides)
    first.settle()
    assert documents(shared_url) == 2
    first.kv.submit(job(tides, chain("a", 2)))
    assert first.kv.flush(WAIT_S)
    first.shared.note_written()
    first.settle()
    first.chats.delete_conversation(tides)
    first.shared.note_changed(tides)
    first.settle()
    assert documents(shared_url) == 0
    with psycopg.connect(shared_url) as connection:
        for table in ("conversations", "manifests", "blocks", "payloads", "bodies"):
            query = f"SELECT count(*) FROM reprise_1.{table}"
            assert connection.execute(query).fetchone() == (0,), table
    # Who has it keeps it; undo brings it back.
    assert "one" in second.said(tides)
    first.chats.restore_conversation(tides)
    first.shared.note_changed(tides)
    first.settle()
    assert documents(shared_url) == 2


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE reprise_1.messages SET document = 'no json'",
        "UPDATE reprise_1.messages SET document = '{}'",
        'UPDATE reprise_1.messages SET document = \'{"id": 1, "created_at": 2}\'',
        "UPDATE reprise_1.conversations SET document = '[]'",
        "UPDATE reprise_1.conversations SET document = '{\"title\": 5}'",
        "DELETE FROM reprise_1.messages",
    ],
)
def test_damaged_texts_change_nothing_here(homes, tides, shared_url, harm):
    first, second = homes
    first.settle()
    with psycopg.connect(shared_url, autocommit=True) as connection:
        connection.execute(harm)
        connection.execute("UPDATE reprise_1.conversations SET version = version + 1")
        connection.execute("SELECT pg_notify('reprise_1', %s)", (tides,))
    second.say(tides, "three")
    wait_until(lambda: second.on_screen(tides) == ["one", "two", "three"])
    second.settle()
    assert second.chats.conversation(tides).title == "Tides"


def test_a_new_server_gets_everything_again(homes, tides, postgres):
    first, _ = homes
    url = postgres.new_database()
    first.shared.set_url(url)
    first.settle()
    assert documents(url) == 2


def documents(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM reprise_1.messages").fetchone()
    assert row is not None
    return row[0]


def cache(*arguments: str) -> int:
    return run(["cache", *arguments], open_window=lambda files: pytest.fail("a window"))


def test_commands_send_fetch_and_tell(shared_url, tmp_path, monkeypatch, capsys):
    for name in ("a", "b"):
        monkeypatch.setenv("REPRISE_HOME", str(tmp_path / name))
        paths = app_paths()
        paths.create()
        SettingsStore(paths.settings).update(shared_store_url=shared_url)
        if name == "a":
            chats, kv = ChatStore(paths.chats), KVStore(paths.kv, 1 << 26)
            conversation = chats.create_conversation(title="Tides")
            chats.add_message(conversation.id, parent_id=None, role=Role.USER, content="one")
            kv.submit(job(conversation.id, chain("a", 3)))
            chats.close()
            kv.close(WAIT_S)
            assert cache("--json") == 0
            assert json.loads(capsys.readouterr().out)["shared"]["num_waiting"] == 1
            assert cache("replicate") == 0
            assert "1 conversations are there" in capsys.readouterr().out
        else:
            assert cache("fetch", "--json") == 0
            assert json.loads(capsys.readouterr().out) == {"fetched": 1}
        assert cache() == 0
        shown = capsys.readouterr().out
        assert "reprise:***@127.0.0.1" in shown
        assert "1 conversations, 0 states of this machine to be sent" in shown
    chats = ChatStore(app_paths().chats)
    assert [one.title for one in chats.conversations()] == ["Tides"]
    chats.close()


def test_commands_say_what_is_missing(reprise_home, postgres, capsys):
    app_paths().create()
    assert cache("replicate") == 1
    assert "There is no shared store" in capsys.readouterr().err
    url = postgres.url("postgres", password="wrong")
    SettingsStore(app_paths().settings).update(shared_store_url=url)
    assert cache("replicate") == 1
    assert "does not let us in" in capsys.readouterr().err
    assert cache("--json") == 0
    assert "does not let us in" in json.loads(capsys.readouterr().out)["shared"]["problem"]
