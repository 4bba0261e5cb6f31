from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from app.conversation import Role
from app.errors import (
    DatabaseDamagedError,
    DatabaseError,
    DatabaseFullError,
    DatabaseUnavailableError,
    StoreTooNewError,
)
from app.store import schema
from app.store.chat_store import ChatStore
from app.store.sqlite_errors import translate
from app.transcript import Transcript, TranscriptMessage

DATA = Path(__file__).resolve().parents[2] / "data"
NUM_MESSAGES = 60


def fill(path: Path) -> str:
    messages = tuple(
        TranscriptMessage(
            str(at),
            str(at - 1) if at else None,
            Role.USER,
            f"message {at} " + "some words of text " * 60,
        )
        for at in range(NUM_MESSAGES)
    )
    store = ChatStore(path)
    key = store.add_transcript(Transcript(title="Kept", messages=messages)).id
    store.close()
    return key


@pytest.mark.parametrize("revision", schema.REVISIONS)
def test_a_database_of_every_released_schema_opens(tmp_path, revision):
    shutil.copy(DATA / f"{revision}.db", tmp_path / "chats.db")
    store = ChatStore(tmp_path / "chats.db")
    (conversation,) = store.conversations()
    assert conversation.title == "First 第一"
    assert [item.content for item in store.path(conversation.id)] == ["Hello", "Hi 你好"]
    assert len(store.search("你好")) == 1
    store.close()


def test_the_models_agree_with_the_migrations(tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from sqlalchemy import create_engine

    from app.store.tables import Base

    ChatStore(tmp_path / "chats.db").close()
    engine = create_engine(f"sqlite:///{tmp_path / 'chats.db'}")
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "include_object": lambda item, name, *rest: not str(name).startswith("messages_fts")
            },
        )
        assert compare_metadata(context, Base.metadata) == []
    engine.dispose()


def test_a_newer_schema_is_refused_and_left_alone(tmp_path):
    path = tmp_path / "chats.db"
    fill(path)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    before = path.read_bytes()
    with pytest.raises(StoreTooNewError) as caught:
        ChatStore(path)
    assert caught.value.found == "9999"
    assert path.read_bytes() == before


def test_migrating_keeps_a_backup_first(tmp_path, monkeypatch):
    path = tmp_path / "chats.db"
    fill(path)
    monkeypatch.setattr("app.store.database.HEAD", "next")
    monkeypatch.setattr("app.store.database.migrate", lambda connection: None)
    ChatStore(path).close()
    (backup,) = tmp_path.glob(f"chats.db.backup-{schema.HEAD}-*")
    with closing(sqlite3.connect(backup)) as connection:
        assert connection.execute("SELECT count(*) FROM messages").fetchone() == (NUM_MESSAGES,)


def test_a_file_that_is_no_database_is_set_aside_and_told(tmp_path):
    path = tmp_path / "chats.db"
    path.write_bytes(b"not a database at all" * 1000)
    notices = []
    store = ChatStore(path, on_notice=notices.append)
    assert store.conversations() == []
    assert [notice.kind for notice in notices] == ["chats_damaged"]
    assert len(list(tmp_path.glob("chats.db.damaged-*"))) == 1
    store.close()


def test_messages_around_a_damaged_page_are_kept(tmp_path):
    path = tmp_path / "chats.db"
    key = fill(path)
    data = bytearray(path.read_bytes())
    middle = data.find(b"message 30 ") // 4096 * 4096
    data[middle : middle + 4096] = bytes(4096)
    path.write_bytes(data)
    (tmp_path / "chats.db.check").touch()
    notices = []
    store = ChatStore(path, on_notice=notices.append)
    assert [notice.kind for notice in notices] == ["chats_damaged"]
    kept = store.messages(key)
    assert NUM_MESSAGES - 12 <= len(kept) < NUM_MESSAGES
    assert store.conversation(key).title == "Kept"
    assert store.check() == []
    store.close()


def test_messages_behind_a_lost_first_page_are_kept(tmp_path):
    path = tmp_path / "chats.db"
    key = fill(path)
    data = bytearray(path.read_bytes())
    data[:4096] = bytes(4096)
    path.write_bytes(data)
    store = ChatStore(path)
    assert len(store.messages(key)) == NUM_MESSAGES
    assert len(store.search("message 17")) == 1
    store.close()


@pytest.mark.parametrize("seed", range(25))
def test_a_damaged_database_opens_with_what_can_be_read(tmp_path, seed):
    path = tmp_path / "chats.db"
    fill(path)
    dice = random.Random(seed)
    data = bytearray(path.read_bytes())
    if seed % 3 == 0:
        del data[dice.randrange(len(data)) :]
    for _ in range(dice.choice([1, 20, 400])):
        data[dice.randrange(len(data))] = dice.randrange(256) if data else 0
    path.write_bytes(data)
    (tmp_path / "chats.db.check").touch()
    try:
        store = ChatStore(path)
    except StoreTooNewError:
        return
    try:
        for conversation in store.conversations():
            store.path(conversation.id)
            store.messages(conversation.id)
        store.search("words")
    except DatabaseError:
        pass
    finally:
        store.close()


def test_salvaging_that_is_cut_short_is_done_again_at_the_next_start(tmp_path, monkeypatch):
    path = tmp_path / "chats.db"
    key = damaged(path)
    notices = []
    with monkeypatch.context() as patch:
        patch.setattr("app.store.database.salvage", raising(sqlite3.OperationalError("no room")))
        with pytest.raises(DatabaseDamagedError):
            ChatStore(path, on_notice=notices.append)
    assert notices == []
    store = ChatStore(path, on_notice=notices.append)
    assert [notice.kind for notice in notices] == ["chats_damaged"]
    assert len(store.messages(key)) == NUM_MESSAGES
    store.close()


def test_what_was_salvaged_is_used_although_the_program_ended_before_that(tmp_path, monkeypatch):
    path = tmp_path / "chats.db"
    key = damaged(path)
    with monkeypatch.context() as patch:
        patch.setattr("app.store.database.set_aside", raising(KeyboardInterrupt()))
        with pytest.raises(KeyboardInterrupt):
            ChatStore(path)
    notices = []
    store = ChatStore(path, on_notice=notices.append)
    assert len(store.messages(key)) == NUM_MESSAGES
    assert f"{NUM_MESSAGES} messages" in notices[0].message
    assert len(list(tmp_path.glob("chats.db.damaged-*"))) == 1
    assert not (tmp_path / "chats.db.salvaged").exists()
    store.close()


def test_a_table_that_is_gone_is_made_anew_at_the_next_start(tmp_path):
    path = tmp_path / "chats.db"
    fill(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE messages")
    store = ChatStore(path)
    with pytest.raises(DatabaseDamagedError):
        store.recover_unfinished()
    store.close()
    store = ChatStore(path)
    assert store.recover_unfinished() == 0
    assert [row.title for row in store.conversations()] == ["Kept"]
    store.close()


@pytest.mark.parametrize(("free", "kind"), [(0, DatabaseFullError), (1, DatabaseUnavailableError)])
def test_an_input_error_on_a_full_disk_is_told_as_that(tmp_path, monkeypatch, free, kind):
    usage = SimpleNamespace(free=free << 20)
    monkeypatch.setattr("app.store.sqlite_errors.shutil.disk_usage", lambda folder: usage)
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMSIZE
    assert type(translate(error, tmp_path / "chats.db")) is kind


def damaged(path: Path) -> str:
    """Write a file that has lost its first page; return the conversation's id."""
    key = fill(path)
    data = bytearray(path.read_bytes())
    data[:4096] = bytes(4096)
    path.write_bytes(data)
    return key


def raising(error: BaseException) -> Callable[..., None]:
    def fail(*_: object) -> None:
        raise error

    return fail
