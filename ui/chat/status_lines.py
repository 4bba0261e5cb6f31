"""How a reply stands: waiting, being read, stopped, cut off or failed, and what to do next."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QWidget

from app.conversation import MessageStatus
from app.events import ReplyProgress
from ui.chat.look import Look
from ui.chat.message_model import Row
from ui.chat.parts import RoundedField, quiet_label
from ui.chat.words import count, duration
from ui.error_words import short_words
from ui.icons import pixmap

_BAR_PX = 3
_BAR_WIDTH_PX = 240
_NEEDS_WORDS = (MessageStatus.STOPPED, MessageStatus.LENGTH, MessageStatus.ERROR)


class WaitingLine(QWidget):
    """What happens before the first word: the queue, or how much of the prompt is read."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._progress: ReplyProgress | None = None
        self._label = quiet_label(look, parent=self)

    @staticmethod
    def is_needed(row: Row) -> bool:
        """Tell whether a reply has not begun yet."""
        has_words = bool(row.message.content or row.message.reasoning)
        return row.is_live and (not has_words or row.progress is not None)

    def set_row(self, row: Row) -> None:
        """Show where a reply stands."""
        self._progress = row.progress
        self._label.setText(self._words(row))
        self.update()

    def text(self) -> str:
        """Return the line as it reads."""
        return self._label.text()

    def fit(self, width: int) -> int:
        """Lay the line out in this width and return the height."""
        line = self._look.px(23)
        self._label.setGeometry(0, 0, width, line)
        return line + (self._look.px(10) if self._progress else 0)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint how much is read; the reused part in the colour of ready state."""
        if self._progress is None or not self._progress.total_tokens:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        width = min(self.width(), self._look.px(_BAR_WIDTH_PX))
        total = self._progress.total_tokens
        for role, tokens in (("pressed", total), ("accent", self._progress.done_tokens)):
            painter.setBrush(self._look.color(role))
            area = QRectF(0, self._look.px(26), width * tokens / total, _BAR_PX)
            painter.drawRoundedRect(area, _BAR_PX / 2, _BAR_PX / 2)
        painter.end()

    def _words(self, row: Row) -> str:
        if row.queue_position is not None:
            if row.queue_position == 0:
                return self.tr("Queued, next in line")
            return self.tr("Queued, {0} before it").format(str(row.queue_position))
        if row.progress is None:
            return self.tr("Starting…")
        return self._progress_words(row.progress)

    def _progress_words(self, progress: ReplyProgress) -> str:
        words = self.tr("Reading {0} of {1} tokens").format(
            count(progress.done_tokens), count(progress.total_tokens)
        )
        if progress.seconds_left is None:
            return words
        left = self.tr("about {0} left").format(duration(progress.seconds_left))
        return f"{words} · {left}"


class StatusChip(RoundedField):
    """Why a reply ended early, in plain words, with Continue or Retry."""

    continue_requested = Signal()
    retry_requested = Signal()

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(look, parent, fill="control", radius=8)
        self._is_error = False
        self._icon = QLabel(self)
        self._label = quiet_label(look, role="text", parent=self)
        self._label.setWordWrap(True)
        self._button = QPushButton(self)
        self._button.setProperty("kind", "link")
        self._button.setStyleSheet(f"font-size: {look.px(13)}px; font-weight: 600;")
        self._button.setCursor(Qt.CursorShape.PointingHandCursor)
        self._button.clicked.connect(self._act)
        self._layout = layout = QHBoxLayout(self)
        layout.setContentsMargins(12, 6, 12, 6)
        layout.setSpacing(8)
        layout.addWidget(self._icon)
        layout.addWidget(self._label, 1)
        layout.addWidget(self._button)

    @staticmethod
    def is_needed(row: Row) -> bool:
        """Tell whether a reply ended in a way that wants words."""
        return not row.is_user and row.message.status in _NEEDS_WORDS

    def set_row(self, row: Row) -> None:
        """Show how a reply ended; only the last one can be continued."""
        status = row.message.status
        self._is_error = status is MessageStatus.ERROR
        self._label.setText(self._words(row))
        self.setToolTip(row.message.error)
        self._button.setText(self.tr("Retry") if self._is_error else self.tr("Continue"))
        self._button.setVisible(row.is_last)
        role = "danger" if self._is_error else "muted"
        name = "circle-alert" if self._is_error else "circle-stop"
        self._icon.setPixmap(pixmap(name, self._look.roles[role], self._look.px(16)))
        self.set_colors(self._look, fill="danger_soft" if self._is_error else "control")

    def text(self) -> str:
        """Return the words."""
        return self._label.text()

    def fit(self, width: int) -> int:
        """Return the height for this width."""
        return max(self._look.px(34), self._layout.heightForWidth(self.natural_width(width)))

    def natural_width(self, width: int) -> int:
        """Return how wide the chip is inside this width."""
        words = self._label.fontMetrics().horizontalAdvance(self._label.text())
        button = 0 if self._button.isHidden() else self._button.sizeHint().width() + 12
        return min(width, words + button + self._look.px(16) + 36)

    def _words(self, row: Row) -> str:
        if row.message.status is MessageStatus.STOPPED:
            return self.tr("Stopped")
        if row.message.status is MessageStatus.LENGTH:
            return self.tr("The reply reached its length limit")
        message = row.message
        return short_words(message.error_kind, message.error) or self.tr("The reply failed")

    def _act(self) -> None:
        (self.retry_requested if self._is_error else self.continue_requested).emit()
