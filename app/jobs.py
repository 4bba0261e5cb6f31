"""Small jobs for the engine thread: make conversations ready, let some go."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from app.events import ErrorReport
from app.worker import Priority

if TYPE_CHECKING:
    from engine.engine import Engine

Ids = Callable[[], list[str]]

# Bringing in what may be opened next must not push out what was just used.
_MAX_HOT_SHARE = 0.5


def _ignore(conversation_id: str) -> None:
    del conversation_id


class RestoreJob:
    """Brings the stored state of conversations into memory, one a step.

    find: whom; asked when the job starts. on_restored: told whose state is in place now.
    only_where_room: stop where hot memory is half full.
    """

    priority = Priority.BACKGROUND

    def __init__(
        self,
        find: Ids,
        *,
        on_restored: Callable[[str], None] = _ignore,
        only_where_room: bool = False,
    ) -> None:
        self._find = find
        self._on_restored = on_restored
        self._only_where_room = only_where_room

    def steps(self, engine: Engine, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Restore one conversation a step."""
        for conversation_id in self._find():
            if is_cancelled() or (self._only_where_room and not _has_room(engine)):
                return
            if engine.restore(conversation_id).total:
                self._on_restored(conversation_id)
            yield

    def failed(self, error: ErrorReport) -> None:
        """Nothing is lost: the next turn restores or reads."""


class ReleaseJob:
    """Saves the state of conversations and gives their hot memory back, one a step.

    find: whom; asked when the job starts. on_released: told who was let go.
    """

    priority = Priority.BACKGROUND

    def __init__(self, find: Ids, *, on_released: Callable[[str], None] = _ignore) -> None:
        self._find = find
        self._on_released = on_released

    def steps(self, engine: Engine, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Release one conversation a step."""
        for conversation_id in self._find():
            engine.release(conversation_id)
            self._on_released(conversation_id)
            yield

    def failed(self, error: ErrorReport) -> None:
        """Nothing is lost: the memory is given back under pressure instead."""


class LookAgainJob:
    """Lets the engine take in states of a conversation that came from another machine.

    on_found: told where there were any.
    """

    priority = Priority.BACKGROUND

    def __init__(self, conversation_id: str, *, on_found: Callable[[str], None] = _ignore) -> None:
        self._conversation_id = conversation_id
        self._on_found = on_found

    def steps(self, engine: Engine, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Look once."""
        if engine.look_again(self._conversation_id):
            self._on_found(self._conversation_id)
        yield

    def failed(self, error: ErrorReport) -> None:
        """Nothing is lost: the text is read again instead."""


def _has_room(engine: Engine) -> bool:
    hot = [tier for tier in engine.breakdown().tiers if tier.name == "hot"]
    return all(tier.used_bytes <= _MAX_HOT_SHARE * tier.budget_bytes for tier in hot)
