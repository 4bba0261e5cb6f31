"""Which conversations lie in hot memory: who is let go after a while, who is brought in ahead.

Moves happen on the engine thread, in idle time. Knows no window, and of the database the visits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from app.jobs import ReleaseJob, RestoreJob
from app.settings_file import SettingsStore
from app.store.chat_store import ChatStore
from app.worker import EngineWorker, JobHandle

NUM_LIKELY = 3


class Residency:
    """Notes every use of a conversation. Usable from several threads.

    on_moved is told, on the engine thread, who was brought in or let go. clock: seconds.
    """

    def __init__(
        self,
        store: ChatStore,
        worker: EngineWorker,
        settings: SettingsStore,
        *,
        on_moved: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._worker = worker
        self._settings = settings
        self._on_moved = on_moved
        self._clock = clock
        self._used: dict[str, float] = {}
        self._lock = threading.Lock()
        self._likely: JobHandle | None = None

    def note_use(self, conversation_id: str) -> None:
        """Note that a conversation is in hot memory, or will be in a moment."""
        with self._lock:
            self._used[conversation_id] = self._clock()

    def clear(self) -> None:
        """Note that nothing is in hot memory: another model is loaded."""
        with self._lock:
            self._used.clear()

    def prefetch(self, conversation_id: str) -> None:
        """Bring one conversation in while nothing else is to be done."""
        if self._may_prefetch():
            job = RestoreJob(lambda: [conversation_id], on_restored=self._restored)
            self._worker.submit(job)

    def prefetch_likely(self, after: str | None) -> None:
        """Bring in what is usually opened after a conversation, as far as there is room."""
        if not self._may_prefetch():
            return
        if self._likely is not None:
            self._likely.cancel()
        job = RestoreJob(
            lambda: self._store.likely_next(after, NUM_LIKELY),
            on_restored=self._restored,
            only_where_room=True,
        )
        self._likely = self._worker.submit(job)

    def release(self, conversation_id: str) -> None:
        """Give a conversation's hot memory back soon."""
        self._worker.submit(ReleaseJob(lambda: [conversation_id], on_released=self._released))

    def idle_job(self) -> ReleaseJob | None:
        """Return the job that lets go what was not used for the time set; None when all was."""
        return ReleaseJob(self._expired, on_released=self._released) if self._expired() else None

    def _may_prefetch(self) -> bool:
        return self._worker.model is not None and self._settings.value.prefetch

    def _expired(self) -> list[str]:
        latest = self._clock() - 60.0 * self._settings.value.session_timeout_minutes
        with self._lock:
            return [key for key, used in self._used.items() if used <= latest]

    def _restored(self, conversation_id: str) -> None:
        self.note_use(conversation_id)
        self._on_moved(conversation_id)

    def _released(self, conversation_id: str) -> None:
        with self._lock:
            self._used.pop(conversation_id, None)
        self._on_moved(conversation_id)
