"""The numbers of the cache panel: gathered on the engine thread, told at most twice a second."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

import psutil

from app.advice import Measured, advise
from app.conversation import ReplyStats
from app.events import CacheChanged, Listener

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.memory.interface import MemoryBreakdown
    from engine.metrics import Rates

REUSE_TURNS = 20
EVERY_SECONDS = 0.5


class ColdUse(Protocol):
    """What the monitor asks of the cold store."""

    @property
    def is_keeping(self) -> bool:
        """Whether new states are stored at all."""
        ...

    @property
    def pending(self) -> int:
        """Jobs not written yet."""
        ...

    @property
    def problem(self) -> str:
        """Why nothing is kept now; "" when all is well."""
        ...

    def used_bytes(self) -> int:
        """Bytes really on disk."""
        ...

    def budget_bytes(self) -> int:
        """Bytes the store may take."""
        ...


class CacheMonitor:
    """Turns the engine's and the store's state into ``CacheChanged`` events."""

    def __init__(self, emit: Listener, cold: ColdUse) -> None:
        self._emit = emit
        self._cold = cold
        self._turns: deque[ReplyStats] = deque(maxlen=REUSE_TURNS)
        self._unexplained: deque[int] = deque(maxlen=REUSE_TURNS)
        self._is_sample_due = False
        self._told = 0.0
        self._last: CacheChanged | None = None

    def record(self, stats: ReplyStats) -> None:
        """Count a finished reply."""
        self._turns.append(stats)
        self._is_sample_due = True
        self._told = 0.0

    def forget_turns(self) -> None:
        """Start over: another model is loaded, whose numbers are other ones."""
        self._turns.clear()
        self._unexplained.clear()

    def look(self, engine: Engine) -> None:
        """Tell the present numbers unless that was done a moment ago."""
        now = time.monotonic()
        if now - self._told < EVERY_SECONDS:
            return
        self._told = now
        event = self._event(engine)
        if event != self._last:
            self._last = event
            self._emit(event)

    def _event(self, engine: Engine) -> CacheChanged:
        rates = engine.rates()
        rate = rates.decode_tokens_per_second
        breakdown = engine.breakdown()
        self._sample(breakdown)
        return CacheChanged(
            breakdown=breakdown,
            reuse_rate=self._reuse_rate(),
            tokens_per_second=rate or None,
            pending_writes=self._cold.pending,
            cold_used_bytes=self._cold.used_bytes(),
            cold_budget_bytes=self._cold.budget_bytes(),
            cold_error=self._cold.problem,
            advice=advise(self._measured(breakdown, rates)),
        )

    def _measured(self, breakdown: MemoryBreakdown, rates: Rates) -> Measured:
        return Measured(
            turns=tuple(self._turns),
            unexplained_bytes=tuple(self._unexplained),
            hot_bytes=sum(tier.used_bytes for tier in breakdown.tiers if tier.name == "hot"),
            prefill_tokens_per_second=rates.prefill_tokens_per_second,
            restore_tokens_per_second=rates.restore_tokens_per_second,
            cold_problem=self._cold.problem,
            cold_budget_bytes=self._cold.budget_bytes(),
            is_keeping=self._cold.is_keeping,
        )

    def _sample(self, breakdown: MemoryBreakdown) -> None:
        """Look once a turn at the memory that the tiers do not explain."""
        if self._is_sample_due:
            self._is_sample_due = False
            in_memory = [tier for tier in breakdown.tiers if tier.name != "cold"]
            held = sum(tier.used_bytes for tier in in_memory)
            self._unexplained.append(private_bytes() - held)

    def _reuse_rate(self) -> float | None:
        prompt = sum(stats.usage.prompt_tokens for stats in self._turns)
        reused = sum(stats.usage.reused.total for stats in self._turns)
        return reused / prompt if prompt else None


def private_bytes() -> int:
    """Return the memory of this process that is no file: files in memory can go at any time."""
    info = psutil.Process().memory_info()
    return int(info.rss - info.shared) if sys.platform == "linux" else int(info.rss)
