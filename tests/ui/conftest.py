"""A window over fake services, and the pieces it is made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import shiboken6
from PySide6.QtCore import QLocale
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from tests.app.waiting import WAIT_S
from tests.ui.fakes import FakeServices
from ui.appearance import Appearance
from ui.main_window import MainWindow
from ui.theme import Theme, load_theme
from ui.window_state import WindowState


class PatientBot(QtBot):
    """Waits as long as a machine may need that has much else to do."""

    def waitUntil(
        self, callback: Callable[[], bool | None], *, timeout: int = round(1000 * WAIT_S)
    ) -> None:
        super().waitUntil(callback, timeout=timeout)

    def waitSignal(
        self, signal: Any, *, timeout: int = round(1000 * WAIT_S), raising: bool | None = None
    ) -> Any:
        return super().waitSignal(signal, timeout=timeout, raising=raising)


@pytest.fixture
def qtbot(qapp: QApplication, request: pytest.FixtureRequest) -> PatientBot:
    return PatientBot(request)


@pytest.fixture(autouse=True)
def english_numbers() -> Iterator[None]:
    before = QLocale()
    QLocale.setDefault(QLocale("en"))
    yield
    QLocale.setDefault(before)


@pytest.fixture
def services(tmp_path: Path) -> FakeServices:
    result = FakeServices(tmp_path)
    result.settings.update(theme="light", language="en")
    return result


@pytest.fixture
def theme() -> Theme:
    return load_theme("light")


@pytest.fixture
def appearance(qapp: QApplication, services: FakeServices) -> Iterator[Appearance]:
    font, sheet, palette = qapp.font(), qapp.styleSheet(), qapp.palette()
    result = Appearance(services.settings)
    yield result
    result.close()
    qapp.setStyleSheet(sheet)
    qapp.setFont(font)
    qapp.setPalette(palette)


@pytest.fixture
def window(
    qtbot, qapp: QApplication, services: FakeServices, appearance: Appearance, tmp_path: Path
) -> Iterator[MainWindow]:
    state = WindowState(tmp_path / "state.ini")
    result = MainWindow(services, appearance, state, lambda folder, tell: folder / "m.gguf")
    yield result
    result.close()
    # Every window that lingers makes the next style sheet slower.
    shiboken6.delete(result)
