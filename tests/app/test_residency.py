"""Who is let go after a while, and who is brought in ahead."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.events import AppEvent, CacheChanged, ModelLoaded, ReplyFinished
from app.jobs import RestoreJob
from app.residency import Residency
from engine.memory.interface import Match, MemoryBreakdown, TierUse
from tests.app.conftest import App
from tests.app.fake_engine import FakeEngine
from tests.app.waiting import wait_until


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def moved() -> list[str]:
    return []


@pytest.fixture
def residency(app: App, clock: Clock, moved: list[str]) -> Residency:
    app.load()
    services = app.services
    return Residency(
        services.chats, services.worker, services.settings, on_moved=moved.append, clock=clock
    )


def test_only_what_was_idle_for_the_time_set_is_let_go(app, residency, clock, moved):
    app.services.settings.update(session_timeout_minutes=10)
    residency.note_use("old")
    clock.now = 300.0
    residency.note_use("young")
    clock.now = 599.0
    assert residency.idle_job() is None
    clock.now = 600.0
    app.services.worker.submit(residency.idle_job())
    wait_until(lambda: moved == ["old"])
    assert ("release", "old") in app.engine.calls
    assert ("release", "young") not in app.engine.calls
    assert residency.idle_job() is None


def test_a_conversation_used_again_before_its_turn_is_kept(app, residency, clock):
    residency.note_use("a")
    clock.now = 3600.0
    job = residency.idle_job()
    residency.note_use("a")
    assert list(job.steps(app.engine, lambda: False)) == []
    assert ("release", "a") not in app.engine.calls


def test_the_worker_lets_idle_conversations_go_by_itself(app, clock):
    app.load()
    chat = app.services.chat
    _, reply = chat.send(chat.new_conversation().id, "Hello")
    app.wait_for(ReplyFinished)
    app.services.settings.update(session_timeout_minutes=1)
    chat.residency._clock = lambda: 1e12
    wait_until(lambda: ("release", reply.conversation_id) in app.engine.calls)


def test_without_prefetching_nothing_is_brought_in(app, residency):
    app.services.settings.update(prefetch=False)
    conversation = app.services.chat.new_conversation()
    app.services.chat.open(conversation.id)
    residency.prefetch(conversation.id)
    residency.prefetch_likely(None)
    _, _ = app.services.chat.send(conversation.id, "Hello")
    app.wait_for(ReplyFinished)
    assert not [call for call in app.engine.calls if call[0] == "restore"]


def test_after_a_turn_what_usually_follows_is_brought_in(app):
    app.load()
    chat = app.services.chat
    first, second = chat.new_conversation().id, chat.new_conversation().id
    for conversation_id in (first, second, first):
        chat.open(conversation_id)
    wait_until(lambda: app.engine.calls.count(("restore", first)) >= 2)
    before = app.engine.calls.count(("restore", second))
    chat.send(first, "Hello")
    wait_until(lambda: app.engine.calls.count(("restore", second)) > before)


def test_a_loaded_model_brings_in_what_is_used_most(app):
    conversation = app.services.chat.new_conversation()
    app.services.chat.open(conversation.id)
    assert app.engine.calls == []
    app.load()
    app.wait_for(ModelLoaded)
    wait_until(lambda: ("restore", conversation.id) in app.engine.calls)


class CrowdedEngine(FakeEngine):
    """Hot memory more than half full."""

    def breakdown(self) -> MemoryBreakdown:
        return replace(super().breakdown(), tiers=(TierUse("hot", 600, 1000, 6),))

    def restore(self, conversation_id: str) -> Match:
        super().restore(conversation_id)
        return Match(cold=10)


def test_what_may_be_needed_does_not_push_out_what_is_used():
    engine, restored = CrowdedEngine(Path("model.gguf")), []
    likely = RestoreJob(lambda: ["a", "b"], on_restored=restored.append, only_where_room=True)
    assert list(likely.steps(engine, lambda: False)) == []
    wanted = RestoreJob(lambda: ["a"], on_restored=restored.append)
    assert len(list(wanted.steps(engine, lambda: False))) == 1
    assert restored == ["a"]


def test_numbers_are_told_while_nothing_happens(app):
    app.load()
    first = app.wait_for(CacheChanged)
    app.services.kv.set_budget(first.cold_budget_bytes + 1)

    def is_new(event: AppEvent) -> bool:
        return event.cold_budget_bytes == first.cold_budget_bytes + 1

    app.wait_for(CacheChanged, is_new)
