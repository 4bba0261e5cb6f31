"""A memory precision that loses too much on a model: what was measured, and what to do about it."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QDialog,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.codec_gate import MAX_KL, MAX_NLL_CHANGE, MIN_TOP1
from app.events import CodecAccuracy
from ui.cache.choices import precision_name
from ui.cache.codec_check import accuracy_texts
from ui.formats import count_text
from ui.theme import Theme, number_font


class CodecRefusedDialog(QDialog):
    """Closing it without an answer loads nothing."""

    force_requested = Signal(Path)
    plain_requested = Signal(Path)

    def __init__(
        self, path: Path, accuracy: CodecAccuracy, theme: Theme, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(self.tr("Memory precision"))
        self.setFixedWidth(460)
        codec = precision_name(accuracy.codec)
        title = QLabel(self.tr("{0} loses too much on this model").format(codec), wordWrap=True)
        title.setProperty("role", "heading")
        words = self.tr(
            "{0} was read twice: over {1} tokens its predictions with this memory precision were "
            "compared with exact ones."
        )
        self.words = QLabel(words.format(path.stem, count_text(accuracy.num_tokens)), wordWrap=True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(24, 24, 24, 20)
        layout.setSpacing(12)
        layout.addWidget(title)
        layout.addWidget(self.words)
        layout.addLayout(self._numbers(accuracy, theme))
        layout.addWidget(self._advice())
        layout.addSpacing(8)
        layout.addLayout(self._buttons(path))

    def text(self) -> str:
        """Return all words."""
        return "\n".join(label.text() for label in self.findChildren(QLabel))

    def _numbers(self, accuracy: CodecAccuracy, theme: Theme) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(16)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(0, 1)
        top1, nll, kl = accuracy_texts(accuracy)
        if accuracy.codec == "int8":
            wanted = (f"≥ {MIN_TOP1:.0%}".replace("%", " %"), "", "")
        else:
            wanted = ("", f"≤ {MAX_NLL_CHANGE:.1%}".replace("%", " %"), f"≤ {MAX_KL}")
        names = (
            self.tr("Same next word"),
            self.tr("Surprise at the text (NLL)"),
            self.tr("Divergence (KL)"),
        )
        for column, head in enumerate((self.tr("measured"), self.tr("wanted")), start=1):
            grid.addWidget(_cell(head, "faint"), 0, column, Qt.AlignmentFlag.AlignRight)
        for row, cells in enumerate(zip(names, (top1, nll, kl), wanted, strict=True), start=1):
            for column, cell in enumerate(cells):
                label = _cell(cell, "" if column == 1 else "muted")
                if column:
                    label.setFont(number_font(1.0, pixels=13))
                side = Qt.AlignmentFlag.AlignRight if column else Qt.AlignmentFlag.AlignLeft
                grid.addWidget(label, row, column, side)
        return grid

    def _advice(self) -> QLabel:
        words = self.tr(
            "16-bit takes more memory and loses nothing. What you choose here can be changed in "
            "the settings at any time."
        )
        return _cell(words, "muted", wraps=True)

    def _buttons(self, path: Path) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setSpacing(8)
        self.force = QPushButton(self.tr("Use it anyway"), autoDefault=False)
        self.plain = QPushButton(self.tr("Use 16-bit"), default=True)
        self.plain.setProperty("kind", "primary")
        cancel = QPushButton(self.tr("Cancel"), autoDefault=False)
        self.force.clicked.connect(lambda: self.force_requested.emit(path))
        self.plain.clicked.connect(lambda: self.plain_requested.emit(path))
        for button in (self.force, self.plain):
            button.clicked.connect(self.accept)
        cancel.clicked.connect(self.reject)
        row.addWidget(cancel)
        row.addStretch()
        row.addWidget(self.force)
        row.addWidget(self.plain)
        return row


def _cell(text: str, role: str, *, wraps: bool = False) -> QLabel:
    label = QLabel(text, wordWrap=wraps)
    label.setProperty("role", role)
    return label
