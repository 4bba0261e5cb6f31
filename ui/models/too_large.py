"""Asks before a model is loaded that would not fit into free memory."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.memory_estimate import MemoryEstimate
from ui.models.memory_words import memory_words


class TooLargeDialog(QDialog):
    """Closing it without an answer loads nothing."""

    load_requested = Signal(Path)

    def __init__(self, path: Path, memory: MemoryEstimate, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(self.tr("Not enough free memory"))
        self.setFixedWidth(460)
        title = QLabel(self.tr("{0} may not fit into memory").format(path.stem), wordWrap=True)
        title.setProperty("role", "heading")
        words = QLabel(memory_words(memory), wordWrap=True)
        advice = QLabel(
            self.tr(
                "The system would have to use the disk instead, which is many times slower. "
                "A shorter context length takes less."
            ),
            wordWrap=True,
        )
        self.anyway = QPushButton(self.tr("Load anyway"), autoDefault=False)
        cancel = QPushButton(self.tr("Cancel"), default=True)
        cancel.setProperty("kind", "primary")
        self.anyway.clicked.connect(lambda: self.load_requested.emit(path))
        self.anyway.clicked.connect(self.accept)
        cancel.clicked.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 24, 24, 20)
        layout.setSpacing(12)
        for label in (title, words, advice):
            layout.addWidget(label)
        buttons = QHBoxLayout()
        buttons.setSpacing(8)
        buttons.addStretch()
        buttons.addWidget(self.anyway)
        buttons.addWidget(cancel)
        layout.addSpacing(8)
        layout.addLayout(buttons)
