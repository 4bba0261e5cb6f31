"""Settings that reach what is open, notices that nobody could hear yet, a clean end."""

from __future__ import annotations

import struct
import time
from pathlib import Path

from app.errors import SettingsError
from app.events import Notice, ReplyFinished
from app.paths import app_paths
from app.services import Services
from app.settings_file import SettingsStore
from app.store.kv_store import KVStore
from tests.app.fake_engine import FakeEngine, FakeLoader
from tests.app.store.kv_samples import chain, job
from tests.app.waiting import WAIT_S, wait_until

MIB = 1 << 20


def services() -> Services:
    return Services(app_paths(), loader=FakeLoader(FakeEngine(Path("model.gguf"))))


def test_a_changed_disk_budget_reaches_the_open_store(app):
    app.services.settings.update(cold_budget_bytes=300 * MIB)
    assert app.services.kv.budget_bytes() == 300 * MIB
    app.services.settings.update(cold_budget_bytes=None)
    assert app.services.kv.budget_bytes() > 0


def test_the_next_load_follows_what_is_set_by_then(reprise_home):
    loader = FakeLoader(FakeEngine(Path("model.gguf")))
    opened = Services(app_paths(), loader=loader)
    opened.settings.update(warm_budget_bytes=3 * MIB, block_size=64, context_length=512)
    opened.worker.load_model(Path("model.gguf"))
    wait_until(lambda: len(loader.configs) == 1)
    (config,) = loader.configs
    assert (config.warm_budget_bytes, config.block_size) == (3 * MIB, 64)
    assert config.context_length == 512
    assert opened.close(WAIT_S)


def test_a_changed_order_of_eviction_reaches_the_open_store(app):
    app.services.settings.update(eviction_order="recency")
    assert app.services.kv._writer.eviction_order == "recency"


def test_without_keeping_nothing_more_is_stored_and_what_is_there_stays(app):
    kv, written = app.services.kv, []
    kv.submit(job("c", chain("a", 3), done=written))
    assert kv.flush(WAIT_S)
    app.services.settings.update(keep_conversations_ready=False)
    kv.submit(job("d", chain("b", 3), done=written))
    assert kv.flush(WAIT_S)
    assert written == [True, False]
    assert [use.conversation_id for use in kv.usage()] == ["c"]
    app.services.settings.update(keep_conversations_ready=True)
    kv.submit(job("d", chain("b", 3), done=written))
    assert kv.flush(WAIT_S)
    assert written[-1]


def test_what_was_stored_before_keeping_was_switched_off_survives_a_restart(reprise_home):
    first = services()
    first.kv.submit(job("c", chain("a", 3)))
    assert first.kv.flush(WAIT_S)
    first.settings.update(keep_conversations_ready=False)
    assert first.close(WAIT_S)
    second = services()
    assert second.kv.flush(WAIT_S)
    assert [use.conversation_id for use in second.kv.usage()] == ["c"]
    assert second.close(WAIT_S)


def test_states_lie_where_the_settings_say(reprise_home, tmp_path):
    SettingsStore(app_paths().settings).update(store_folder=str(tmp_path / "states"))
    opened = services()
    assert (tmp_path / "states" / "kv.db").exists()
    assert opened.close(WAIT_S)


def test_new_model_folders_are_looked_through(app, tmp_path):
    (tmp_path / "broken.gguf").write_bytes(struct.pack("<4sI", b"GGUF", 3))
    app.services.settings.update(model_folders=(str(tmp_path),))
    wait_until(lambda: len(app.services.library.entries()) == 1)
    assert app.services.library.folders[-1] == tmp_path


def test_notices_from_before_the_first_listener_are_told_to_it(reprise_home):
    paths = app_paths()
    paths.create()
    paths.kv.write_bytes(b"not a database" * 5000)
    opened, heard, later = services(), [], []
    opened.subscribe(heard.append)
    opened.subscribe(later.append)
    assert [event.kind for event in heard if isinstance(event, Notice)] == ["kv_recreated"]
    assert later == []
    assert opened.close(WAIT_S)


def test_a_reply_that_ends_beside_a_new_chat_is_unread(app):
    app.load()
    chat = app.services.chat
    conversation = chat.new_conversation()
    chat.open(conversation.id)
    chat.close_shown()
    chat.send(conversation.id, "Hello")
    app.wait_for(ReplyFinished)
    assert chat.conversation(conversation.id).is_unread


def test_two_processes_share_a_home(app):
    second = KVStore(app_paths().kv, 64 * MIB)
    assert second.usage() == []
    second.close()


def test_quitting_takes_no_longer_than_it_may(reprise_home, monkeypatch):
    closing = services()
    close_worker, close_store = closing.worker.close, closing.kv.close
    given: list[float] = []

    def slow_worker(timeout_s: float) -> bool:
        given.append(timeout_s)
        time.sleep(0.05)
        return close_worker(timeout_s)

    def store(timeout_s: float) -> bool:
        given.append(timeout_s)
        return close_store(timeout_s)

    monkeypatch.setattr(closing.worker, "close", slow_worker)
    monkeypatch.setattr(closing.kv, "close", store)
    # What is left to the store may be too little for it where the machine has much else to do.
    assert closing.close(WAIT_S)
    assert given[0] <= WAIT_S
    assert given[1] <= WAIT_S - 0.05


def test_a_model_is_used_although_the_settings_cannot_be_saved(app, monkeypatch):
    def refuse(**changes: object) -> None:
        raise SettingsError("", "The settings cannot be saved: No space left on device.")

    monkeypatch.setattr(app.services.settings, "update", refuse)
    app.load()
    assert app.services.worker.model is not None


def test_conversations_open_although_no_state_can_be_kept(reprise_home, tmp_path):
    (tmp_path / "file").touch()
    settings = SettingsStore(app_paths().settings)
    for folder in (tmp_path / "file" / "unplugged", tmp_path / "odd"):
        (tmp_path / "odd" / "kv.db").mkdir(parents=True, exist_ok=True)
        settings.update(store_folder=str(folder))
        opened, notices = services(), []
        opened.subscribe(notices.append)
        opened.chat.new_conversation()
        wait_until(lambda opened=opened: bool(opened.kv.problem))
        assert "cannot be read or written" in opened.kv.problem
        assert "kv_not_kept" in [event.kind for event in notices if isinstance(event, Notice)]
        assert opened.close(WAIT_S)
