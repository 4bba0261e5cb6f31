"""``reprise cache``: real bytes by conversation, and what clearing, shrinking and checking do."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator

import pytest

from app.cli import run
from app.paths import app_paths
from app.store.chat_store import ChatStore
from app.store.kv_store import KVStore
from tests.app.store.kv_samples import chain, job
from tests.app.waiting import WAIT_S

MIB = 1 << 20


def cache(*arguments: str) -> int:
    return run(["cache", *arguments], open_window=lambda files: pytest.fail("a window"))


@pytest.fixture
def tides(reprise_home) -> Iterator[str]:
    """A conversation with ten stored blocks, three of them shared with a deleted one."""
    paths = app_paths()
    paths.create()
    chats = ChatStore(paths.chats)
    conversation = chats.create_conversation(title="Tides")
    chats.close()
    kv = KVStore(paths.kv, 64 * MIB)
    blocks = chain("a", 10)
    kv.submit(job(conversation.id, blocks))
    kv.submit(job("gone", blocks[:3]))
    assert kv.flush(WAIT_S)
    kv.close()
    return conversation.id


def test_it_lists_what_each_conversation_costs(tides, capsys):
    assert cache("--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["tiers"]["cold"]["used_bytes"] == app_paths().kv.stat().st_size
    first, second = shown["conversations"]
    assert (first["conversation"], first["title"]) == (tides, "Tides")
    assert first["cold"]["blocks"] == 10
    assert first["cold"]["own_bytes"] > 600_000
    assert first["cold"]["shared_bytes"] == second["cold"]["shared_bytes"] > 290_000
    assert (second["conversation"], second["title"]) == ("gone", None)
    assert cache() == 0
    text = capsys.readouterr().out
    assert "Tides" in text
    assert "(deleted)" in text


def test_clearing_tells_the_bytes_really_freed(tides, capsys):
    before = app_paths().kv.stat().st_size
    assert cache("clear", "--json") == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["before_bytes"] >= before
    assert numbers["after_bytes"] == app_paths().kv.stat().st_size
    cache("--json")
    assert json.loads(capsys.readouterr().out)["conversations"] == []


def test_compacting_tells_before_and_after(tides, capsys):
    assert cache("compact", "--json") == 0
    numbers = json.loads(capsys.readouterr().out)
    assert numbers["before_bytes"] >= numbers["after_bytes"] > 0
    assert numbers["before_blocks"] == numbers["after_blocks"] > 0
    assert cache("compact") == 0
    assert f"{numbers['after_blocks']} blocks before" in capsys.readouterr().out


def test_verifying_drops_what_is_damaged(tides, capsys):
    assert cache("verify") == 0
    assert "all sound" in capsys.readouterr().out
    with sqlite3.connect(app_paths().kv) as connection:
        connection.execute("UPDATE payloads SET payload = zeroblob(length(payload)) WHERE id = 2")
    connection.close()
    assert cache("verify", "--json") == 1
    assert json.loads(capsys.readouterr().out)["damaged_blocks"] == 1
    assert cache("verify") == 0


@pytest.mark.parametrize("action", ["clear", "compact"])
def test_what_another_process_keeps_is_left_alone(tides, capsys, action):
    other = KVStore(app_paths().kv, 64 * MIB)
    assert other.flush(WAIT_S)
    assert cache("--json") == 0
    assert cache(action) == 1
    assert "Another running Reprise" in capsys.readouterr().err
    assert len(other.usage()) == 2
    other.close()
