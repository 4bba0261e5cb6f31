"""The cold tier: blocks of keys and values on disk, derived and disposable, within a budget.

Implements the engine's ColdStore. Reads run on the caller's thread, writes on the KV writer's.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.errors import DatabaseDamagedError, DatabaseError
from app.events import Notice
from app.store import kv_reads, kv_removal
from app.store.kv_database import KVDatabase
from app.store.kv_eviction import EvictionOrder
from app.store.kv_queue import WriteQueue
from app.store.kv_replicas import KVReplicas
from app.store.kv_usage import ConversationUse, usage
from app.store.kv_writer import KVWriter
from engine.errors import StoreError
from engine.kernels.checksum import crc32
from engine.memory.storage import Manifest, SnapshotJob, StoredBlock

_log = logging.getLogger(__name__)

_MIN_BUDGET_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Verified:
    """Result of reading every block: how many, how many bytes, how many were damaged."""

    num_blocks: int
    num_bytes: int
    num_damaged: int


@dataclass(frozen=True, slots=True)
class Compacted:
    """Bytes on disk, and blocks in the file, before and after."""

    before_bytes: int
    after_bytes: int
    before_blocks: int = 0
    after_blocks: int = 0


def default_budget(path: Path) -> int:
    """Return a tenth of the volume of kv.db, but at most a fifth of what is free, in bytes.

    What the file itself takes counts as free: the budget must not shrink because it is used.
    """
    used = path.stat().st_size if path.exists() else 0
    folder = path.parent
    while not folder.exists():
        folder = folder.parent
    disk = shutil.disk_usage(folder)
    return max(_MIN_BUDGET_BYTES, min(disk.total // 10, (disk.free + used) // 5))


def _ignore(notice: Notice) -> None:
    del notice


class KVStore:
    """kv.db with its writer thread. A file that cannot be used is replaced by an empty one.

    on_notice is told, on the writer thread, what is not being kept and why. is_keeping: False
    refuses whatever is new; what is there stays, and can be read and cleared. bytes_read: of blocks
    since the start.
    Where the folder or the disk does not allow one either, nothing is kept.
    """

    def __init__(
        self, path: Path, budget_bytes: int, *, on_notice: Callable[[Notice], None] = _ignore
    ) -> None:
        self.is_keeping = True
        self.bytes_read = 0
        self._database = KVDatabase(path)
        self._queue = WriteQueue()
        self._writer = KVWriter(
            self._database, self._queue, budget_bytes=budget_bytes, on_notice=on_notice
        )
        self.replicas = KVReplicas(self._database, self._reading, self._queue.put_command)
        if self._database.was_damaged:
            message = "The stored states were damaged and have been started anew."
            on_notice(Notice("kv_recreated", message))
        self._writer.start()

    def existing(self, fingerprint: bytes, hashes: Sequence[bytes]) -> frozenset[bytes]:
        """Return those of the hashes that are stored. Raises: StoreError."""
        with self._reading() as database, database.reading() as connection:
            return frozenset(kv_reads.existing(connection, fingerprint, hashes))

    def kept(self, fingerprint: bytes, hashes: Sequence[bytes]) -> frozenset[bytes]:
        """Return the same: nobody else keeps any. Raises: StoreError."""
        return self.existing(fingerprint, hashes)

    def read_blocks(self, fingerprint: bytes, hashes: Sequence[bytes]) -> Iterator[StoredBlock]:
        """Yield the stored blocks in the order asked for; missing ones are left out.

        The payload's crc32 is not checked here. Raises: StoreError.
        """
        read: list[bytes] = []
        try:
            with self._reading() as database, database.reading() as connection:
                for block in kv_reads.read_blocks(connection, fingerprint, hashes):
                    read.append(block.hash)
                    self.bytes_read += len(block.payload)
                    yield block
        finally:
            self._writer.note_blocks(fingerprint, read)

    def read_manifests(
        self, fingerprint: bytes, conversation_id: str, branch: str | None = None
    ) -> Sequence[Manifest]:
        """Return a conversation's branches for this model, newest first, or the one named.

        Raises: StoreError.
        """
        with self._reading() as database, database.reading() as connection:
            found = kv_reads.read_manifests(connection, fingerprint, conversation_id, branch)
        if found:
            self._writer.note_manifest(fingerprint, conversation_id)
        return found

    def usage(self) -> list[ConversationUse]:
        """Return what every conversation costs here, biggest first. Raises: StoreError."""
        with self._reading() as database, database.reading() as connection:
            return usage(connection)

    def used_bytes(self) -> int:
        """Return the bytes really on disk, the WAL included."""
        return self._database.file_bytes()

    def num_blocks(self) -> int:
        """Return how many blocks are stored. Raises: StoreError."""
        with self._reading() as database, database.reading() as connection:
            return kv_reads.count(connection)

    def budget_bytes(self) -> int:
        """Return the bytes the store may take."""
        return self._writer.budget_bytes

    def pace_while(self, is_busy: Callable[[], bool]) -> None:
        """Write slowly only while the engine is busy; before this is called, always."""
        self._writer.is_paced = is_busy

    @property
    def pending(self) -> int:
        """Jobs and commands that are not finished."""
        return self._queue.pending

    @property
    def problem(self) -> str:
        """Why nothing is being kept now, in plain words; "" when all is well."""
        return self._writer.problem

    @property
    def bytes_written(self) -> int:
        """Bytes of payload written since the start."""
        return self._writer.bytes_written

    def submit(self, job: SnapshotJob) -> None:
        """Queue a job; it is told the outcome exactly once, also when the store is closed."""
        if not self.is_keeping or not self._queue.put_job(job):
            job.on_done(False)

    def forget(self, conversation_id: str) -> None:
        """Drop a conversation's manifests, and the blocks that nothing else names; soon."""
        for job in self._queue.remove_jobs(conversation_id):
            job.on_done(False)
        self._queue.put_command(lambda: self._forget(conversation_id))

    def discard_blocks(self, fingerprint: bytes, hashes: Sequence[bytes]) -> None:
        """Drop damaged blocks; soon."""
        self._queue.put_command(lambda: self._discard(fingerprint, hashes))

    def set_budget(self, budget_bytes: int) -> None:
        """Change the budget; the file shrinks to it soon."""
        self._writer.budget_bytes = budget_bytes
        self._queue.put_command(self._writer.tidy)

    def set_eviction_order(self, order: str) -> None:
        """Say who goes first when the budget is reached. order: an EvictionOrder value."""
        self._writer.eviction_order = EvictionOrder(order)

    def flush(self, timeout: float) -> bool:
        """Wait until everything queued so far is written; False when time ran out."""
        return self._queue.wait_empty(timeout)

    def close(self, timeout: float = 2.0) -> bool:
        """Write what is pending within timeout seconds, give the rest up, close the file."""
        is_done = self._writer.close(timeout)
        if is_done:
            self._database.close()
        else:
            self._database.abandon()
        return is_done

    def verify(self) -> Verified:
        """Read every block, check it, drop the damaged ones; takes seconds. Raises: StoreError."""
        num_blocks = num_bytes = 0
        damaged: list[tuple[bytes, bytes]] = []
        with self._reading() as database, database.reading() as connection:
            for fingerprint, key, block in kv_reads.read_all(connection):
                num_blocks += 1
                if block is None or crc32(block.payload) != block.crc32:
                    damaged.append((fingerprint, key))
                else:
                    num_bytes += len(block.payload)
        for fingerprint, key in damaged:
            self.discard_blocks(fingerprint, [key])
        return Verified(num_blocks, num_bytes, len(damaged))

    def compact(self) -> Compacted:
        """Drop blocks that nothing names, give every free page back; waits. Raises: StoreError."""
        before_bytes, before_blocks = self.used_bytes(), self.num_blocks()
        self._wait(self._writer.compact)
        return Compacted(before_bytes, self.used_bytes(), before_blocks, self.num_blocks())

    def clear(self) -> int:
        """Drop everything; wait, and return the bytes really freed. Raises: StoreError."""
        before = self.used_bytes()
        self._wait(lambda: self._writer.replace(keep=False))
        return before - self.used_bytes()

    def _forget(self, conversation_id: str) -> None:
        with self._database.writing() as connection:
            kv_removal.forget(connection, conversation_id)
        self._writer.give_back(self.used_bytes() // 20)

    def _discard(self, fingerprint: bytes, hashes: Sequence[bytes]) -> None:
        with self._database.writing() as connection:
            kv_removal.discard_blocks(connection, fingerprint, hashes)

    def _wait(self, run: Callable[[], object]) -> None:
        with self._reading():
            self._queue.put_command(run).result()

    @contextmanager
    def _reading(self) -> Iterator[KVDatabase]:
        """Turn what goes wrong into StoreError; a damaged file is replaced soon."""
        try:
            yield self._database
        except DatabaseError as error:
            if isinstance(error, DatabaseDamagedError):
                self._queue.put_command(self._writer.replace_damaged)
            raise StoreError(str(error), detail=error.detail) from error
        except (TypeError, ValueError, OverflowError) as error:
            # SQLite keeps values of any type in any column, so this is how damaged rows show.
            _log.warning("kv.db holds impossible values", exc_info=error)
            self._queue.put_command(self._writer.replace_damaged)
            raise StoreError("The stored states are damaged.", detail=repr(error)) from error
