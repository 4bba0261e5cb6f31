"""Copies a conversation, whole or thinned out, into another one.

Thinning evaluates the last tokens once more to see what they look at; the copy goes on at the same
position with fewer places. Never done to a conversation that is in use.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from engine.errors import EngineError, OutOfMemoryError, UnsupportedModelError
from engine.memory.attention import PagedAttentionMemory
from engine.memory.distill import NUM_RECENT, MassRecorder, Thinning, choose_places
from engine.memory.interface import Memory, MemorySpec, SequenceId
from engine.runner import Runner
from engine.session.pool import SessionPool
from engine.session.session import Session


@dataclass(frozen=True, slots=True)
class Cloned:
    """What a clone keeps. num_tokens: read; num_places: kept in memory; branch: its name."""

    num_tokens: int
    num_places: int
    branch: str


class Cloning:
    """Clones sessions of one pool.

    make_runner: returns a runner whose model attends through the view, not by itself.
    """

    def __init__(
        self,
        memory: Memory,
        spec: MemorySpec,
        pool: SessionPool,
        make_runner: Callable[[], Runner],
    ) -> None:
        self._memory = memory
        self._spec = spec
        self._pool = pool
        self._make_runner = make_runner

    def clone(self, source: Session, conversation_id: str, decay: float) -> Cloned:
        """Make a copy of a session the branch of another conversation.

        decay: the part of the history that is kept, in (0, 1]; 1 shares all and copies nothing.
        Raises: ValueError when it is out of range, UnsupportedModelError where memory cannot be
            thinned out, OutOfMemoryError, EngineError.
        """
        if not 0.0 < decay <= 1.0:
            raise ValueError(f"decay {decay} is not in (0, 1]")
        self._pool.bring_back(source)
        self._pool.attach(source)
        assert source.sequence is not None
        length = self._memory.length(source.sequence)
        if decay == 1.0:
            num_places = length
            copy = self._memory.fork(source.sequence, length)
        else:
            copy, num_places = self.thin_out(source.sequence, source.token_ids[:length], decay)
        if copy is None:
            raise OutOfMemoryError("There is no room for a copy of this conversation.")
        session = self._pool.adopt(conversation_id, source, copy)
        return Cloned(length, num_places, session.branch)

    def thin_out(
        self, sequence: SequenceId, token_ids: list[int], decay: float
    ) -> tuple[SequenceId | None, int]:
        """Return a copy, None without room for it, and how many places it keeps.

        token_ids: those in place. decay: the part that is kept, in (0, 1).
        Raises: UnsupportedModelError where memory cannot be thinned out, OutOfMemoryError,
            EngineError where the last tokens cannot be read again.
        """
        memory = self._memory
        has_window = any(group.window is not None for group in self._spec.groups)
        if has_window or not isinstance(memory, PagedAttentionMemory):
            raise UnsupportedModelError("Chats with this model can only be copied whole.")
        thinning = Thinning.of(
            memory.num_places(sequence), decay, num_system=memory.num_pinned(sequence)
        )
        mass = self._mass(memory, sequence, token_ids).mass
        kept = [choose_places(mass, group, thinning) for group in self._spec.groups]
        return memory.distill(sequence, kept), thinning.num_kept

    def _mass(
        self, memory: PagedAttentionMemory, sequence: SequenceId, token_ids: list[int]
    ) -> MassRecorder:
        """Evaluate the last tokens on a throw-away fork."""
        start = max(0, len(token_ids) - NUM_RECENT)
        recent = token_ids[start:]
        fork = memory.fork(sequence, start)
        if fork is None:
            raise EngineError("This copy has too few tokens of its own to be thinned out again.")
        try:
            if not memory.allocate([(fork, len(recent))]):
                raise OutOfMemoryError("There is no room for a copy of this conversation.")
            recorder = MassRecorder(memory.step([(fork, len(recent))]))
            self._make_runner().forward(recent, start, recorder, wants_logits=False)
        finally:
            memory.release(fork)
        return recorder
