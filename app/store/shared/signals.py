"""What the replicating thread is told by others: work, and when to stop. Wakes it from select()."""

from __future__ import annotations

import select
import socket
import threading
from contextlib import suppress

Damaged = tuple[bytes, tuple[bytes, ...]]


class Signals:
    """Used from any thread; ``wait``, ``take`` and ``close`` by the replicating one alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._near, self._far = socket.socketpair()
        self._near.setblocking(False)
        self._far.setblocking(False)
        self._conversations: dict[str, bool] = {}
        self._damaged: list[Damaged] = []
        self._is_stopped = False
        self._num_wakes = 0

    @property
    def num_wakes(self) -> int:
        """How often somebody woke the thread so far."""
        return self._num_wakes

    @property
    def is_stopped(self) -> bool:
        """Tell whether the thread is to end."""
        return self._is_stopped

    def wake(self) -> None:
        """Let the thread look for work; never waits."""
        with self._lock:
            self._num_wakes += 1
        # A full pipe wakes as well; a closed one means that nobody is there to be woken.
        with suppress(OSError):
            self._far.send(b"\0")

    def note(self, conversation_id: str, *, is_wanted: bool = False) -> None:
        """Tell that a conversation changed, here or there. is_wanted: bring it where it is not."""
        with self._lock:
            before = self._conversations.get(conversation_id, False)
            self._conversations[conversation_id] = before or is_wanted
        self.wake()

    def note_damaged(self, fingerprint: bytes, hashes: tuple[bytes, ...]) -> None:
        """Tell which blocks on the server are of no use."""
        with self._lock:
            self._damaged.append((fingerprint, hashes))
        self.wake()

    def stop(self) -> None:
        """Let the thread end."""
        self._is_stopped = True
        self.wake()

    def has_work(self) -> bool:
        """Tell whether conversations wait to be taken."""
        with self._lock:
            return bool(self._conversations)

    def take(self) -> tuple[str, bool] | None:
        """Return a conversation that changed, and whether it is wanted; None where none did."""
        with self._lock:
            if not self._conversations:
                return None
            key = next(iter(self._conversations))
            return key, self._conversations.pop(key)

    def take_damaged(self) -> list[Damaged]:
        """Return the blocks of no use that nobody took yet."""
        with self._lock:
            damaged, self._damaged = self._damaged, []
        return damaged

    def wait(self, timeout_s: float, *others: int) -> None:
        """Wait until somebody wakes the thread, or something can be read from another place."""
        near = self._near.fileno()
        readable, _, _ = select.select([near, *others], [], [], timeout_s)
        if near in readable:
            with suppress(BlockingIOError):
                while self._near.recv(4096):
                    pass

    def close(self) -> None:
        """Close the pipe; who still calls is not heard."""
        self._near.close()
        self._far.close()
