"""Why a reply had to read so much again: where reuse ended, and the cause in plain words."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QFrame, QLabel, QVBoxLayout, QWidget

from app.conversation import ReplyStats
from engine.events import MissCause, MissReason
from ui.chat.look import Look
from ui.chat.parts import RoundedField, quiet_label
from ui.chat.words import count

_WIDTH_PX = 380


class WhyPopover(QFrame):
    """A small card that closes when one clicks elsewhere or presses Esc."""

    def __init__(self, look: Look, stats: ReplyStats, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setAttribute(Qt.WidgetAttribute.WA_TranslucentBackground)
        self._look = look
        card = RoundedField(look, self, fill="raised", outline="hairline", radius=10)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(card)
        self._layout = QVBoxLayout(card)
        self._layout.setContentsMargins(16, 14, 16, 16)
        self._layout.setSpacing(8)
        self.setFixedWidth(look.px(_WIDTH_PX))
        if stats.miss_reason is not None:
            self._add_words(stats, stats.miss_reason)

    def open_above(self, place: QPoint) -> None:
        """Show the card above a point of the screen."""
        self.adjustSize()
        area = self.screen().availableGeometry()
        x = min(place.x(), area.right() - self.width())
        y = place.y() - self.height() - 6
        self.move(x, y if y > area.top() else place.y() + self._look.px(26))
        self.show()

    def text(self) -> str:
        """Return all words of the card."""
        return "\n".join(label.text() for label in self.findChildren(QLabel))

    def _add_words(self, stats: ReplyStats, reason: MissReason) -> None:
        read = count(stats.usage.recomputed_tokens)
        title = self.tr("{0} tokens were read again").format(read)
        self._add_label(title, role="text", is_strong=True)
        self._add_label(self.cause_words(reason.cause), role="text")
        place = self.tr("Reuse ended at token {0}.").format(count(reason.position))
        self._add_label(place, role="muted")
        if reason.expected:
            self._add_excerpt(self.tr("Before"), reason.expected)
        if reason.found:
            self._add_excerpt(self.tr("Now"), reason.found)

    def _add_label(self, words: str, *, role: str, is_strong: bool = False) -> QLabel:
        label = quiet_label(self._look, words, role=role, parent=self)
        label.setWordWrap(True)
        if is_strong:
            label.setStyleSheet(label.styleSheet() + "font-weight: 600;")
        self._layout.addWidget(label)
        return label

    def _add_excerpt(self, title: str, text: str) -> None:
        self._add_label(title, role="muted")
        label = self._add_label(text, role="code_text")
        label.setFont(self._look.mono())
        label.setStyleSheet(
            f"background: {self._look.theme.code_bg}; color: {self._look.theme.code_text};"
            f"border-radius: 6px; padding: 6px 8px; font-size: {self._look.px(12)}px;"
        )

    def cause_words(self, cause: MissCause) -> str:
        """Return a cause in plain words."""
        return {
            MissCause.NEW_CONVERSATION: self.tr("The conversation was new to this model."),
            MissCause.HISTORY_CHANGED: self.tr(
                "An earlier message or the system prompt was changed. "
                "Everything after the change has to be read again."
            ),
            MissCause.CONTEXT_FULL: self.tr(
                "The context was full, so the oldest messages were left out. What follows the gap "
                "has to be read again; a rolling window moves it instead."
            ),
            MissCause.TEMPLATE_REWRITES_HISTORY: self.tr(
                "This model's chat template changes earlier replies, for example it drops their "
                "thoughts. What follows the first changed place has to be read again."
            ),
            MissCause.EVICTED: self.tr(
                "The state of this conversation was let go to stay within the memory budget. "
                "A larger budget keeps more conversations ready."
            ),
            MissCause.DAMAGED: self.tr(
                "A stored part failed its check, so it was not used and read from the text instead."
            ),
            MissCause.OTHER_MODEL: self.tr(
                "The stored state belongs to another model or another memory precision."
            ),
            MissCause.BELOW_BLOCK: self.tr("Only the last, unfinished block was read again."),
        }[cause]
