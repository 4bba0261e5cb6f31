"""Advice: each rule with numbers that call for it, and with numbers that do not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from app.advice import Measured, advise, jitter, leak, low_reuse, not_kept, slow_disk
from app.conversation import ReplyStats
from app.events import AdviceKind, CacheChanged
from app.monitor import REUSE_TURNS, CacheMonitor, private_bytes
from app.settings import Settings
from engine.events import MissCause, MissReason, ReusedTokens, Timing, Usage
from tests.app.fake_engine import FakeEngine

MIB = 1 << 20


def turn(
    *,
    prompt: int = 1000,
    reused: int = 950,
    cause: MissCause | None = None,
    rate: float = 40.0,
    batch: float = 1.0,
) -> ReplyStats:
    return ReplyStats(
        Usage(prompt, ReusedTokens(hot=reused), 50),
        Timing(0.0, 1.0, 1.0, rate, batch),
        None if cause is None else MissReason(cause, reused),
    )


def test_good_numbers_call_for_no_advice():
    measured = Measured(
        turns=[turn()] * REUSE_TURNS,
        unexplained_bytes=[500 * MIB] * REUSE_TURNS,
        prefill_tokens_per_second=200.0,
        restore_tokens_per_second=50_000.0,
    )
    assert advise(measured) == ()
    assert advise(Measured()) == ()


def test_reading_known_text_again_is_told_with_rate_and_cause():
    turns = [turn()] * 2 + [turn(reused=100, cause=MissCause.EVICTED)] * 4
    advice = low_reuse(Measured(turns=turns))
    assert advice.kind is AdviceKind.LOW_REUSE
    assert advice.value("reuse_rate") == pytest.approx(2300 / 6000)
    assert advice.value("num_turns") == 6
    assert advice.setting == "cold_budget_bytes"


def test_a_changed_history_is_no_matter_of_settings():
    turns = [turn(reused=0, cause=MissCause.HISTORY_CHANGED)] * 6
    assert low_reuse(Measured(turns=turns)).setting == ""


def test_switched_off_keeping_is_named_as_the_reason():
    turns = [turn(reused=0, cause=MissCause.EVICTED)] * 6
    advice = low_reuse(Measured(turns=turns, is_keeping=False))
    assert advice.setting == "keep_conversations_ready"


def test_new_conversations_are_not_held_against_the_cache():
    turns = [turn(reused=0, cause=MissCause.NEW_CONVERSATION)] * 10
    assert low_reuse(Measured(turns=turns)) is None


def test_few_turns_prove_nothing():
    assert low_reuse(Measured(turns=[turn(reused=0)] * 4)) is None
    assert jitter(Measured(turns=[turn(), turn(rate=1.0)])) is None
    assert leak(Measured(unexplained_bytes=[0, 9000 * MIB])) is None


def test_growing_memory_is_a_suspect_only_while_it_never_shrinks():
    growing = [1000 * MIB] * 5 + [(1000 + 60 * step) * MIB for step in range(6)]
    advice = leak(Measured(unexplained_bytes=growing, hot_bytes=7))
    assert advice.value("held_bytes") == 300 * MIB
    assert advice.value("hot_bytes") == 7
    growing[8] = growing[7] - 1
    assert leak(Measured(unexplained_bytes=growing)) is None


def test_replies_much_slower_than_most_are_told():
    steady = [turn(rate=40.0)] * 17
    assert jitter(Measured(turns=[*steady, turn(rate=30.0)])) is None
    assert jitter(Measured(turns=[*steady, *[turn(rate=10.0, batch=4.0)] * 3])) is None
    advice = jitter(Measured(turns=[*steady, *[turn(rate=10.0)] * 3]))
    assert advice.value("usual_ms") == pytest.approx(25.0)
    assert advice.value("slow_ms") == pytest.approx(100.0)
    assert advice.setting == "num_threads"


def test_a_disk_hardly_faster_than_reading_is_told():
    slow = Measured(prefill_tokens_per_second=400.0, restore_tokens_per_second=500.0)
    assert slow_disk(slow).value("restored_tokens_per_second") == 500.0
    assert slow_disk(replace(slow, restore_tokens_per_second=900.0)) is None


def test_nothing_being_kept_comes_first():
    measured = Measured(turns=[turn(reused=0)] * 6, cold_problem="The disk is nearly full.")
    assert [row.kind for row in advise(measured)] == [AdviceKind.NOT_KEPT, AdviceKind.LOW_REUSE]
    assert not_kept(measured).setting == "store_folder"


def test_every_setting_named_is_one():
    names = set(Settings.__dataclass_fields__)
    turns = [turn(reused=0, cause=cause) for cause in MissCause for _ in range(5)]
    rows = advise(Measured(turns=turns, cold_problem="full"))
    assert {row.setting for row in rows} - {""} <= names


class Cold:
    """A store that keeps nothing."""

    pending = 0
    problem = "The disk is nearly full."
    is_keeping = True

    def used_bytes(self) -> int:
        return 1

    def budget_bytes(self) -> int:
        return 2


def test_the_monitor_tells_advice_with_the_numbers():
    events: list[CacheChanged] = []
    monitor = CacheMonitor(events.append, Cold())
    monitor.record(turn())
    monitor.look(FakeEngine(Path("model.gguf")))
    (event,) = events
    assert [row.kind for row in event.advice] == [AdviceKind.NOT_KEPT]
    assert len(monitor._unexplained) == 1
    assert 0 < private_bytes() < 64 << 30
