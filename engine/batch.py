"""Several replies to one prompt: it is read once, they share its memory and grow together.

One reply is a batch of one. Knows neither sampling nor text; the generations do.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from engine.events import BatchEvent, FinishReason
from engine.generation import Clock, Events, Generation, Prompt
from engine.memory.interface import Match
from engine.session.pool import SessionPool

if TYPE_CHECKING:
    from engine.runner import Logits

_Events = Generator[BatchEvent]


class MakeGeneration(Protocol):
    """How reply number index comes into being."""

    def __call__(
        self, index: int, prompt: Prompt, clock: Clock, is_cancelled: Callable[[], bool]
    ) -> Generation:
        """Return a reply that was not begun."""
        ...


class Batch:
    """n replies; ``run`` may be used once. generations: those that were begun."""

    def __init__(
        self,
        n: int,
        pool: SessionPool,
        make: MakeGeneration,
        *,
        is_cancelled: Callable[[int], bool],
        is_ephemeral: bool,
    ) -> None:
        self.generations: list[Generation] = []
        self._n = n
        self._pool = pool
        self._make = make
        self._asked = is_cancelled
        self._is_ephemeral = is_ephemeral
        self._is_read = False

    def run(self, prompt: Prompt, clock: Clock) -> _Events:
        """Yield the events of all replies; closing the iterator cancels them.

        Raises: OutOfMemoryError when one alone does not fit the budget.
        """
        try:
            first = self._begin(0, prompt, clock)
            logits = yield from self._read(first)
            if logits is None:
                self._close(first)
                last = first.finished(FinishReason.CANCELLED)
                yield from (BatchEvent(index, last) for index in range(self._n))
                return
            self._fork(first, clock)
            yield from self._grow(logits)
        finally:
            for generation in self.generations:
                self._close(generation)

    def _begin(self, index: int, prompt: Prompt, clock: Clock) -> Generation:
        generation = self._make(index, prompt, clock, lambda: self._is_cancelled(index))
        self._pool.begin(prompt.session)
        self.generations.append(generation)
        return generation

    def _read(self, first: Generation) -> Generator[BatchEvent, None, Logits | None]:
        """Read the prompt for all; the logits (V,) of its last token, None when cancelled."""
        steps = first.read()
        while True:
            try:
                events = next(steps)
            except StopIteration as end:
                self._is_read = True
                logits: Logits | None = end.value
                return logits
            yield from (BatchEvent(0, event) for event in events)

    def _fork(self, first: Generation, clock: Clock) -> None:
        """Begin the other replies where the first one stands."""
        prompt = first.prompt
        for index in range(1, self._n):
            session = self._pool.fork_whole(prompt.session, is_detached=self._is_ephemeral)
            reused = Match(hot=len(session.token_ids))
            own = replace(prompt, session=session, match=reused, miss_reason=None)
            self._begin(index, own, Clock(clock.started))

    def _grow(self, logits: Logits) -> _Events:
        """Draw a token of each reply in turn, until all are finished."""
        growing = {index: one.decode(logits) for index, one in enumerate(self.generations)}
        while growing:
            for index, steps in list(growing.items()):
                try:
                    events: Events = next(steps)
                except StopIteration as end:
                    del growing[index]
                    generation = self.generations[index]
                    self._close(generation)
                    events = (generation.finished(end.value),)
                yield from (BatchEvent(index, event) for event in events)

    def _close(self, generation: Generation) -> None:
        generation.close()
        self._pool.end(generation.prompt.session)
        if self._is_ephemeral:
            self._pool.discard(generation.prompt.session)

    def _is_cancelled(self, index: int) -> bool:
        """Tell whether a reply is cancelled; as long as the prompt is read, whether all are."""
        if self._is_read:
            return self._asked(index)
        return all(self._asked(each) for each in range(self._n))
