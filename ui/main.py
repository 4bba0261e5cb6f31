"""Starts the window. Services are built first, torch is imported last, on the engine thread."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QObject, QSocketNotifier, Qt, Signal, Slot
from PySide6.QtGui import QGuiApplication, QIcon
from PySide6.QtWidgets import QApplication

from app.errors import AppError
from app.events import ErrorReport
from app.log import RunLog
from app.paths import AppPaths, app_paths
from ui.appearance import Appearance
from ui.error_dialog import ErrorDialog, report_of
from ui.safe_mode import SafeModeDialog
from ui.single_instance import SingleInstance
from ui.theme import RESOURCES, load_theme
from ui.window_state import WindowState

if TYPE_CHECKING:
    from app.services import Services
    from ui.main_window import MainWindow

log = logging.getLogger(__name__)


def main(files: Sequence[str]) -> int:
    """Open the window over the user's home folder; return the exit code."""
    from app.services import Services

    if not _has_display():
        print('There is no display here. "reprise chat" talks in the terminal.', file=sys.stderr)
        return 1
    paths = app_paths()
    return run(lambda: Services(paths), files, paths=paths)


def run(services_factory: Callable[[], Services], argv: Sequence[str], *, paths: AppPaths) -> int:
    """Run the window until it is closed; a second start only raises the first one's window."""
    application = build_application()
    files = [str(Path(name).resolve()) for name in argv]
    paths.create()
    instance = SingleInstance(paths.data)
    if not instance.acquire():
        return 0 if instance.summon(files) else _refuse()
    run_log = RunLog(paths.logs)
    try:
        return Session(services_factory, application, paths, run_log).run(instance, files)
    except AppError as error:
        log.critical("cannot start", exc_info=error)
        return _refuse(ErrorReport(type(error).__name__, str(error), error.detail))
    finally:
        run_log.close()
        instance.release()


def build_application() -> QApplication:
    """Return the one QApplication, set up before any window exists."""
    application = QApplication.instance()
    if not isinstance(application, QApplication):
        QGuiApplication.setHighDpiScaleFactorRoundingPolicy(
            Qt.HighDpiScaleFactorRoundingPolicy.PassThrough
        )
        application = QApplication(sys.argv[:1])
    QCoreApplication.setApplicationName("Reprise")
    QCoreApplication.setApplicationVersion(_version())
    QGuiApplication.setDesktopFileName("reprise")
    QGuiApplication.setWindowIcon(QIcon(str(RESOURCES / "icons" / "reprise-app.svg")))
    application.setStyle("Fusion")
    return application


class Session:
    """One run of the window, from the databases' opening to their closing.

    Raises: DatabaseError kinds when the conversations cannot be opened.
    """

    def __init__(
        self,
        services_factory: Callable[[], Services],
        application: QApplication,
        paths: AppPaths,
        run_log: RunLog,
    ) -> None:
        from app.starter import fetch_starter
        from ui.main_window import MainWindow

        self._application = application
        self._run_log = run_log
        self._services = services_factory()
        with ExitStack() as undo:
            undo.callback(self._services.close)
            self._appearance = Appearance(self._services.settings)
            state = WindowState(paths.state)
            self.window = MainWindow(self._services, self._appearance, state, fetch_starter)
            undo.pop_all()

    def run(self, instance: SingleInstance, files: list[str]) -> int:
        """Show the window and stay until it is closed."""
        hook = CrashHook(self.window, self._appearance)
        self._run_log.install_hooks(hook.caught)
        signals = Signals(self._application)
        start = Start(self.window, files, was_unclean=self._run_log.previous_crashed)
        self.window.painted.connect(start.begin)
        instance.summoned.connect(self.window.open_files)
        self.window.show()
        try:
            return self._application.exec()
        finally:
            signals.close()
            self._close()

    def _close(self) -> None:
        self.window.bridge.close()
        self._services.close()
        self._appearance.close()


class Start(QObject):
    """What waits until the window is on screen: loading a model, and with it torch."""

    def __init__(self, window: MainWindow, files: list[str], *, was_unclean: bool) -> None:
        super().__init__(window)
        self._window = window
        self._files = files
        self._was_unclean = was_unclean

    @Slot()
    def begin(self) -> None:
        """Load the model, after asking where the last run ended badly."""
        if self._files:
            self._window.open_files(self._files)
        elif self._was_unclean:
            dialog = SafeModeDialog(self._window)
            dialog.usual_start.connect(self._window.models.load_last)
            dialog.open()
        else:
            self._window.models.load_last()


class CrashHook(QObject):
    """Shows what nobody caught, on whatever thread it happened, one dialog at a time."""

    _happened = Signal(object)

    def __init__(self, window: MainWindow, appearance: Appearance) -> None:
        super().__init__(window)
        self._window = window
        self._appearance = appearance
        self._is_showing = False
        self._happened.connect(self._show, Qt.ConnectionType.QueuedConnection)

    def caught(self, error: BaseException) -> None:
        """Take an error from any thread."""
        self._happened.emit(error)

    @Slot(object)
    def _show(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt):
            QCoreApplication.quit()
        elif not self._is_showing:
            self._is_showing = True
            dialog = ErrorDialog(report_of(error), self._appearance.theme, self._window)
            dialog.finished.connect(self._shown)
            dialog.open()

    @Slot(int)
    def _shown(self, result: int) -> None:
        self._is_showing = False


class Signals(QObject):
    """Lets SIGINT and SIGTERM close the window; Python sees signals only when Qt wakes it."""

    def __init__(self, application: QApplication) -> None:
        super().__init__(application)
        self._ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        self._theirs = theirs
        self._fd = signal.set_wakeup_fd(theirs.fileno())
        self._before = {
            number: signal.signal(number, self._quit) for number in (signal.SIGINT, signal.SIGTERM)
        }
        self._notifier = QSocketNotifier(self._ours.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._drain)

    def close(self) -> None:
        """Give the signals back."""
        self._notifier.setEnabled(False)
        signal.set_wakeup_fd(self._fd)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._ours.close()
        self._theirs.close()

    @Slot()
    def _drain(self) -> None:
        self._ours.recv(64)

    def _quit(self, number: int, frame: object) -> None:
        QApplication.closeAllWindows()
        QCoreApplication.quit()


def _refuse(report: ErrorReport | None = None) -> int:
    report = report or ErrorReport(
        "AlreadyRunning",
        QCoreApplication.translate("main", "Reprise is running already, but does not answer."),
    )
    print(report.message, file=sys.stderr)
    ErrorDialog(report, load_theme("light")).exec()
    return 1


def _has_display() -> bool:
    if not sys.platform.startswith("linux") or os.environ.get("QT_QPA_PLATFORM"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("reprise")
    except PackageNotFoundError:
        return "0.1"
