"""Small jobs for the engine thread: make a conversation ready, let one go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from app.events import ErrorReport
from app.worker import Priority

if TYPE_CHECKING:
    from engine.engine import Engine


class PrefetchJob:
    """Brings a conversation's stored state into memory."""

    priority = Priority.BACKGROUND

    def __init__(self, conversation_id: str) -> None:
        self._conversation_id = conversation_id

    def steps(self, engine: Engine, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Restore in one step."""
        if not is_cancelled():
            engine.restore(self._conversation_id)
        yield

    def failed(self, error: ErrorReport) -> None:
        """Nothing is lost: the next turn restores or reads."""


class ReleaseJob:
    """Saves a conversation's state and gives its hot memory back."""

    priority = Priority.BACKGROUND

    def __init__(self, conversation_id: str) -> None:
        self._conversation_id = conversation_id

    def steps(self, engine: Engine, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Release in one step."""
        engine.release(self._conversation_id)
        yield

    def failed(self, error: ErrorReport) -> None:
        """Nothing is lost: the memory is given back under pressure instead."""
