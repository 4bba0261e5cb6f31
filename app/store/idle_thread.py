"""Threads that leave the processor to others. Knows the system's schedulers, not what is done."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

_NICE = 19

_Result = TypeVar("_Result")
_Call = tuple[Callable[[], Any], "Future[Any]"]


class IdleThread:
    """Makes calls while a processor has nothing else to do, where the system can be told so.

    Any other thread that becomes ready takes the processor from it at once: one of a low priority
    would be felt by two that generate on two processors. A program ends without waiting for it.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def run(self, call: Callable[[], _Result]) -> _Result:
        """Have a call made; return, or raise, what it did."""
        future: Future[_Result] = Future()
        self._calls.put((call, future))
        return future.result()

    def close(self) -> None:
        """End the thread and wait for it."""
        self._calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        _run_when_idle()
        while (item := self._calls.get()) is not None:
            call, future = item
            try:
                future.set_result(call())
            except BaseException as error:  # it belongs to the thread that waits
                future.set_exception(error)
            # Held here until the next call, it would keep alive what was written.
            del item, call, future


def lower_priority() -> None:
    """Let everything else go before this thread."""
    # On Linux a priority belongs to a thread; elsewhere it would slow the whole program down.
    if sys.platform == "linux":
        with suppress(OSError):
            nice = os.getpriority(os.PRIO_PROCESS, 0) + _NICE
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(nice, _NICE))


def _run_when_idle() -> None:
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setscheduler(threading.get_native_id(), os.SCHED_IDLE, os.sched_param(0))
