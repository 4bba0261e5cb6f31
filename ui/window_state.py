"""Where the window was and what it showed, kept in state.ini over a restart."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QByteArray, QSettings
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QSplitter, QWidget


class WindowState:
    """Reads and writes state.ini."""

    def __init__(self, path: Path) -> None:
        self._file = QSettings(str(path), QSettings.Format.IniFormat)

    def text(self, key: str) -> str:
        """Return a kept text, "" by default."""
        return str(self._file.value(key, ""))

    def set_text(self, key: str, text: str) -> None:
        """Keep a text."""
        self._file.setValue(key, text)

    def flag(self, key: str, default: bool) -> bool:
        """Return a kept flag."""
        return bool(self._file.value(key, default, bool))

    def set_flag(self, key: str, is_on: bool) -> None:
        """Keep a flag."""
        self._file.setValue(key, is_on)

    def save_window(self, window: QWidget, splitter: QSplitter) -> None:
        """Keep size, place and columns."""
        self._file.setValue("geometry", window.saveGeometry())
        self._file.setValue("columns", splitter.saveState())
        self._file.setValue("column_widths", ",".join(map(str, splitter.sizes())))

    def restore_geometry(self, window: QWidget) -> None:
        """Bring size and place back, onto a screen that is there."""
        geometry = self._file.value("geometry")
        if isinstance(geometry, QByteArray) and window.restoreGeometry(geometry):
            _bring_on_screen(window)

    def restore_columns(self, splitter: QSplitter) -> None:
        """Bring the widths of the columns back."""
        columns = self._file.value("columns")
        if isinstance(columns, QByteArray):
            splitter.restoreState(columns)

    def columns(self) -> tuple[int, int, int] | None:
        """Return the widths of the three columns, 0 for a hidden one; None before the first end."""
        text = self._file.value("column_widths", "")
        widths = text if isinstance(text, list) else str(text).split(",")
        if len(widths) != 3 or not all(width.strip().isdigit() for width in widths):
            return None
        left, centre, right = map(int, widths)
        return left, centre, right

    def sync(self) -> None:
        """Write to disk."""
        self._file.sync()


def _bring_on_screen(window: QWidget) -> None:
    frame = window.frameGeometry()
    if any(screen.availableGeometry().intersects(frame) for screen in QGuiApplication.screens()):
        return
    available = QGuiApplication.primaryScreen().availableGeometry()
    window.resize(frame.size().boundedTo(available.size()))
    window.move(available.center() - window.rect().center())
