"""A thin line between messages: those above it are no longer in the model's context."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QWidget

from ui.chat.context_words import marker_tip
from ui.chat.look import Look
from ui.chat.message_model import Row

HEIGHT_PX = 20
GAP_PX = 24
_SPACE_PX = 12


class ContextMarker(QWidget):
    """Words in the middle of a hairline, above the first message that the model still sees."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._words = ""

    @staticmethod
    def is_needed(row: Row) -> bool:
        """Tell whether messages before this one have left the context."""
        return row.num_gone_before > 0

    def set_row(self, row: Row) -> None:
        """Show how many have left."""
        self._words = self.tr(
            "%n message(s) no longer in the model's context", "", row.num_gone_before
        )
        self.setToolTip(marker_tip(row.left_out))
        self.setAccessibleName(self._words)
        self.update()

    def text(self) -> str:
        """Return the words."""
        return self._words

    def fit(self, width: int) -> int:
        """Return the height of the line."""
        return self._look.px(HEIGHT_PX)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint words and line."""
        painter = QPainter(self)
        painter.setFont(self._look.tiny())
        space = self._look.px(_SPACE_PX)
        metrics = painter.fontMetrics()
        words = metrics.elidedText(self._words, Qt.TextElideMode.ElideRight, self.width())
        width = metrics.horizontalAdvance(words)
        left, middle = (self.width() - width) / 2, self.height() // 2
        painter.setPen(QPen(self._look.color("unread"), 1, Qt.PenStyle.DotLine))
        if left > space:
            painter.drawLine(0, middle, int(left - space), middle)
            painter.drawLine(int(left + width + space), middle, self.width(), middle)
        painter.setPen(self._look.color("muted"))
        area = QRectF(0, 0, self.width(), self.height())
        painter.drawText(area, Qt.AlignmentFlag.AlignCenter, words)
        painter.end()
