"""What could be better about the memory: the measured number, and the setting that helps."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from app.events import Advice, AdviceKind
from ui.formats import count_text, percent_text, seconds_text, size_text
from ui.icons import pixmap
from ui.theme import Theme


class AdviceSection(QWidget):
    """One row each, the most important first; hidden while there is nothing to say."""

    setting_requested = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._advice: tuple[Advice, ...] = ()
        self._problem = ""
        self._rows = QVBoxLayout(self)
        self._rows.setContentsMargins(0, 0, 0, 0)
        self._rows.setSpacing(16)

    def show_advice(self, advice: tuple[Advice, ...], problem: str = "") -> bool:
        """Show this advice; problem says why nothing is kept. Return whether there is any."""
        if (advice, problem) != (self._advice, self._problem):
            self._advice, self._problem = advice, problem
            self._rebuild()
        return bool(advice)

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours."""
        self._theme = theme
        self._rebuild()

    def retranslate(self) -> None:
        """Write every text in the language of the moment."""
        self._rebuild()

    def words(self, advice: Advice) -> str:
        """Return one piece of advice with its numbers."""
        value = advice.value
        match advice.kind:
            case AdviceKind.LOW_REUSE:
                text = self.tr("Only {0} of what was known was reused in the last {1} turns.")
                # A percent sign stays with its number.
                rate = percent_text(value("reuse_rate")).replace(" ", "\N{NO-BREAK SPACE}")
                return text.format(rate, int(value("num_turns")))
            case AdviceKind.LEAK:
                text = self.tr("{0} are held that no conversation in use explains.")
                return text.format(size_text(value("held_bytes")))
            case AdviceKind.JITTER:
                text = self.tr("The first word sometimes takes {0} instead of {1}.")
                slow, usual = value("slow_ms") / 1000, value("usual_ms") / 1000
                return text.format(seconds_text(slow), seconds_text(usual))
            case AdviceKind.SLOW_DISK:
                text = self.tr(
                    "The disk brings back {0} tokens a second; reading them anew makes {1}."
                )
                disk, anew = value("restored_tokens_per_second"), value("read_tokens_per_second")
                return text.format(count_text(round(disk)), count_text(round(anew)))
        return self._problem or self.tr("Nothing is being kept on disk at the moment.")

    def _rebuild(self) -> None:
        while item := self._rows.takeAt(0):
            if widget := item.widget():
                widget.hide()
                widget.deleteLater()
        for advice in self._advice:
            self._rows.addWidget(self._row(advice))

    def _row(self, advice: Advice) -> QWidget:
        widget = QWidget()
        row = QHBoxLayout(widget)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(10)
        sign = QLabel()
        sign.setPixmap(pixmap("lightbulb", self._theme.warm_text, 18))
        sign.setFixedSize(QSize(18, 20))
        column = QVBoxLayout()
        column.setSpacing(4)
        words = QLabel(self.words(advice), wordWrap=True)
        column.addWidget(words)
        if advice.setting:
            button = QPushButton(self.tr("Show the setting"))
            button.setProperty("kind", "link")
            button.clicked.connect(partial(self.setting_requested.emit, advice.setting))
            column.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
        row.addWidget(sign, 0, Qt.AlignmentFlag.AlignTop)
        row.addLayout(column, 1)
        return widget
