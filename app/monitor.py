"""The numbers of the cache panel: gathered on the engine thread, told at most twice a second."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Protocol

from app.conversation import ReplyStats
from app.events import CacheChanged, Listener

if TYPE_CHECKING:
    from engine.engine import Engine

REUSE_TURNS = 20
EVERY_SECONDS = 0.5


class ColdUse(Protocol):
    """What the monitor asks of the cold store."""

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
        self._told = 0.0
        self._last: CacheChanged | None = None

    def record(self, stats: ReplyStats) -> None:
        """Count a finished reply."""
        self._turns.append(stats)
        self._told = 0.0

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
        rate = engine.rates().decode_tokens_per_second
        return CacheChanged(
            breakdown=engine.breakdown(),
            reuse_rate=self._reuse_rate(),
            tokens_per_second=rate or None,
            pending_writes=self._cold.pending,
            cold_used_bytes=self._cold.used_bytes(),
            cold_budget_bytes=self._cold.budget_bytes(),
            cold_error=self._cold.problem,
        )

    def _reuse_rate(self) -> float | None:
        prompt = sum(stats.usage.prompt_tokens for stats in self._turns)
        reused = sum(stats.usage.reused.total for stats in self._turns)
        return reused / prompt if prompt else None
