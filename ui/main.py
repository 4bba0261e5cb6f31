"""Starts the window: a frame first, then the services and what is in it, torch last of all."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QCoreApplication, QObject, QSocketNotifier, Qt, Signal, Slot
from PySide6.QtGui import QGuiApplication, QIcon
from PySide6.QtWidgets import QApplication

from app.errors import AppError
from app.paths import AppPaths, app_paths
from ui.frame import Frame
from ui.theme import RESOURCES, load_theme, system_theme
from ui.window_state import WindowState

if TYPE_CHECKING:
    from app.events import ErrorReport
    from app.log import RunLog
    from app.services import Services
    from ui.appearance import Appearance
    from ui.main_window import MainWindow
    from ui.single_instance import SingleInstance

log = logging.getLogger(__name__)


def main(files: Sequence[str]) -> int:
    """Open the window over the user's home folder; return the exit code."""
    if not _has_display():
        print('There is no display here. "reprise chat" talks in the terminal.', file=sys.stderr)
        return 1
    paths = app_paths()
    return run(lambda: open_services(paths), files, paths=paths)


def run(services_factory: Callable[[], Services], argv: Sequence[str], *, paths: AppPaths) -> int:
    """Run the window until it is closed; a second start only raises the first one's window."""
    from app.events import ErrorReport
    from ui.single_instance import SingleInstance

    application = build_application()
    files = [str(Path(name).resolve()) for name in argv]
    try:
        paths.create()
        instance = SingleInstance(paths.data)
        is_first = instance.acquire()
    except AppError as error:
        return _refuse(ErrorReport(type(error).__name__, str(error), error.detail))
    if not is_first:
        return 0 if instance.summon(files) else _refuse()
    try:
        return _run_first(services_factory, application, instance, files, paths=paths)
    finally:
        instance.release()


def _run_first(
    services_factory: Callable[[], Services],
    application: QApplication,
    instance: SingleInstance,
    files: list[str],
    *,
    paths: AppPaths,
) -> int:
    from app.events import ErrorReport
    from app.log import RunLog

    try:
        run_log = RunLog(paths.logs)
    except OSError as error:
        said = f"The log cannot be written: {error.strerror}."
        return _refuse(ErrorReport("HomeUnusableError", said, str(error)))
    try:
        return Session(services_factory, application, paths, run_log).run(instance, files)
    except AppError as error:
        log.critical("cannot start", exc_info=error)
        return _refuse(ErrorReport(type(error).__name__, str(error), error.detail))
    finally:
        run_log.close()


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


class Session(QObject):
    """One run of the window, from its first paint to the databases' closing."""

    filled = Signal()

    def __init__(
        self,
        services_factory: Callable[[], Services],
        application: QApplication,
        paths: AppPaths,
        run_log: RunLog,
    ) -> None:
        super().__init__()
        self._application = application
        self._run_log = run_log
        self._state = WindowState(paths.state)
        self.frame = Frame(load_theme(_first_theme(self._state)), self._state)
        self.window: MainWindow | None = None
        self._appearance: Appearance | None = None
        self._files: list[str] = []
        self._opening = Opening(services_factory)
        self._opening.ended.connect(self._fill, Qt.ConnectionType.QueuedConnection)
        self.frame.painted.connect(self._opening.start)

    def run(self, instance: SingleInstance, files: list[str]) -> int:
        """Show the window and stay until it is closed.

        Raises: DatabaseError kinds when the conversations cannot be opened.
        """
        signals = Signals(self._application)
        self._files = files
        instance.summoned.connect(self._summoned)
        self.frame.show()
        try:
            code = self._application.exec()
        finally:
            signals.close()
            self.close()
        if self._opening.error is not None:
            raise self._opening.error
        return code

    def close(self) -> None:
        """Close what was opened, as far as that had come."""
        services = self._opening.finish()
        if self.window is not None:
            self.window.bridge.close()
        if services is not None:
            services.close()
        if self._appearance is not None:
            self._appearance.close()

    @Slot()
    def _fill(self) -> None:
        try:
            if self._opening.services is not None:
                self._build(self._opening.services)
        finally:
            if self.window is None:
                QCoreApplication.exit(1)

    def _build(self, services: Services) -> None:
        from app.starter import fetch_starter
        from ui.appearance import Appearance
        from ui.main_window import MainWindow

        self._appearance = Appearance(services.settings)
        window = MainWindow(services, self._appearance, self._state, fetch_starter)
        hook = CrashHook(window, self._appearance)
        self._run_log.install_hooks(hook.caught)
        start = Start(window, self._files, was_unclean=self._run_log.previous_crashed)
        window.painted.connect(start.begin)
        window.painted.connect(self.filled)
        self.window = window
        self.frame.fill(window)

    @Slot(list)
    def _summoned(self, files: list[str]) -> None:
        if self.window is not None:
            self.window.open_files(files)
        else:
            self._files = files or self._files


class Opening(QObject):
    """Opens the services beside the event loop, so that the frame answers in the meantime."""

    ended = Signal()

    def __init__(self, services_factory: Callable[[], Services]) -> None:
        super().__init__()
        self._factory = services_factory
        self._thread = threading.Thread(target=self._open, name="opening")
        self.services: Services | None = None
        self.error: AppError | None = None

    @Slot()
    def start(self) -> None:
        """Begin; ``ended`` tells when ``services`` or ``error`` is there."""
        self._thread.start()

    def finish(self) -> Services | None:
        """Wait for the end and return the services, if they could be opened."""
        if self._thread.ident is not None:
            self._thread.join()
        return self.services

    def _open(self) -> None:
        try:
            self.services = self._factory()
            # Half a second of imports that would otherwise hold up the frame.
            import ui.main_window  # noqa: F401
        except AppError as error:
            self.error = error
        finally:
            self.ended.emit()


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
        from ui.chat.highlight import preload

        threading.Thread(target=preload, name="lexers", daemon=True).start()
        if self._files:
            self._window.open_files(self._files)
        elif self._was_unclean:
            from ui.safe_mode import SafeModeDialog

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
        from ui.error_dialog import ErrorDialog, report_of

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


def _first_theme(state: WindowState) -> str:
    """Return the theme of the last end: the settings have not been read yet."""
    last = state.text("theme")
    return last if last in ("light", "dark") else system_theme()


def open_services(paths: AppPaths) -> Services:
    """Open the services of a home folder. Raises: DatabaseError kinds."""
    from app.services import Services

    return Services(paths)


def _refuse(report: ErrorReport | None = None) -> int:
    from app.events import ErrorReport
    from ui.appearance import put_on
    from ui.error_dialog import ErrorDialog
    from ui.translation import Language

    # What the settings say may be what cannot be read.
    theme, language = load_theme(system_theme()), Language()
    language.switch("system")
    put_on(theme)
    report = report or ErrorReport(
        "AlreadyRunning",
        QCoreApplication.translate("main", "Reprise is running already, but does not answer."),
    )
    print(report.message, file=sys.stderr)
    ErrorDialog(report, theme).exec()
    language.remove()
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
