"""How soon each conversation can go on: asked of the engine in idle time, read by the window.

The window never waits for the engine thread: it reads the last known answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from app.conversation import Readiness, ReadyTier
from app.events import ConversationChanged, ErrorReport, Listener
from app.worker import Priority
from engine.config import ChatMessage
from engine.errors import ChatTemplateError

if TYPE_CHECKING:
    from engine.engine import Engine, EngineReadiness
    from engine.metrics import Rates

# Until this machine has been measured: slow enough not to promise too much.
_FALLBACK_PREFILL = 100.0
_FALLBACK_RESTORE = 20_000.0

MessagesOf = Callable[[str], tuple[ChatMessage, ...]]


class ReadinessBook:
    """The last known readiness of every conversation. Filled by ``ReadinessJob``."""

    def __init__(self) -> None:
        self._known: dict[str, Readiness] = {}

    def get(self, conversation_id: str) -> Readiness | None:
        """Return the last known readiness; None before the first look."""
        return self._known.get(conversation_id)

    def put(self, conversation_id: str, readiness: Readiness) -> bool:
        """Note a readiness; True when it is new."""
        is_new = self._known.get(conversation_id) != readiness
        self._known[conversation_id] = readiness
        return is_new

    def clear(self) -> None:
        """Forget everything: another model is loaded."""
        self._known.clear()


class ReadinessJob:
    """Looks at some conversations, one a step, whenever nothing else is to be done."""

    priority = Priority.BACKGROUND

    def __init__(
        self,
        conversation_ids: list[str],
        *,
        book: ReadinessBook,
        messages_of: MessagesOf,
        emit: Listener,
    ) -> None:
        self._conversation_ids = conversation_ids
        self._book = book
        self._messages_of = messages_of
        self._emit = emit

    def steps(self, engine: Engine, is_cancelled: Callable[[], bool]) -> Iterator[None]:
        """Look at one conversation a step."""
        for conversation_id in self._conversation_ids:
            if is_cancelled():
                return
            readiness = _look(engine, conversation_id, self._messages_of(conversation_id))
            if readiness is not None and self._book.put(conversation_id, readiness):
                self._emit(ConversationChanged(conversation_id))
            yield

    def failed(self, error: ErrorReport) -> None:
        """Nothing is lost: the badge stays as it was."""


def _look(
    engine: Engine, conversation_id: str, messages: tuple[ChatMessage, ...]
) -> Readiness | None:
    if not messages:
        return None
    try:
        found = engine.readiness(conversation_id, messages)
    except ChatTemplateError:
        return None
    return estimate(found, engine.rates())


def estimate(found: EngineReadiness, rates: Rates) -> Readiness:
    """Turn token counts into a tier and seconds, by the measured rates."""
    to_restore = max(0, found.stored_tokens - found.hot_tokens)
    seconds = seconds_to_read(found.unread_tokens, rates)
    seconds += to_restore / (rates.restore_tokens_per_second or _FALLBACK_RESTORE)
    ready = max(found.hot_tokens, found.stored_tokens)
    tier = ReadyTier.COLD if to_restore else ReadyTier.HOT
    tier = tier if ready else ReadyTier.NONE
    return Readiness(tier, ready, found.unread_tokens, seconds)


def seconds_to_read(num_tokens: int, rates: Rates) -> float:
    """Return how long the model reads, by the measured rate."""
    return num_tokens / (rates.prefill_tokens_per_second or _FALLBACK_PREFILL)
