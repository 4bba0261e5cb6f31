"""The only thread that writes kv.db and checkpoints it. Knows no model and no conversation."""

from __future__ import annotations

import logging
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy import Connection

from app.errors import (
    DatabaseBusyError,
    DatabaseDamagedError,
    DatabaseError,
    DatabaseFullError,
    DatabaseUnavailableError,
)
from app.events import Notice
from app.store.kv_database import KVDatabase, free_bytes, page_bytes
from app.store.kv_eviction import EvictionOrder, Limit, make_room
from app.store.kv_queue import Command, Item, WriteQueue, deadline_after
from app.store.kv_removal import sweep
from app.store.kv_writes import cost_of, touch, touch_manifests, write_job
from engine.memory.storage import SnapshotJob

_log = logging.getLogger(__name__)

_IDLE_S = 2.0
# Of the time to close, what is left for a statement to notice that it was interrupted.
_LAST_S = 0.2
_VACUUM_BYTES = 16 << 20
_MAX_UNEXPECTED = 3
# The last bytes of a disk belong to the conversations themselves.
_DISK_RESERVE_BYTES = 64 << 20
_LAST_BYTES = 4 << 20
_SPARE_BYTES = 16 << 20

# While the engine works, a snapshot is written over this many times the processor time it takes,
# with rests after every block: two busy threads on two processors would feel a third one.
_SPREAD = 160
_LONGEST_REST_S = 0.4


class KVWriter:
    """Takes items off a queue, one transaction each, until closed.

    It has the priority of the others. A thread of a low one may be put aside with the interpreter's
    lock in its hand when other programs use every processor, and the window stands still.

    problem: why nothing is being kept now, "" when all is well. on_notice is called on this thread.
    is_paced: asked whether the engine works, which must not feel what is written.
    """

    def __init__(
        self,
        database: KVDatabase,
        queue: WriteQueue,
        *,
        budget_bytes: int,
        on_notice: Callable[[Notice], None],
    ) -> None:
        self.budget_bytes = budget_bytes
        self.eviction_order = EvictionOrder.BALANCED
        self.problem = ""
        self.bytes_written = 0
        self._database = database
        self._queue = queue
        self._on_notice = on_notice
        self._block_uses: Counter[tuple[bytes, bytes]] = Counter()
        self._manifest_uses: Counter[tuple[bytes, str]] = Counter()
        self._uses_lock = threading.Lock()
        self._num_replaced = 0
        self._num_unexpected = 0
        self._is_given_up = False
        self.is_paced: Callable[[], bool] = lambda: True
        self._thread = threading.Thread(target=self._run, name="kv-writer", daemon=True)

    def start(self) -> None:
        """Start the thread; its first work is to sweep what a former version left over."""
        self._queue.put_command(self.tidy)
        self._thread.start()

    def note_blocks(self, fingerprint: bytes, hashes: list[bytes]) -> None:
        """Count reads of blocks, to be written with the next transaction."""
        with self._uses_lock:
            self._block_uses.update((fingerprint, key) for key in hashes)

    def note_manifest(self, fingerprint: bytes, conversation_id: str) -> None:
        """Count a restore, to be written with the next transaction."""
        with self._uses_lock:
            self._manifest_uses[fingerprint, conversation_id] += 1

    def close(self, timeout: float) -> bool:
        """Finish what is pending within timeout seconds, give the rest up; True if all was done."""
        left = deadline_after(timeout)
        self._queue.close()
        is_done = self._queue.wait_empty(left() - _LAST_S)
        for item in self._queue.drain():
            _refuse(item)
        if not is_done:
            self._is_given_up = True
            self._database.interrupt()
        self._thread.join(max(left(), _LAST_S))
        return is_done

    def tidy(self) -> int:
        """Sweep, bring the file into its budget, give free pages back; return the blocks swept."""
        self._require_lock()
        with self._database.writing() as connection:
            num_swept = sweep(connection)
            make_room(connection, 0, limit=self._limit(), keep=None)
        self.give_back(_SPARE_BYTES)
        return num_swept

    def give_back(self, spare_bytes: int) -> None:
        """Shrink the file until at most spare_bytes of it are free pages and it is in budget."""
        self._database.checkpoint()
        while not self._queue.is_closed and (excess := self._excess_bytes(spare_bytes)) > 0:
            before = self._database.file_bytes()
            self._database.vacuum(min(_VACUUM_BYTES, excess))
            if not self._database.checkpoint() or self._database.file_bytes() >= before:
                break

    def compact(self) -> None:
        """Sweep, and give every free page back to the disk. Raises: DatabaseError kinds."""
        self.tidy()
        self.give_back(0)

    def replace(self, *, keep: bool) -> None:
        """Start over with an empty file. Raises: DatabaseError kinds."""
        self._require_lock()
        self._database.replace(keep=keep)
        self._database.checkpoint()

    def _limit(self) -> Limit:
        return Limit(self.budget_bytes, self.eviction_order)

    def _excess_bytes(self, spare_bytes: int) -> int:
        """Return how many bytes of free pages are too many."""
        with self._database.reading() as connection:
            free, page = free_bytes(connection), page_bytes(connection)
        over_budget = self._database.file_bytes() - self.budget_bytes
        # Rounded up, what is over budget; rounded down, what may stay.
        return min(free, max(free - spare_bytes, over_budget + page)) // page * page

    def _run(self) -> None:
        while True:
            item = self._queue.take(_IDLE_S)
            if item is not None:
                try:
                    self._do(item)
                finally:
                    self._queue.done()
            elif self._queue.is_closed:
                break
            else:
                with suppress(DatabaseError):
                    self._write_uses()

    def _do(self, item: Item) -> None:
        try:
            if isinstance(item, Command):
                if item.result.set_running_or_notify_cancel():
                    item.result.set_result(item.run())
                return
            self._write(item)
        except Exception as error:  # the thread must outlive whatever one item does
            self._recover(error)
            if isinstance(item, Command):
                item.result.set_exception(error)
            else:
                item.on_done(False)
        else:
            self.problem = ""
            self._num_unexpected = 0
            item.on_done(True)

    def _write(self, job: SnapshotJob) -> None:
        self._require_lock()
        # The WAL, what a checkpoint of it adds to the file, and pages rewritten on the way.
        self._require_disk(3 * (sum(map(cost_of, job.blocks)) + len(job.manifest.body)))
        with self._database.writing() as connection:
            # What was read since the last job counts when this one has to make room.
            self._touch(connection)
            written = write_job(connection, job, limit=self._limit(), rest=self._rest)
        self.bytes_written += written.num_bytes
        if self._database.checkpoint() and self._database.file_bytes() > self.budget_bytes:
            self.give_back(self.budget_bytes)

    def _rest(self, processor_s: float) -> None:
        """Rest between two blocks. Raises: DatabaseUnavailableError when no time is left."""
        if self._is_given_up:
            raise DatabaseUnavailableError("The stored states are being closed.")
        if self.is_paced():
            self._queue.rest(min(_LONGEST_REST_S, _SPREAD * processor_s))

    def _write_uses(self) -> None:
        if self._database.is_writable and (self._block_uses or self._manifest_uses):
            with self._database.writing() as connection:
                self._touch(connection)

    def _touch(self, connection: Connection) -> None:
        with self._uses_lock:
            block_uses, self._block_uses = self._block_uses, Counter()
            manifest_uses, self._manifest_uses = self._manifest_uses, Counter()
        if block_uses:
            touch(connection, block_uses)
        if manifest_uses:
            touch_manifests(connection, manifest_uses)

    def _require_lock(self) -> None:
        if not self._database.is_writable and not self._database.lock():
            raise DatabaseBusyError("Another running Reprise keeps the stored states.")

    def _require_disk(self, need_bytes: int) -> None:
        disk = shutil.disk_usage(self._database.path.parent)
        reserve = min(_DISK_RESERVE_BYTES, disk.total // 20)
        if disk.free < need_bytes + reserve:
            raise DatabaseFullError(
                "The disk is nearly full.", detail=f"{disk.free} bytes free, {need_bytes} needed"
            )

    def _recover(self, error: Exception) -> None:
        """Say what is not being kept; replace the file once where it is damaged."""
        _log.warning("kv.db: %s", error, exc_info=not isinstance(error, DatabaseError))
        reason = (
            str(error) if isinstance(error, DatabaseError) else "The stored states are damaged."
        )
        self._report(f"{reason} States are not being kept; conversations work as before.")
        if isinstance(error, DatabaseFullError):
            self._yield_disk()
        if isinstance(error, DatabaseDamagedError):
            self.replace_damaged()
        elif not isinstance(error, DatabaseError):
            # A damaged value shows as any error at all, but so does a mistake of ours.
            self._num_unexpected += 1
            if self._num_unexpected >= _MAX_UNEXPECTED:
                self.replace_damaged()

    def _yield_disk(self) -> None:
        """Give back what a failed transaction took; the whole file where that is not enough.

        Stored states cost time to read again, words that cannot be saved are lost.
        """
        with suppress(DatabaseError):
            self._database.checkpoint()
        disk = shutil.disk_usage(self._database.path.parent)
        if self._database.is_writable and disk.free < min(_LAST_BYTES, disk.total // 50):
            with suppress(DatabaseError, OSError):
                self._database.replace(keep=False)

    def replace_damaged(self) -> None:
        """Set the damaged file aside, once per run, and start over."""
        if self._num_replaced:
            return
        self._num_replaced += 1
        try:
            self.replace(keep=True)
        except (DatabaseError, OSError) as error:
            _log.warning("kv.db cannot be replaced: %s", error)
            return
        self.problem = ""
        self._on_notice(
            Notice(
                "kv_recreated",
                "The stored states were damaged and have been started anew. "
                "Nothing of your conversations is lost; they will be read again once.",
            )
        )

    def _report(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            self._on_notice(Notice("kv_not_kept", problem))


def _refuse(item: Item) -> None:
    if isinstance(item, Command):
        item.result.cancel()
    else:
        item.on_done(False)
