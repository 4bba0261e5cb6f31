"""The cold tier as the engine sees it: kv.db, and behind it what other machines have stored.

Writes go to kv.db alone; the shared store gets them from there. What is found there only is read
from there, and stored here with the next turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from app.store.kv_store import KVStore
from app.store.shared.store import SharedStore
from engine.memory.storage import Manifest, SnapshotJob, StoredBlock


class TieredStore:
    """Implements the engine's ColdStore over both. Raises: StoreError, of kv.db only."""

    def __init__(self, kv: KVStore, shared: SharedStore) -> None:
        self._kv = kv
        self._shared = shared

    def submit(self, job: SnapshotJob) -> None:
        """Queue a job for kv.db; once written, it goes on to the shared store."""
        job.on_done = _telling(job.on_done, self._shared)
        self._kv.submit(job)

    def kept(self, fingerprint: bytes, hashes: Sequence[bytes]) -> frozenset[bytes]:
        """Return those that are in kv.db."""
        return self._kv.existing(fingerprint, hashes)

    def existing(self, fingerprint: bytes, hashes: Sequence[bytes]) -> frozenset[bytes]:
        """Return those that can be read, here or there."""
        here = self._kv.existing(fingerprint, hashes)
        others = [key for key in hashes if key not in here]
        return here | self._shared.existing(others) if others else here

    def read_blocks(self, fingerprint: bytes, hashes: Sequence[bytes]) -> Iterator[StoredBlock]:
        """Yield blocks in the order asked for; missing ones are left out."""
        there = self._shared.existing(hashes)
        if there:
            there -= self._kv.existing(fingerprint, hashes)
        for is_there, run in groupby(hashes, there.__contains__):
            store = self._shared if is_there else self._kv
            yield from store.read_blocks(fingerprint, list(run))

    def read_manifests(
        self, fingerprint: bytes, conversation_id: str, branch: str | None = None
    ) -> Sequence[Manifest]:
        """Return a conversation's branches; those of other machines come into kv.db by themselves.

        See app/store/shared/exchange.py.
        """
        return self._kv.read_manifests(fingerprint, conversation_id, branch)

    def forget(self, conversation_id: str) -> None:
        """Drop a conversation from kv.db."""
        self._kv.forget(conversation_id)

    def discard_blocks(self, fingerprint: bytes, hashes: Sequence[bytes]) -> None:
        """Drop damaged blocks, wherever they came from."""
        there = [key for key in hashes if key not in self._kv.existing(fingerprint, hashes)]
        self._shared.discard_blocks(fingerprint, there)
        self._kv.discard_blocks(fingerprint, hashes)

    def used_bytes(self) -> int:
        """Bytes of kv.db on disk."""
        return self._kv.used_bytes()

    def budget_bytes(self) -> int:
        """Bytes kv.db may take."""
        return self._kv.budget_bytes()


def _telling(on_done: Callable[[bool], None], shared: SharedStore) -> Callable[[bool], None]:
    def done(is_written: bool) -> None:
        on_done(is_written)
        if is_written:
            shared.note_written()

    return done
