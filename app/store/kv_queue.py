"""What waits for the KV writer: jobs of which a newer one takes in an older one, and commands."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

from engine.memory.storage import SnapshotJob

_Result = TypeVar("_Result")


@dataclass(slots=True)
class Command:
    """Work other than a job, done between jobs. result is set when it ran or failed."""

    run: Callable[[], object]
    result: Future[object] = field(default_factory=Future)


Item = SnapshotJob | Command


class WriteQueue:
    """First in, first out; at most one job per conversation branch. Used from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items: OrderedDict[object, Item] = OrderedDict()
        self._num_running = 0
        self._num_waiters = 0
        self._is_closed = False

    @property
    def pending(self) -> int:
        """Items not finished yet, the one at work included."""
        with self._changed:
            return len(self._items) + self._num_running

    def put_job(self, job: SnapshotJob) -> bool:
        """Queue a job, joined with an older one of the same branch; False when closed."""
        manifest = job.manifest
        key = (manifest.fingerprint, manifest.conversation_id, manifest.branch)
        with self._changed:
            if self._is_closed:
                return False
            older = self._items.get(key)
            self._items[key] = _joined(older, job) if isinstance(older, SnapshotJob) else job
            self._changed.notify_all()
        return True

    def put_command(self, run: Callable[[], _Result]) -> Future[_Result]:
        """Queue a command; its future is cancelled when the queue is closed first."""
        command = Command(run)
        with self._changed:
            if self._is_closed:
                command.result.cancel()
            else:
                self._items[command.result] = command
                self._changed.notify_all()
        return command.result  # type: ignore[return-value]

    def take(self, timeout: float) -> Item | None:
        """Wait for the next item; None after timeout seconds, or when closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._items or self._is_closed, timeout)
            if not self._items:
                return None
            _, item = self._items.popitem(last=False)
            self._num_running = 1
            return item

    def done(self) -> None:
        """Tell that the item taken last is finished."""
        with self._changed:
            self._num_running = 0
            self._changed.notify_all()

    def wait_empty(self, timeout: float) -> bool:
        """Wait until nothing is pending; False when time ran out."""
        with self._changed:
            self._num_waiters += 1
            self._changed.notify_all()
            try:
                return self._changed.wait_for(
                    lambda: not self._items and not self._num_running, max(0.0, timeout)
                )
            finally:
                self._num_waiters -= 1

    def rest(self, seconds: float) -> None:
        """Let that much time pass, or less where somebody waits for what is pending."""
        with self._changed:
            self._changed.wait_for(self._is_awaited, seconds)

    def _is_awaited(self) -> bool:
        return (
            self._is_closed
            or self._num_waiters > 0
            or any(isinstance(item, Command) for item in self._items.values())
        )

    def remove_jobs(self, conversation_id: str) -> list[SnapshotJob]:
        """Take the waiting jobs of one conversation out."""
        with self._changed:
            keys = [
                key
                for key, item in self._items.items()
                if isinstance(item, SnapshotJob)
                and item.manifest.conversation_id == conversation_id
            ]
            removed = [self._items.pop(key) for key in keys]
            self._changed.notify_all()
        return [item for item in removed if isinstance(item, SnapshotJob)]

    def close(self) -> None:
        """Refuse new items; the waiting ones can still be taken."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def is_closed(self) -> bool:
        """Whether new items are refused."""
        return self._is_closed

    def drain(self) -> list[Item]:
        """Take everything that still waits."""
        with self._changed:
            items = list(self._items.values())
            self._items.clear()
            self._changed.notify_all()
        return items


def _joined(older: SnapshotJob, newer: SnapshotJob) -> SnapshotJob:
    """Return one job with the newer manifest and the blocks of both."""
    blocks = {block.hash: block for block in (*older.blocks, *newer.blocks)}

    def tell_both(written: bool) -> None:
        older.on_done(written)
        newer.on_done(written)

    return SnapshotJob(newer.manifest, tuple(blocks.values()), tell_both)


def deadline_after(timeout: float) -> Callable[[], float]:
    """Return a function that tells the seconds left of timeout, never below 0."""
    end = time.monotonic() + timeout
    return lambda: max(0.0, end - time.monotonic())
