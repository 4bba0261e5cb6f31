"""Six pixels beside the messages: what is ready in which tier, and what would be read again."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.conversation import Readiness, ReadyTier
from ui.chat.look import Look
from ui.chat.message_model import MessageModel
from ui.chat.message_view import MessageView
from ui.chat.words import count, duration
from ui.conversations.badge import draw_hatching

WIDTH_PX = 6
_MIN_HATCHED_PX = 14
_ROLES = {ReadyTier.HOT: "hot", ReadyTier.WARM: "warm", ReadyTier.COLD: "cold"}


class CacheStrip(QWidget):
    """Drawn along the visible messages; where ready ends inside one is estimated by its length."""

    def __init__(self, look: Look, model: MessageModel, view: MessageView) -> None:
        super().__init__(view.viewport())
        self._look, self._model, self._view = look, model, view
        self._readiness: Readiness | None = None
        view.scrolled.connect(self._follow)

    def set_readiness(self, readiness: Readiness | None) -> None:
        """Show where the state of the conversation lies; None hides the strip."""
        self._readiness = readiness
        self.setToolTip(self._words())
        self.setVisible(readiness is not None)
        self._follow()

    def set_look(self, look: Look) -> None:
        """Change theme or zoom."""
        self._look = look
        self._follow()

    def ready_share(self) -> float:
        """Return the share of the conversation that is ready, in [0, 1]."""
        if self._readiness is None or self._readiness.tier is ReadyTier.NONE:
            return 0.0
        total = self._readiness.ready_tokens + self._readiness.unread_tokens
        return self._readiness.ready_tokens / total if total else 1.0

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint each visible message: ready in its tier's colour, the rest hatched."""
        if self._readiness is None:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        role = _ROLES.get(self._readiness.tier, "unread")
        ready_chars = self.ready_share() * sum(self._sizes())
        for index, size in enumerate(self._sizes()):
            if not size:
                continue
            top, bottom = self._view.row_span(index)
            if bottom > 0 and top < self.height():
                share = min(1.0, max(0.0, ready_chars / size))
                self._paint_row(painter, QRectF(0, top, WIDTH_PX, bottom - top), share, role)
            ready_chars -= size
        painter.end()

    def _paint_row(self, painter: QPainter, area: QRectF, share: float, role: str) -> None:
        split = area.top() + area.height() * share
        if area.bottom() - split < _MIN_HATCHED_PX:
            split, share = area.bottom(), 1.0
        painter.setBrush(self._look.color(role))
        if share > 0:
            painter.drawRoundedRect(QRectF(0, area.top(), WIDTH_PX, split - area.top()), 3, 3)
        if share < 1:
            top = split + 2 if share > 0 else split
            rest = QRectF(0, top, WIDTH_PX, area.bottom() - top)
            draw_hatching(painter, rest, self._look.color("unread"), radius=3)

    def _sizes(self) -> list[int]:
        rows = self._model.rows
        return [0 if row.is_gone else max(1, len(row.message.content)) for row in rows]

    def _words(self) -> str:
        if self._readiness is None:
            return ""
        words = self.tr("{0} tokens ready, {1} to read, about {2}")
        ready, unread = self._readiness.ready_tokens, self._readiness.unread_tokens
        return words.format(count(ready), count(unread), duration(self._readiness.seconds))

    def _follow(self) -> None:
        column = self._view.column_rect()
        x = column.left() - WIDTH_PX - self._look.px(18)
        self.setGeometry(max(2, x), 0, WIDTH_PX, column.height())
        self.update()
