"""The page before there is a model: how to get one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QLabel, QProgressBar, QPushButton, QVBoxLayout, QWidget

from ui.formats import percent_text, size_text
from ui.icons import icon, pixmap
from ui.theme import Theme, beside_icon

if TYPE_CHECKING:
    from app.model_library import ModelEntry

WIDTH = 440
MAX_ENTRIES = 5


class WelcomePage(QWidget):
    """Offers the models that are here, or the starter model, or a file."""

    open_requested = Signal()
    starter_requested = Signal()
    load_requested = Signal(Path)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._entries: Sequence[ModelEntry] = ()
        self._sign = QLabel()
        self._sign.setFixedSize(QSize(48, 48))
        self._title = _label("display")
        self._text = _label("muted")
        self._column = QVBoxLayout()
        self._entry_buttons: list[QPushButton] = []
        self.starter = QPushButton()
        self.starter.setProperty("kind", "primary")
        self.starter.setProperty("tall", True)
        self.starter_text = _label("faint")
        self.progress = QProgressBar(textVisible=False, maximum=1000)
        self.progress.hide()
        self.problem = _label("danger")
        self.problem.hide()
        self.open_file = QPushButton()
        self.open_file.setProperty("tall", True)
        # One line: a label that may wrap is given too little height in a fixed width.
        self._drop = _label("faint")
        self._drop.setWordWrap(False)
        self.starter.clicked.connect(self.starter_requested)
        self.open_file.clicked.connect(self.open_requested)
        self._lay_out()
        self.retranslate()
        self.apply_theme(theme, 1.0)

    def set_entries(self, entries: Sequence[ModelEntry]) -> None:
        """Offer the usable models of the library; without one, the starter model."""
        self._entries = [entry for entry in entries if not entry.error][:MAX_ENTRIES]
        for button in self._entry_buttons:
            button.deleteLater()
        self._entry_buttons = [self._entry_button(entry) for entry in self._entries]
        for place, button in enumerate(self._entry_buttons):
            self._column.insertWidget(place, button)
        has_entries = bool(self._entries)
        self.starter.setVisible(not has_entries)
        self.starter_text.setVisible(not has_entries)
        self.retranslate()

    def show_progress(self, fraction: float) -> None:
        """Show how much of the starter model is here."""
        self.problem.hide()
        self.progress.show()
        self.progress.setValue(round(fraction * 1000))
        self.starter.setEnabled(False)
        text = self.tr("Fetching the starter model, {0}").format(percent_text(fraction))
        self.starter.setText(beside_icon(text))

    def show_problem(self, text: str) -> None:
        """Say why the starter model did not come; a file can still be opened."""
        self.progress.hide()
        self.starter.setEnabled(True)
        self.problem.setText(text)
        self.problem.show()
        self.retranslate()

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        self._theme = theme
        self._sign.setPixmap(pixmap("reprise", theme.accent, 48))
        self.starter.setIcon(icon("download", theme.accent_text))
        self.open_file.setIcon(icon("folder-open", theme.text))
        for button in self._entry_buttons:
            button.setIcon(icon("box", theme.muted))

    def retranslate(self) -> None:
        """Write every text in the language of the moment."""
        if self._entries:
            self._title.setText(self.tr("Choose a model"))
            self._text.setText(self.tr("These models are on this computer."))
        else:
            self._title.setText(self.tr("Welcome to Reprise"))
            self._text.setText(
                self.tr(
                    "Language models that run on your own machine, and never read the same text "
                    "twice. Nothing is sent anywhere. All it needs is a model."
                )
            )
        if self.starter.isEnabled():
            self.starter.setText(beside_icon(self.tr("Get the starter model")))
        self.starter_text.setText(
            self.tr("SmolLM2 135M, 98 MB, Apache License 2.0. Small and quick, for a first try.")
        )
        self.open_file.setText(beside_icon(self.tr("Open a model file…")))
        self._drop.setText(self.tr("Or drop a .gguf file anywhere on this window."))

    def _lay_out(self) -> None:
        inner = QWidget()
        inner.setFixedWidth(WIDTH)
        column = QVBoxLayout(inner)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(8)
        column.addWidget(self._sign)
        column.addSpacing(8)
        column.addWidget(self._title)
        column.addWidget(self._text)
        column.addSpacing(16)
        column.addLayout(self._column)
        for widget in (self.starter, self.progress, self.starter_text, self.problem):
            column.addWidget(widget)
        column.addSpacing(8)
        column.addWidget(self.open_file)
        column.addWidget(self._drop)
        outer = QVBoxLayout(self)
        outer.addStretch(2)
        outer.addWidget(inner, 0, Qt.AlignmentFlag.AlignHCenter)
        outer.addStretch(3)

    def _entry_button(self, entry: ModelEntry) -> QPushButton:
        detail = " · ".join(filter(None, (size_text(entry.size_bytes), entry.quantisation)))
        button = QPushButton(
            icon("box", self._theme.muted), beside_icon(f"{entry.name}   {detail}")
        )
        button.setProperty("kind", "choice")
        button.setProperty("tall", True)
        button.clicked.connect(partial(self.load_requested.emit, Path(entry.path)))
        return button


def _label(role: str) -> QLabel:
    label = QLabel(wordWrap=True)
    label.setProperty("role", role)
    return label
