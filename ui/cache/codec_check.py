"""What the memory precision costs the model that is loaded, as it was measured."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QGridLayout, QLabel, QWidget

from app.codec_gate import is_good_enough
from app.events import CodecAccuracy, ModelInfo
from ui.formats import count_text
from ui.theme import Theme, number_font

NUMBERS = ("top1", "nll", "kl")


class CodecCheck(QWidget):
    """Three numbers under the choice; nothing where the precision costs nothing."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._names = {name: QLabel() for name in NUMBERS}
        self.numbers = {name: QLabel() for name in NUMBERS}
        self.words = QLabel(wordWrap=True)
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setVerticalSpacing(4)
        grid.setColumnStretch(0, 1)
        grid.addWidget(self.words, 0, 0, 1, 2)
        for place, name in enumerate(NUMBERS, start=1):
            self._names[name].setProperty("role", "muted")
            grid.addWidget(self._names[name], place, 0)
            grid.addWidget(self.numbers[name], place, 1, Qt.AlignmentFlag.AlignRight)
        self.apply_theme(theme, 1.0)
        self.hide()

    def show_model(self, model: ModelInfo | None) -> None:
        """Show what was measured of a model."""
        accuracy = model.codec_accuracy if model is not None else None
        self.setVisible(accuracy is not None)
        if accuracy is None:
            return
        for name, text in zip(NUMBERS, accuracy_texts(accuracy), strict=True):
            self.numbers[name].setText(text)
        self._names["top1"].setText(self.tr("Same next word"))
        self._names["nll"].setText(self.tr("Surprise at the text (NLL)"))
        self._names["kl"].setText(self.tr("Divergence (KL)"))
        is_good = is_good_enough(accuracy)
        words = self.tr("Measured on this model over {0} tokens, against 16-bit:")
        if not is_good:
            words = self.tr("Below the limit, used because you chose to. Over {0} tokens:")
        self.words.setText(words.format(count_text(accuracy.num_tokens)))
        self.words.setProperty("role", "faint" if is_good else "danger")
        self.words.style().polish(self.words)

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        for label in self.numbers.values():
            label.setFont(number_font(zoom, pixels=13))


def accuracy_texts(accuracy: CodecAccuracy) -> tuple[str, str, str]:
    """Return top-1 agreement, change of NLL and KL divergence as they read."""
    return (
        f"{accuracy.top1:.1%}".replace("%", " %"),
        f"{accuracy.nll_change:+.2%}".replace("%", " %"),
        f"{accuracy.kl:.4f}",
    )
