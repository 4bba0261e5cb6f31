"""Logs of one run: a rotating file, crashes of every thread, how the last run ended."""

from __future__ import annotations

import faulthandler
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType

from filelock import FileLock, Timeout

_log = logging.getLogger("app")

_FORMAT = "%(asctime)s %(levelname)-7s %(threadName)s %(name)s: %(message)s"
_MAX_BYTES = 1 << 20
_NUM_BACKUPS = 3

CrashListener = Callable[[BaseException], None]


class RunLog:
    """The log of this run. ``previous_crashed``: a former run ended without saying so.

    Call ``close`` at a clean end. Raises: OSError when the folder cannot be written.
    """

    def __init__(self, folder: Path, *, is_verbose: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "reprise.log"
        self.previous_crashed = _sweep_markers(folder)
        self._marker = FileLock(folder / f"running-{os.getpid()}.lock", thread_local=False)
        self._marker.acquire(timeout=0)
        self._faults = (folder / "faults.log").open("a", encoding="utf-8")
        faulthandler.enable(self._faults)
        self._handler = _file_handler(self.path)
        root = logging.getLogger()
        root.addHandler(self._handler)
        root.setLevel(logging.DEBUG if is_verbose else logging.INFO)

    def install_hooks(self, on_crash: CrashListener) -> None:
        """Log what no one caught, in any thread, and tell on_crash (on that thread)."""

        def report(error: BaseException, trace: TracebackType | None, thread: str) -> None:
            _log.critical("uncaught in %s", thread, exc_info=(type(error), error, trace))
            on_crash(error)

        def in_main(
            kind: type[BaseException], error: BaseException, trace: TracebackType | None
        ) -> None:
            if issubclass(kind, KeyboardInterrupt):
                sys.__excepthook__(kind, error, trace)
            else:
                report(error, trace, "the main thread")

        def in_thread(args: threading.ExceptHookArgs) -> None:
            if args.exc_value is not None:
                report(args.exc_value, args.exc_traceback, args.thread.name if args.thread else "?")

        sys.excepthook = in_main
        threading.excepthook = in_thread

    def close(self) -> None:
        """Note that the run ended well."""
        sys.excepthook = sys.__excepthook__
        threading.excepthook = threading.__excepthook__
        logging.getLogger().removeHandler(self._handler)
        self._handler.close()
        faulthandler.disable()
        self._faults.close()
        self._marker.release()
        with suppress(OSError):
            Path(self._marker.lock_file).unlink(missing_ok=True)


@contextmanager
def command_log(folder: Path) -> Iterator[None]:
    """Log one command of the terminal; a file of its own, as the window may run beside it.

    Raises: OSError when the folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handler = _file_handler(folder / "command.log")
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    finally:
        root.setLevel(before)
        root.removeHandler(handler)
        handler.close()


class _QuietFileHandler(RotatingFileHandler):
    """A log that says nothing where the disk is full: nobody waits for a traceback of that."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def _file_handler(path: Path) -> RotatingFileHandler:
    handler = _QuietFileHandler(
        path, maxBytes=_MAX_BYTES, backupCount=_NUM_BACKUPS, encoding="utf-8", delay=True
    )
    handler.setFormatter(logging.Formatter(_FORMAT))
    return handler


def _sweep_markers(folder: Path) -> bool:
    """Remove the markers of runs that are gone; True when there was one.

    A running process holds a lock on its marker, which the system drops however it dies.
    """
    found = False
    for marker in folder.glob("running-*.lock"):
        lock = FileLock(marker, thread_local=False)
        try:
            lock.acquire(timeout=0)
        except (Timeout, OSError):
            continue
        lock.release()
        found = True
        with suppress(OSError):
            marker.unlink(missing_ok=True)
    return found
