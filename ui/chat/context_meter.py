"""How full the context is: exact tokens, amber from 80 %."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.full_context import tokens_until_full
from ui.chat.look import Look
from ui.chat.words import count

WARN_SHARE = 0.8
_BAR_WIDTH_PX = 56
_BAR_PX = 4


class ContextMeter(QWidget):
    """A short bar and two numbers; hidden until the numbers are known."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._tokens: int | None = None
        self._limit = 0
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.hide()

    def set_use(self, tokens: int | None, limit: int) -> None:
        """Show how many tokens of how many are taken; None hides the meter."""
        self._tokens, self._limit = tokens, limit
        self.setVisible(tokens is not None and limit > 0)
        self.setToolTip(self._explanation())
        self.setAccessibleName(self.text())
        self.updateGeometry()
        self.update()

    def set_look(self, look: Look) -> None:
        """Change theme or zoom."""
        self._look = look
        self.updateGeometry()
        self.update()

    @property
    def share(self) -> float:
        """The share that is taken, in [0, 1]."""
        return min(1.0, (self._tokens or 0) / self._limit) if self._limit else 0.0

    @property
    def is_nearly_full(self) -> bool:
        """Tell whether it is time to warn."""
        return self.share >= WARN_SHARE

    def text(self) -> str:
        """Return the numbers as they read."""
        return f"{count(self._tokens or 0)} / {count(self._limit)}"

    def sizeHint(self) -> QSize:
        """Return the room for bar and numbers."""
        self.setFont(self._look.tiny())
        width = self.fontMetrics().horizontalAdvance(self.text())
        return QSize(self._look.px(_BAR_WIDTH_PX) + 8 + width + 2, self._look.px(20))

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the bar and the numbers."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        bar_width, middle = self._look.px(_BAR_WIDTH_PX), self.height() / 2
        track = QRectF(0, middle - _BAR_PX / 2, bar_width, _BAR_PX)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._look.color("pressed"))
        painter.drawRoundedRect(track, _BAR_PX / 2, _BAR_PX / 2)
        painter.setBrush(self._look.color("warm" if self.is_nearly_full else "accent"))
        track.setWidth(max(_BAR_PX, bar_width * self.share))
        painter.drawRoundedRect(track, _BAR_PX / 2, _BAR_PX / 2)
        painter.setFont(self._look.tiny())
        painter.setPen(self._look.color("warm_text" if self.is_nearly_full else "muted"))
        area = QRectF(bar_width + 8, 0, self.width() - bar_width - 8, self.height())
        painter.drawText(area, Qt.AlignmentFlag.AlignVCenter, self.text())
        painter.end()

    def _explanation(self) -> str:
        words = self.tr("This conversation takes {0} of the {1} tokens the model can see")
        words = words.format(count(self._tokens or 0), count(self._limit))
        if self._tokens is None or not self.is_nearly_full:
            return words
        left = tokens_until_full(self._tokens, self._limit)
        room = self.tr("{0} more, and the oldest messages no longer fit").format(count(left))
        return f"{words}\n{room}"
