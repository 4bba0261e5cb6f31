from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QLocale, QTimer
from PySide6.QtWidgets import QApplication, QLabel

from app.errors import StoreTooNewError
from app.paths import app_paths
from tests.ui.fakes import FakeServices
from ui import main as ui_main
from ui.error_dialog import ErrorDialog, report_of
from ui.frame import Frame
from ui.main import CrashHook, Start
from ui.main_window import MainWindow
from ui.safe_mode import SafeModeDialog
from ui.single_instance import SingleInstance


@pytest.fixture
def clean_app(qapp: QApplication):
    yield
    qapp.setStyleSheet("")


def when_shown(act: Callable[[], object]) -> None:
    """Act a moment after the window has been painted."""

    def look() -> None:
        frames = [w for w in QApplication.topLevelWidgets() if isinstance(w, Frame)]
        windows = [window for frame in frames for window in frame.findChildren(MainWindow)]
        if any(window.isVisible() and window.is_painted for window in windows):
            QTimer.singleShot(50, act)
        else:
            QTimer.singleShot(50, look)

    look()


def test_window_runs_and_everything_is_closed_in_the_end(clean_app, qapp, tmp_path: Path) -> None:
    services = FakeServices(tmp_path)
    when_shown(QApplication.closeAllWindows)
    assert ui_main.run(lambda: services, [], paths=app_paths(tmp_path)) == 0
    assert services.is_closed
    assert (tmp_path / "state.ini").exists()
    assert list((tmp_path / "logs").glob("running-*")) == []


def test_interrupt_closes_the_window(clean_app, qapp, tmp_path: Path) -> None:
    services = FakeServices(tmp_path)
    when_shown(lambda: os.kill(os.getpid(), signal.SIGINT))
    assert ui_main.run(lambda: services, [], paths=app_paths(tmp_path)) == 0
    assert services.is_closed


def test_files_are_loaded_after_the_window_is_up(clean_app, qapp, tmp_path: Path) -> None:
    services = FakeServices(tmp_path)

    def close_when_asked() -> None:
        if services.worker.calls:
            QApplication.closeAllWindows()
        else:
            QTimer.singleShot(20, close_when_asked)

    when_shown(close_when_asked)
    ui_main.run(lambda: services, ["a.gguf"], paths=app_paths(tmp_path))
    assert services.worker.calls == [("load_model", Path("a.gguf").resolve())]


def test_conversations_of_a_newer_version_are_refused_politely(
    clean_app, qapp, tmp_path: Path, capsys
) -> None:
    def refuse() -> FakeServices:
        raise StoreTooNewError("9", "3")

    accept_first_error()
    assert ui_main.run(refuse, [], paths=app_paths(tmp_path)) == 1
    assert "newer version" in capsys.readouterr().err


def accept_first_error(said: list[str] | None = None) -> None:
    widgets = QApplication.topLevelWidgets()
    dialogs = [w for w in widgets if isinstance(w, ErrorDialog) and w.isVisible()]
    if dialogs:
        if said is not None:
            said += [label.text() for label in dialogs[0].findChildren(QLabel)]
        dialogs[0].accept()
    else:
        QTimer.singleShot(50, lambda: accept_first_error(said))


def test_a_home_that_cannot_be_used_is_told_in_plain_words(
    clean_app, qapp, tmp_path: Path, capsys
) -> None:
    file = tmp_path / "file"
    file.touch()
    accept_first_error()
    assert ui_main.run(lambda: FakeServices(), [], paths=app_paths(file)) == 1
    assert "cannot be used" in capsys.readouterr().err


def test_what_keeps_the_window_from_opening_is_said_in_the_systems_language(
    clean_app, qapp, tmp_path: Path, monkeypatch
) -> None:
    chinese = QLocale(QLocale.Language.Chinese)
    monkeypatch.setattr(QLocale, "system", staticmethod(lambda: chinese))
    said: list[str] = []
    accept_first_error(said)
    (tmp_path / "file").touch()
    assert ui_main.run(lambda: FakeServices(), [], paths=app_paths(tmp_path / "file")) == 1
    assert any("无法写入其数据文件夹" in text for text in said)


def test_second_start_passes_its_files_to_the_first(qtbot, tmp_path: Path) -> None:
    first, second = SingleInstance(tmp_path), SingleInstance(tmp_path)
    assert first.acquire()
    assert not second.acquire()
    with qtbot.waitSignal(first.summoned) as summoned:
        assert second.summon(["/models/ä.gguf"])
    assert summoned.args == [["/models/ä.gguf"]]
    first.release()
    assert second.acquire()
    second.release()


def test_after_an_unclean_end_the_model_waits_for_an_answer(
    qtbot, window, services: FakeServices, tmp_path: Path
) -> None:
    (tmp_path / "m.gguf").touch()
    services.settings.update(last_model=str(tmp_path / "m.gguf"))
    window.show()
    Start(window, [], was_unclean=True).begin()
    dialog = window.findChild(SafeModeDialog)
    assert services.worker.calls == []
    dialog.usual_start.emit()
    assert services.worker.calls == [("load_model", tmp_path / "m.gguf")]
    dialog.close()


def test_uncaught_error_of_any_thread_is_shown_once(qtbot, window, appearance) -> None:
    window.show()
    hook = CrashHook(window, appearance)
    thread = threading.Thread(target=lambda: hook.caught(ValueError("x")))
    thread.start()
    thread.join()
    hook.caught(ValueError("y"))
    qtbot.waitUntil(lambda: window.findChild(ErrorDialog) is not None)
    assert len(window.findChildren(ErrorDialog)) == 1
    window.findChild(ErrorDialog).close()


def test_typed_errors_are_shown_in_their_own_words(qapp) -> None:
    report = report_of(StoreTooNewError("9", "3"))
    assert report.message.startswith("Your conversations were last opened by a newer version")
    assert report_of(ValueError("x")).message.startswith("Reprise met an error")
