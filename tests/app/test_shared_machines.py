"""Several machines, each with a home of its own, and one PostgreSQL server between them."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from app.conversation import Role
from app.events import ReplyFinished
from app.export import to_json
from app.importers import read_text
from app.store.shared import reader as shared_reader
from engine.engine import Engine
from tests.app.machine import WAIT_S, Machine, machine
from tests.app.test_shared_texts import Home
from tests.app.waiting import wait_until
from tests.engine.tiny_models import write_tiny_model
from tests.postgres import PostgresServer

SETTINGS = {"block_size": 16, "kv_codec": "f32", "kernels": False, "compute": "float32"}
FIRST = "My harbour has seven boats and each of them has a name. " * 4
SECOND = "Which of the boats is the oldest one, and who has built it?"
THIRD = "And what is its name?"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loaded machine of the tests is no slow server."""
    monkeypatch.setattr(shared_reader, "WAIT_S", WAIT_S)


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


def slowly(value: str) -> object:
    """Return a parameter for the slow run."""
    return pytest.param(value, marks=pytest.mark.slow)


def open_machine(home: Path, url: str, model: Path):
    return machine(home, url, **SETTINGS)


def talk(one: Machine, *texts: str) -> str:
    """Hold a new conversation and return its id."""
    conversation = one.services.chat.new_conversation()
    for text in texts:
        one.say(conversation.id, text)
    return conversation.id


def num_known(engine: Engine, conversation_id: str) -> int:
    """Return how many tokens an engine knows of a conversation's longest branch."""
    return max(len(session.token_ids) for session in engine._pool.sessions(conversation_id))


def cost(finished: ReplyFinished) -> tuple[int, tuple[int, ...]]:
    """Return how many tokens were read anew, and the reply's tokens."""
    assert finished.message.stats is not None
    return finished.message.stats.usage.recomputed_tokens, finished.token_ids


def test_another_machine_goes_on_as_if_it_were_the_first(shared_url, tmp_path, model):
    with open_machine(tmp_path / "a", shared_url, model) as first:
        first.load(model)
        conversation = talk(first, FIRST, SECOND)
        first.settle()
    shutil.copytree(tmp_path / "a", tmp_path / "alone")
    with open_machine(tmp_path / "alone", "", model) as alone:
        alone.load(model)
        expected = cost(alone.say(conversation, THIRD))
    with open_machine(tmp_path / "b", shared_url, model) as second:
        second.load(model)
        second.bring(conversation)
        assert second.services.kv.num_blocks() == 0
        said = [(m.role, m.content) for m in second.services.chat.path(conversation)]
        assert [content for role, content in said if role is Role.USER] == [FIRST, SECOND]
        found = second.say(conversation, THIRD)
        assert cost(found) == expected
        assert found.message.stats.usage.reused.cold > 300
        second.settle()
        assert second.services.kv.num_blocks() > 0
    assert expected[0] < 64


@pytest.mark.slow
def test_an_imported_text_goes_on_from_shared_blocks(shared_url, tmp_path, model):
    with open_machine(tmp_path / "a", shared_url, model) as first:
        first.load(model)
        conversation = talk(first, FIRST)
        first.settle()
        chats = first.services.chats
        text = to_json([(chats.conversation(conversation), chats.messages(conversation))])
    found = []
    for name, url in (("alone", ""), ("b", shared_url)):
        with open_machine(tmp_path / name, url, model) as one:
            one.load(model)
            if url:
                one.settle()
            copy = one.services.chats.add_transcript(read_text(text)[0])
            assert copy.id != conversation
            found.append(one.say(copy.id, SECOND))
    alone, shared = found
    assert shared.token_ids == alone.token_ids
    assert alone.message.stats.usage.reused.cold == 0
    # Whole blocks of what both were told: the text up to the first reply.
    assert shared.message.stats.usage.reused.cold >= 200


BLOCK_HARMS = (
    "UPDATE reprise_1.payloads SET payload = set_byte(payload, 9, 255 - get_byte(payload, 9)) "
    "WHERE id % 5 = 2",
    "UPDATE reprise_1.blocks one SET crc32 = other.crc32, token_ids = other.token_ids, "
    "binding = other.binding FROM reprise_1.blocks other WHERE other.id = one.id % 4 + 1",
    "DELETE FROM reprise_1.payloads WHERE id > 4",
)
# Without a manifest there is no log of tokens: the words themselves are read.
BODY_HARMS = (
    "UPDATE reprise_1.bodies SET body = set_byte(body, 40, 255 - get_byte(body, 40))",
    "UPDATE reprise_1.bodies one SET body = other.body FROM reprise_1.bodies other "
    "WHERE other.id <> one.id",
)


@dataclass(frozen=True)
class Sound:
    """A home with two conversations, and what going on with one takes: with its log, without."""

    home: Path
    conversation: str
    resumed: tuple[int, tuple[int, ...]]
    read_again: tuple[int, tuple[int, ...]]


@pytest.mark.parametrize("harm", [*BLOCK_HARMS[:1], *(slowly(one) for one in BLOCK_HARMS[1:])])
def test_damaged_blocks_on_the_server_shorten_the_prefix_and_change_no_token(
    postgres, sound, tmp_path, model, harm
):
    recomputed, token_ids = after_harm(postgres, sound, tmp_path, model, harm)
    assert recomputed > sound.resumed[0]
    assert token_ids == sound.resumed[1]


@pytest.mark.slow
@pytest.mark.parametrize("harm", BODY_HARMS)
def test_damaged_manifests_on_the_server_let_the_words_be_read_again(
    postgres, sound, tmp_path, model, harm
):
    _, token_ids = after_harm(postgres, sound, tmp_path, model, harm)
    assert token_ids == sound.read_again[1]


def after_harm(
    postgres: PostgresServer, sound: Sound, folder: Path, model: Path, harm: str
) -> tuple[int, tuple[int, ...]]:
    """Send a sound home to a server, harm that, and go on elsewhere; return what it took."""
    url = postgres.new_database()
    shutil.copytree(sound.home, folder / "a")
    sender = Home(folder / "a", url)
    sender.settle()
    sender.close()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(harm)
    with open_machine(folder / "b", url, model) as second:
        second.load(model)
        second.bring(sound.conversation)
        return cost(second.say(sound.conversation, THIRD))


@pytest.fixture(scope="module")
def sound(tmp_path_factory, model) -> Sound:
    folder = tmp_path_factory.mktemp("sound")
    with open_machine(folder / "a", "", model) as first:
        first.load(model)
        conversation = talk(first, FIRST, SECOND)
        talk(first, "Another harbour. " * 12)
    found = []
    for name in ("resumed", "read_again"):
        shutil.copytree(folder / "a", folder / name)
        if name == "read_again":
            (folder / name / "kv.db").unlink()
        with open_machine(folder / name, "", model) as alone:
            alone.load(model)
            found.append(cost(alone.say(conversation, THIRD)))
    return Sound(folder / "a", conversation, *found)


@pytest.mark.slow
def test_a_machine_that_has_the_conversation_open_takes_over_what_another_read(
    shared_url, tmp_path, model, monkeypatch
):
    """Both are running; the second one hears of the turn, and goes on from its state."""
    with (
        open_machine(tmp_path / "a", shared_url, model) as first,
        open_machine(tmp_path / "b", shared_url, model) as second,
    ):
        first.load(model)
        second.load(model)
        conversation = talk(first, FIRST)
        first.settle()
        second.bring(conversation)
        chat, known = first.services.chat, [0]
        look_again = Engine.look_again

        def note(engine: Engine, conversation_id: str) -> bool:
            found = look_again(engine, conversation_id)
            if engine is first.services.worker._engine:
                known.append(num_known(engine, conversation_id))
            return found

        monkeypatch.setattr(Engine, "look_again", note)
        second.say(conversation, SECOND)
        second.settle()
        first.wait_until(lambda: len(chat.path(conversation)) == 4)
        first.wait_until(lambda: len(chat.path(conversation)[-1].content) > 0)
        # On the engine thread, in idle time; a question asked before that would go first.
        wait_until(lambda: known[-1] == num_known(second.services.worker._engine, conversation))
        first.settle()
        found = first.say(conversation, THIRD)
    assert found.message.stats.usage.recomputed_tokens < 64


@pytest.mark.slow
def test_a_real_model_goes_on_on_another_machine(shared_url, tmp_path, smollm2_path):
    with machine(tmp_path / "a", shared_url) as first:
        first.load(smollm2_path)
        conversation = talk(first, FIRST * 3)
        first.settle()
    shutil.copytree(tmp_path / "a", tmp_path / "alone")
    with machine(tmp_path / "alone") as alone:
        alone.load(smollm2_path)
        expected = cost(alone.say(conversation, SECOND))
    with machine(tmp_path / "b", shared_url) as second:
        second.load(smollm2_path)
        second.bring(conversation)
        found = second.say(conversation, SECOND)
    assert cost(found) == expected
    assert found.message.stats.usage.reused.cold > 150
