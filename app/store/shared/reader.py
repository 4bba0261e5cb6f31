"""Blocks from a shared store for the engine thread, which waits no longer than it is worth.

The network is another thread's; a server that does not answer in time is left alone for a while.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING

from app.errors import SharedStoreError, SharedUnreachableError

if TYPE_CHECKING:
    from app.store.shared.database import SharedDatabase
    from engine.memory.storage import StoredBlock

log = logging.getLogger(__name__)

WAIT_S = 1.5
QUIET_S = 60.0
# What is not faster than this is hardly faster than reading the text again.
_BYTES_PER_SECOND = 4 << 20
_BATCH_BYTES = 4 << 20
_FIRST_BATCH = 4
_MAX_BATCH = 64

Blocks = list["StoredBlock"]


class SharedReader:
    """Reads over a connection of its own. on_trouble is told why blocks did not come.

    open_database: asked on the reading thread, which may have to import psycopg.
    """

    def __init__(
        self,
        open_database: Callable[[], SharedDatabase],
        on_trouble: Callable[[SharedStoreError], None],
    ) -> None:
        self._open_database = open_database
        self._on_trouble = on_trouble
        self._lock = threading.Lock()
        self._line: _Line | None = None
        self._is_closed = False
        self._quiet_until = 0.0
        self._trouble: SharedStoreError | None = None

    @property
    def trouble(self) -> SharedStoreError | None:
        """Return why the server is being left alone; None where it is not."""
        return self._trouble if self.is_quiet else None

    @property
    def is_quiet(self) -> bool:
        """Tell whether the server is being left alone."""
        return self._is_closed or time.monotonic() < self._quiet_until

    def warm_up(self) -> None:
        """Connect ahead of the first question; returns at once."""
        if not self.is_quiet:
            self._ask(b"", ())

    def read(self, fingerprint: bytes, hashes: Sequence[bytes]) -> Iterator[StoredBlock]:
        """Yield blocks in the order asked for, as far as they come in time; never raises.

        The next batch is under way while the caller is busy with the present one.
        """
        at, count, block_bytes = 0, _FIRST_BATCH, 0
        waiting = None if self.is_quiet else self._ask(fingerprint, hashes[:count])
        while waiting is not None:
            found = self._wait(waiting, count * block_bytes)
            is_whole = len(found) == len(hashes[at : at + count])
            at += count
            if found:
                block_bytes = sum(len(block.payload) for block in found) // len(found)
                count = max(1, min(_MAX_BATCH, _BATCH_BYTES // max(1, block_bytes)))
            following = hashes[at : at + count] if is_whole else ()
            waiting = self._ask(fingerprint, following) if following else None
            yield from found

    def close(self) -> None:
        """Give up what is under way; returns at once."""
        self._is_closed = True
        self._drop()

    def _ask(self, fingerprint: bytes, hashes: Sequence[bytes]) -> Future[Blocks]:
        with self._lock:
            if self._line is None:
                self._line = _Line(self._open_database)
            return self._line.ask(fingerprint, hashes)

    def _wait(self, waiting: Future[Blocks], expected_bytes: int) -> Blocks:
        try:
            return waiting.result(WAIT_S + expected_bytes / _BYTES_PER_SECOND)
        except TimeoutError:
            self._rest(SharedUnreachableError("The shared store takes too long to answer."))
        except SharedStoreError as error:
            self._rest(error)
        except CancelledError:
            log.info("shared store: closed while blocks were read")
        return []

    def _rest(self, error: SharedStoreError) -> None:
        """Leave the server alone for a while."""
        self._trouble = error
        self._quiet_until = time.monotonic() + QUIET_S
        log.warning("shared store, reading: %s %s", error, error.detail)
        self._drop()
        if not self._is_closed:
            self._on_trouble(error)

    def _drop(self) -> None:
        with self._lock:
            line, self._line = self._line, None
        if line is not None:
            line.cut()


class _Line:
    """One thread with one database; cut off, it ends as soon as the network lets it."""

    def __init__(self, open_database: Callable[[], SharedDatabase]) -> None:
        self._open_database = open_database
        self._questions: SimpleQueue[_Question | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._is_cut = False
        self._database: SharedDatabase | None = None
        threading.Thread(target=self._run, name="shared-read", daemon=True).start()

    def ask(self, fingerprint: bytes, hashes: Sequence[bytes]) -> Future[Blocks]:
        """Queue a question; its future is cancelled when the line is cut first."""
        question = _Question(fingerprint, tuple(hashes), Future())
        self._questions.put(question)
        return question.answer

    def cut(self) -> None:
        """Break the connection and let the thread end; returns at once."""
        with self._lock:
            self._is_cut = True
            if self._database is not None:
                self._database.cut()
        self._questions.put(None)

    def _run(self) -> None:
        while (question := self._questions.get()) is not None:
            if self._is_cut:
                question.answer.cancel()
                continue
            try:
                question.answer.set_result(self._answer(question))
            except SharedStoreError as error:
                question.answer.set_exception(error)
        if self._database is not None:
            self._database.close()

    def _answer(self, question: _Question) -> Blocks:
        database = self._connected()
        # Late: without psycopg there is nothing to import it for.
        from app.store.shared.reads import read_blocks

        with database.connect() as connection:
            if not question.hashes:
                return []
            return read_blocks(connection, question.fingerprint, question.hashes)

    def _connected(self) -> SharedDatabase:
        if self._database is None:
            database = self._open_database()
            with self._lock:
                self._database = database
                if self._is_cut:
                    database.cut()
        return self._database


@dataclass(frozen=True, slots=True)
class _Question:
    fingerprint: bytes
    hashes: tuple[bytes, ...]
    answer: Future[Blocks]
