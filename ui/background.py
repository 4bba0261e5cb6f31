"""Runs one slow call beside the window: a plain thread, and signals on the GUI thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

import shiboken6
from PySide6.QtCore import QObject, Qt, Signal, Slot

from app.errors import AppError
from engine.errors import EngineError


class Background(QObject):
    """At most one call at a time; a wish that comes meanwhile replaces an earlier one.

    Typed errors and OSError arrive as ``failed``; anything else is a fault of ours and is raised.
    """

    progressed = Signal(float)
    finished = Signal(object)
    failed = Signal(str)

    _told = Signal(float)
    _ended = Signal(object, str)

    def __init__(self, name: str, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._name = name
        self._is_running = False
        self._next: Callable[[], object] | None = None
        queued = Qt.ConnectionType.QueuedConnection
        self._told.connect(self.progressed, queued)
        self._ended.connect(self._end, queued)

    def start(self, call: Callable[[], object]) -> None:
        """Run a call; its result comes with ``finished``."""
        if self._is_running:
            self._next = call
            return
        self._is_running = True
        threading.Thread(target=self._run, args=(call,), name=self._name, daemon=True).start()

    @property
    def is_running(self) -> bool:
        """Tell whether a call has not come back yet."""
        return self._is_running

    def tell(self, fraction: float) -> None:
        """Report progress from inside the call."""
        self._told.emit(fraction)

    def _run(self, call: Callable[[], object]) -> None:
        result, problem = None, ""
        try:
            result = call()
        except (AppError, EngineError, OSError) as error:
            problem = str(error)
        # The window may have been closed in the meantime.
        if shiboken6.isValid(self):
            self._ended.emit(result, problem)

    @Slot(object, str)
    def _end(self, result: object, error: str) -> None:
        self._is_running = False
        following, self._next = self._next, None
        if following is not None:
            self.start(following)
        elif error:
            self.failed.emit(error)
        else:
            self.finished.emit(result)
