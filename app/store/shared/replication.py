"""The thread that keeps a shared store and this machine in step: connects, and starts again.

Never asked by the engine thread for anything it would wait for. What is still to be sent stands in
kv.db, so that ending at any moment loses nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from app.errors import (
    AppError,
    SharedAddressError,
    SharedDriverMissingError,
    SharedRefusedError,
    SharedStoreError,
    SharedUnreachableError,
    SharedUnusableError,
)
from app.store.kv_queue import deadline_after
from app.store.shared.home import Home
from app.store.shared.opening import open_database
from app.store.shared.signals import Signals
from engine.errors import StoreError

if TYPE_CHECKING:
    from app.store.shared.database import SharedDatabase

log = logging.getLogger(__name__)

_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0
_FOR_EVER_S = 1e6
# Of the time to close, what is left for a broken connection to be noticed.
_LAST_S = 0.3
# Asking again changes nothing here; the first two want another address or an installation.
_HOPELESS = (SharedAddressError, SharedDriverMissingError)
_SLOW = (SharedRefusedError, SharedUnusableError)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far replication is.

    num_attempts: connections tried so far. num_waiting: manifests to be sent, where that is known.
    is_settled: connected, and nothing is left to be done. error: why there is no connection.
    """

    is_connected: bool = False
    num_attempts: int = 0
    num_waiting: int = 0
    is_settled: bool = False
    error: SharedStoreError | None = None


class Replication:
    """One address until it is closed. on_progress is called after every change, on any thread."""

    def __init__(
        self, url: str, home: Home, on_progress: Callable[[Replication, Progress], None]
    ) -> None:
        self.signals = Signals()
        self._url = url
        self._home = home
        self._on_progress = on_progress
        self._changed = threading.Condition()
        self._progress = Progress()
        self._telling = threading.RLock()
        # What was told last; who waits must not go on before others have heard of it.
        self._told = self._progress
        self._database: SharedDatabase | None = None
        self._thread = threading.Thread(target=self._run, name="shared-store", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    @property
    def progress(self) -> Progress:
        """How far it is."""
        return self._progress

    @property
    def is_running(self) -> bool:
        """Tell whether the thread is still there."""
        return self._thread.is_alive()

    def wake(self) -> None:
        """Tell that there may be something new to send; returns at once."""
        self._signal(self.signals.wake)

    def note(self, conversation_id: str, *, is_wanted: bool = False) -> None:
        """Tell that a conversation changed here, or is wanted here; returns at once."""
        self._signal(partial(self.signals.note, conversation_id, is_wanted=is_wanted))

    def wait_settled(self, timeout_s: float) -> Progress:
        """Wait until nothing is left to be done, or until there is no connection."""

        def is_over() -> bool:
            now = self._told
            return now.is_settled or now.error is not None or not self._thread.is_alive()

        with self._changed:
            self._changed.wait_for(is_over, max(0.0, timeout_s))
            return self._told

    def close(self, timeout_s: float) -> None:
        """Send what can be sent in that time, give the rest up for now, end the thread."""
        left = deadline_after(timeout_s)
        if self._progress.is_connected:
            self.wait_settled(left() - _LAST_S)
        self.stop()
        self._thread.join(max(left(), _LAST_S))

    def stop(self) -> None:
        """End the thread at its next step, and whatever it waits for; returns at once."""
        self.signals.stop()
        with self._changed:
            if self._database is not None:
                self._database.cut()

    def _run(self) -> None:
        pause = _FIRST_PAUSE_S
        while not self.signals.is_stopped:
            self._set(num_attempts=self._progress.num_attempts + 1)
            started = time.monotonic()
            error = self._connect_and_run()
            if self.signals.is_stopped:
                break
            log.warning("shared store: %s %s", error, error.detail)
            self._home.catalogue.clear()
            self._set(is_connected=False, is_settled=False, error=error)
            pause = _FIRST_PAUSE_S if time.monotonic() - started > _LONGEST_PAUSE_S else pause
            self._rest(_pause_after(error, pause))
            pause = min(2 * pause, _LONGEST_PAUSE_S)
        self._set(is_connected=False)
        self.signals.close()

    def _connect_and_run(self) -> SharedStoreError:
        """Keep in step until something goes wrong; return what."""
        try:
            database = open_database(self._url)
        except SharedStoreError as error:
            return error
        # Late: it imports psycopg.
        from app.store.shared.session import SharedSession

        with self._changed:
            self._database = database
        try:
            SharedSession(database, self._home, self.signals, self._note).run()
        except SharedStoreError as error:
            return error
        except (AppError, StoreError) as error:
            # A database of our own, which may be damaged or busy.
            return SharedUnreachableError(str(error), detail=error.detail)
        finally:
            database.close()
        return SharedStoreError("The shared store is being closed.")

    def _signal(self, give: Callable[[], None]) -> None:
        with self._changed:
            # In one step, or the thread might just have found nothing left, and say so afterwards.
            give()
            self._progress = replace(self._progress, is_settled=False)
        self._tell()

    def _note(self, num_waiting: int, is_settled: Callable[[], bool]) -> None:
        with self._changed:
            self._progress = replace(
                self._progress,
                is_connected=True,
                num_waiting=num_waiting,
                is_settled=is_settled(),
                error=None,
            )
        self._tell()

    def _set(self, **changes: object) -> None:
        with self._changed:
            self._progress = replace(self._progress, **changes)  # type: ignore[arg-type]
        self._tell()

    def _tell(self) -> None:
        """Tell the newest progress, also where it is the same: something else may have changed."""
        told: Progress | None = None
        # One thread at a time, or what is told last might not be the newest.
        with self._telling:
            while told is not self._progress:
                told = self._progress
                self._on_progress(self, told)
            with self._changed:
                self._told = told
                self._changed.notify_all()

    def _rest(self, pause_s: float) -> None:
        """Leave the server alone; work that comes meanwhile waits."""
        left = deadline_after(pause_s)
        while left() and not self.signals.is_stopped:
            self.signals.wait(left())


def _pause_after(error: SharedStoreError, pause_s: float) -> float:
    if isinstance(error, _HOPELESS):
        return _FOR_EVER_S
    return _LONGEST_PAUSE_S if isinstance(error, _SLOW) else pause_s
