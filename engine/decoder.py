"""Evaluates session logs: prompts in chunks, the last tokens of all growing replies in one pass.

A reply submits its last token, lets others have their turn, and takes the logits afterwards. The
first one to take makes the model run for everyone who has submitted by then.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from engine.config import MAX_COMPLETIONS
from engine.memory.interface import Memory
from engine.runner import Logits, Runner
from engine.session.pool import SessionPool
from engine.session.session import Session

# More rows in one pass gain nothing, and every runner has room for these.
MAX_ROWS = MAX_COMPLETIONS


@dataclass(frozen=True, slots=True)
class Decoded:
    """What became of a log's last token.

    logits: (V,), overwritten by the next pass once they were taken. seconds: of the pass, which had
    num_rows rows.
    """

    logits: Logits
    seconds: float
    num_rows: int


class Decoder:
    """One model's passes over the logs of a session pool."""

    def __init__(self, memory: Memory, pool: SessionPool, runner: Runner) -> None:
        self.memory = memory
        self.pool = pool
        self._runner = runner
        self._waiting: dict[Session, int] = {}
        self._decoded: dict[Session, Decoded] = {}

    def evaluate(
        self, session: Session, start: int, end: int, *, wants_logits: bool
    ) -> Logits | None:
        """Run the model over log[start:end], which has room; the logits (V,) of its last token."""
        assert session.sequence is not None
        view = self.memory.step([(session.sequence, end - start)])
        token_ids = session.token_ids[start:end]
        logits = self._runner.forward(token_ids, start, view, wants_logits=wants_logits)
        self.memory.commit(session.sequence, token_ids)
        return logits

    def submit(self, session: Session, *, num_sure: int) -> None:
        """Let the last token of a log, for which there is room, be evaluated in the next pass.

        num_sure: how many of the largest logits must be exact, 0 for all.
        """
        self._waiting[session] = num_sure

    def take(self, session: Session) -> Decoded | None:
        """Return what became of a submitted token, running the pass where it must.

        None when the session's state was given up for another one in the meantime.
        """
        if session in self._waiting:
            self._run(session)
        return self._decoded.pop(session, None)

    def withdraw(self, session: Session) -> None:
        """Forget a session that does not go on."""
        self._waiting.pop(session, None)
        self._decoded.pop(session, None)

    def _run(self, first: Session) -> None:
        """Evaluate the submitted tokens, that of the one who asks for sure."""
        others = [session for session in self._waiting if session is not first]
        batch = [first, *others][:MAX_ROWS]
        num_sure = self._waiting[first]
        for session in batch:
            del self._waiting[session]
        batch = [session for session in batch if self._is_placed(session)]
        if batch:
            self._evaluate_last(batch, num_sure if batch == [first] else 0)

    def _is_placed(self, session: Session) -> bool:
        return self.pool.resident_length(session) == len(session.token_ids) - 1

    def _evaluate_last(self, batch: list[Session], num_sure: int) -> None:
        started = time.perf_counter()
        rows = [(sequence, 1) for session in batch if (sequence := session.sequence) is not None]
        token_ids = [session.token_ids[-1] for session in batch]
        positions = [len(session.token_ids) - 1 for session in batch]
        view = self.memory.step(rows)
        logits = self._runner.forward_last(
            token_ids, positions, view, keep=self._keep_logits, num_sure=num_sure
        )
        for (sequence, _), token in zip(rows, token_ids, strict=True):
            self.memory.commit(sequence, (token,))
        seconds = time.perf_counter() - started
        for row, session in enumerate(batch):
            self._decoded[session] = Decoded(logits[row], seconds, len(batch))

    def _keep_logits(self) -> None:
        """Copy the logits that nobody has taken yet, before a pass overwrites them."""
        for session, decoded in self._decoded.items():
            self._decoded[session] = replace(decoded, logits=decoded.logits.copy())
