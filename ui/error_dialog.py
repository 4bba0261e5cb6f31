"""A failure in plain words, with "Copy details" for a report."""

from __future__ import annotations

import platform
import traceback

from PySide6.QtCore import QCoreApplication, QSize, Qt, Slot, qVersion
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.errors import AppError
from app.events import ErrorReport
from engine.errors import EngineError
from ui.error_words import words_of
from ui.icons import pixmap
from ui.theme import Theme, mono_font


class ErrorDialog(QDialog):
    """Says what happened; the details stay folded until asked for."""

    def __init__(self, report: ErrorReport, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._report = report
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(self.tr("Something went wrong"))
        self.setMinimumWidth(480)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 24, 24, 16)
        layout.setSpacing(16)
        layout.addLayout(self._build_message(theme))
        self.details = QPlainTextEdit(details_text(report), readOnly=True)
        self.details.setFont(mono_font(pixels=12))
        self.details.setMinimumHeight(160)
        self.details.setObjectName("code")
        self.details.hide()
        layout.addWidget(self.details)
        layout.addLayout(self._build_buttons())
        self._close.setFocus()

    @Slot()
    def copy_details(self) -> None:
        """Put everything a report needs on the clipboard."""
        QGuiApplication.clipboard().setText(details_text(self._report))
        self._copy.setText(self.tr("Copied"))

    def _build_message(self, theme: Theme) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(16)
        sign = QLabel()
        sign.setPixmap(pixmap("circle-alert", theme.danger, 24))
        sign.setFixedSize(QSize(24, 24))
        row.addWidget(sign, 0, Qt.AlignmentFlag.AlignTop)
        row.addLayout(self._build_words(), 1)
        return row

    def _build_words(self) -> QVBoxLayout:
        """Stack what happened, what to do, and what exactly was said."""
        words = words_of(self._report)
        column = QVBoxLayout()
        column.setSpacing(8)
        for text, role in (
            (words.title, "heading" if words.said else ""),
            (words.advice, ""),
            (words.said, "muted"),
        ):
            if text:
                label = QLabel(text, wordWrap=True)
                label.setProperty("role", role)
                label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
                column.addWidget(label)
        column.addStretch()
        return column

    def _build_buttons(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        self._show = QPushButton(self.tr("Show details"))
        self._show.setCheckable(True)
        self._copy = QPushButton(self.tr("Copy details"))
        self._close = close = QPushButton(self.tr("Close"), default=True)
        close.setProperty("kind", "primary")
        self._show.toggled.connect(self._fold)
        self._copy.clicked.connect(self.copy_details)
        close.clicked.connect(self.accept)
        row.addWidget(self._show)
        row.addWidget(self._copy)
        row.addStretch()
        row.addWidget(close)
        return row

    @Slot(bool)
    def _fold(self, is_shown: bool) -> None:
        self.details.setVisible(is_shown)
        self._show.setText(self.tr("Hide details") if is_shown else self.tr("Show details"))
        self.adjustSize()


def details_text(report: ErrorReport) -> str:
    """Return what a report needs: kind, message, detail, system."""
    system = f"{platform.platform()}, Python {platform.python_version()}, Qt {qVersion()}"
    return "\n".join(filter(None, (f"{report.kind}: {report.message}", report.detail, system)))


def report_of(error: BaseException) -> ErrorReport:
    """Return a report of an exception nobody caught; typed ones bring their own words."""
    if isinstance(error, AppError | EngineError):
        return ErrorReport(type(error).__name__, str(error), error.detail)
    detail = "".join(traceback.format_exception(error))
    message = QCoreApplication.translate(
        "ErrorDialog", "Reprise met an error it did not expect. Your conversations are safe."
    )
    return ErrorReport(type(error).__name__, message, detail)
