"""Replies that chats.db did not take when they ended: kept in memory until it does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from app.conversation import Message, MessageStatus
from app.errors import DatabaseError
from app.events import ErrorReport
from app.store.chat_store import ChatStore

_log = logging.getLogger(__name__)


class UnsavedReplies:
    """The last forms of replies that are still to be written. Usable from several threads.

    on_saved is told of each that was written late.
    """

    def __init__(self, store: ChatStore, *, on_saved: Callable[[Message], None]) -> None:
        self._store = store
        self._on_saved = on_saved
        self._waiting: dict[str, tuple[Message, ErrorReport]] = {}
        self._lock = threading.RLock()

    def save_or_keep(self, message: Message) -> tuple[Message, ErrorReport | None]:
        """Write the last form of a reply, or keep it where that is not possible now.

        Returns it as it is shown, and why it is not on disk; None where it is.
        """
        try:
            return self._write(message), None
        except DatabaseError as problem:
            _log.warning("a reply cannot be saved now: %s", problem)
            error = ErrorReport(type(problem).__name__, str(problem), problem.detail)
        with self._lock:
            self._waiting[message.id] = message, error
        return self.overlay(message), error

    def overlay(self, message: Message) -> Message:
        """Return a message as it ended, with the reason why that is not on disk."""
        with self._lock:
            waiting = self._waiting.get(message.id)
        if waiting is None:
            return message
        ended, error = waiting
        return replace(
            ended,
            status=MessageStatus.ERROR,
            stats=None,
            error=error.message,
            error_kind=error.kind,
        )

    def save(self) -> None:
        """Write what waits. Raises: DatabaseError kinds when that is still not possible."""
        # Held meanwhile: nobody may go on with a reply that is about to be overwritten.
        with self._lock:
            for message, _ in list(self._waiting.values()):
                saved = self._write(message)
                del self._waiting[message.id]
                self._on_saved(saved)

    def try_to_save(self) -> bool:
        """Write what waits; False when that is still not possible."""
        try:
            self.save()
        except DatabaseError as error:
            _log.warning("replies are still not saved: %s", error)
            return False
        return True

    def _write(self, message: Message) -> Message:
        return self._store.update_message(
            message.id,
            content=message.content,
            reasoning=message.reasoning,
            status=message.status,
            stats=message.stats,
            error=message.error,
            error_kind=message.error_kind,
        )
