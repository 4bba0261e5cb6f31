"""The store that several machines share: a PostgreSQL server behind kv.db, off without an address.

Whatever the engine thread asks is answered from memory, or within a moment. Without psycopg, or
without a server, everything goes on as if there were no such store.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from app.errors import SharedStoreError
from app.events import ErrorReport, SharedStoreChanged, SharedTitle
from app.store.kv_queue import deadline_after
from app.store.shared.catalogue import SharedCatalogue
from app.store.shared.home import Home, Texts
from app.store.shared.opening import open_database
from app.store.shared.reader import SharedReader
from app.store.shared.replication import Progress, Replication

if TYPE_CHECKING:
    from app.store.kv_replicas import KVReplicas
    from engine.memory.storage import StoredBlock


class SharedStore:
    """One address at a time. Usable from several threads.

    on_change is told how it stands, on the replicating or the engine thread. on_arrived is told
    whose states came from another machine.
    """

    def __init__(
        self,
        replicas: KVReplicas,
        texts: Texts,
        *,
        on_change: Callable[[SharedStoreChanged], None],
        on_arrived: Callable[[str], None],
    ) -> None:
        self._texts = texts
        self._on_change = on_change
        self._replicas = replicas
        self._on_arrived = on_arrived
        self._catalogue = SharedCatalogue()
        self._lock = threading.Lock()
        self._replication: Replication | None = None
        self._reader: SharedReader | None = None
        self._ended: list[Replication] = []
        self.state = SharedStoreChanged()

    def set_url(self, url: str) -> None:
        """Share by way of this address from now on, "" by none; returns at once."""
        self._stop()
        if not url:
            self._tell(SharedStoreChanged())
            return
        self._tell(SharedStoreChanged(is_on=True))
        # One of its own: the thread of the address before may still fill the other one.
        self._catalogue = SharedCatalogue()
        home = Home(self._replicas, self._texts, self._catalogue, self._on_arrived)
        with self._lock:
            self._reader = SharedReader(lambda: open_database(url), self._not_read)
            self._replication = Replication(url, home, self._progressed)
            self._replication.start()

    def existing(self, hashes: Sequence[bytes]) -> frozenset[bytes]:
        """Return those of the blocks that can be read from there now; asks nobody."""
        reader = self._reader
        if reader is None or reader.is_quiet:
            return frozenset()
        return self._catalogue.among(hashes)

    def read_blocks(self, fingerprint: bytes, hashes: Sequence[bytes]) -> Iterator[StoredBlock]:
        """Yield blocks in the order asked for, as far as they come in time; never raises."""
        reader = self._reader
        if reader is None:
            return
        missing = set(hashes)
        for block in reader.read(fingerprint, hashes):
            missing.discard(block.hash)
            yield block
        # Those of a server that is only slow are still there.
        if not reader.is_quiet:
            self._catalogue.drop(missing)

    def discard_blocks(self, fingerprint: bytes, hashes: Sequence[bytes]) -> None:
        """Note that blocks that were read from there are damaged."""
        replication = self._replication
        damaged = tuple(self._catalogue.among(hashes))
        if replication is not None and damaged:
            self._catalogue.drop(damaged)
            replication.signals.note_damaged(fingerprint, damaged)

    def note_written(self) -> None:
        """Tell that kv.db has something new; returns at once."""
        if (replication := self._replication) is not None:
            replication.wake()

    def note_changed(self, conversation_id: str) -> None:
        """Tell that a conversation's text changed here; returns at once."""
        if (replication := self._replication) is not None:
            replication.note(conversation_id)

    def bring(self, conversation_ids: Sequence[str]) -> None:
        """Bring conversations here that are only there; soon."""
        if (replication := self._replication) is not None:
            for conversation_id in conversation_ids:
                replication.note(conversation_id, is_wanted=True)

    def wait_settled(self, timeout_s: float) -> Progress:
        """Wait until everything is exchanged, or there is no connection; tell how far it is."""
        replication = self._replication
        return Progress() if replication is None else replication.wait_settled(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Send what can be sent in that time, give the rest up for now, end every thread."""
        left = deadline_after(timeout_s)
        with self._lock:
            replication, self._replication = self._replication, None
            reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
        if replication is not None:
            replication.close(left())
        for ended in self._ended:
            ended.close(left())

    def _stop(self) -> None:
        with self._lock:
            replication, self._replication = self._replication, None
            reader, self._reader = self._reader, None
        if replication is not None:
            replication.stop()
            self._ended = [one for one in self._ended if one.is_running] + [replication]
        if reader is not None:
            reader.close()

    def _progressed(self, replication: Replication, progress: Progress) -> None:
        if replication is not self._replication:
            return
        reader = self._reader
        error = progress.error or (None if reader is None else reader.trouble)
        if progress.is_connected and not self.state.is_connected and reader is not None:
            reader.warm_up()
        there = self._catalogue.conversations()
        elsewhere = self.state.elsewhere
        if progress.is_settled:
            here = set(self._texts.ids())
            elsewhere = tuple(SharedTitle(one.id, one.title) for one in there if one.id not in here)
        self._tell(
            SharedStoreChanged(
                is_on=True,
                is_connected=progress.is_connected,
                num_conversations=len(there),
                elsewhere=elsewhere if there else (),
                num_waiting=progress.num_waiting,
                error=None if error is None else _report(error),
            )
        )

    def _not_read(self, error: SharedStoreError) -> None:
        self._tell(replace(self.state, error=_report(error)))

    def _tell(self, state: SharedStoreChanged) -> None:
        if state != self.state:
            self.state = state
            self._on_change(state)


def look(url: str) -> tuple[str, int]:
    """Connect to an address; return the server's identity and how many conversations are there.

    Raises: SharedStoreError kinds. Takes seconds where nobody answers.
    """
    database = open_database(url)
    # Late: it imports psycopg.
    from app.store.shared.reads import list_conversations

    try:
        server = database.make()
        with database.connect() as connection:
            return server, len(list_conversations(connection))
    finally:
        database.close()


def _report(error: SharedStoreError) -> ErrorReport:
    return ErrorReport(type(error).__name__, str(error), error.detail)
