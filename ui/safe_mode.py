"""Asks, after an end that was not clean, whether to load the model again."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialog, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget


class SafeModeDialog(QDialog):
    """Closing it without an answer stays on the safe side: no model is loaded."""

    usual_start = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Reprise")
        self.setFixedWidth(440)
        title = QLabel(self.tr("Reprise did not end properly last time"))
        title.setProperty("role", "heading")
        text = QLabel(
            self.tr(
                "Your conversations are safe. If a model was the cause, start without it and "
                "choose another one."
            ),
            wordWrap=True,
        )
        usual = QPushButton(self.tr("Start as usual"), default=True)
        usual.setProperty("kind", "primary")
        safe = QPushButton(self.tr("Start without a model"), autoDefault=False)
        usual.clicked.connect(self.usual_start)
        usual.clicked.connect(self.accept)
        safe.clicked.connect(self.reject)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 24, 24, 16)
        layout.setSpacing(12)
        layout.addWidget(title)
        layout.addWidget(text)
        buttons = QHBoxLayout()
        buttons.addStretch()
        buttons.addWidget(safe)
        buttons.addWidget(usual)
        layout.addSpacing(8)
        layout.addLayout(buttons)
