"""The quiet line under a reply: its versions, its speed, and what was reused or read."""

from __future__ import annotations

from PySide6.QtCore import QPoint, Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QPushButton, QToolButton, QWidget

from app.conversation import ReplyStats
from engine.events import MissCause
from ui.chat.look import Look
from ui.chat.message_model import Row
from ui.chat.parts import icon_button, quiet_label
from ui.chat.why_popover import WhyPopover
from ui.chat.words import count, duration, rate
from ui.icons import pixmap

HEIGHT_PX = 26
# Less than this is read within a blink and needs no excuse.
_LOW_REUSE_TOKENS = 64
_EXPECTED = (MissCause.NEW_CONVERSATION, MissCause.BELOW_BLOCK)


class ReplyFooter(QWidget):
    """One line: "< 2/3 >  23 tokens/s · first token 0.4 s · reused 3,912 · read 41  Why?"."""

    version_requested = Signal(int)

    def __init__(
        self, look: Look, parent: QWidget | None = None, *, is_right: bool = False
    ) -> None:
        super().__init__(parent)
        self._look = look
        self._row: Row | None = None
        self._previous = self._step_button("chevron-left", self.tr("Earlier version"), -1)
        self._version = quiet_label(look, role="faint", parent=self)
        self._next = self._step_button("chevron-right", self.tr("Later version"), 1)
        self._pin = QLabel(self)
        self._pin.setPixmap(pixmap("pin", look.theme.faint, look.px(14)))
        self._pin.setToolTip(self.tr("Stays when the context is full"))
        self._numbers = quiet_label(look, role="faint", parent=self)
        self._why = self._why_button()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        if is_right:
            layout.addStretch(1)
        for widget in (self._previous, self._version, self._next):
            layout.addWidget(widget)
        layout.addWidget(self._pin)
        layout.addWidget(self._numbers)
        layout.addWidget(self._why)
        if not is_right:
            layout.addStretch(1)

    @property
    def why_button(self) -> QPushButton:
        """The link that explains low reuse."""
        return self._why

    @property
    def next_button(self) -> QToolButton:
        """The step to the version after this one."""
        return self._next

    @staticmethod
    def is_needed(row: Row) -> bool:
        """Tell whether a message has anything for this line."""
        has_numbers = row.message.stats is not None or row.tokens_per_second > 0
        is_marked = row.message.num_versions > 1 or row.message.is_pinned
        return is_marked or (has_numbers and not row.is_user)

    def set_row(self, row: Row) -> None:
        """Show versions and numbers of a message."""
        self._row = row
        message = row.message
        has_versions = message.num_versions > 1
        for widget in (self._previous, self._version, self._next):
            widget.setVisible(has_versions)
        self._version.setText(f" {message.version}/{message.num_versions} ")
        self._previous.setEnabled(message.version > 1)
        self._next.setEnabled(message.version < message.num_versions)
        self._pin.setVisible(message.is_pinned)
        self._numbers.setText(self._words(row))
        has_before = has_versions or message.is_pinned
        self._numbers.setVisible(not row.is_user)
        self._numbers.setContentsMargins(6 if has_before else 0, 0, 8, 0)
        self._why.setVisible(has_low_reuse(message.stats))

    def fit(self, width: int) -> int:
        """Return the height of the line."""
        return self._look.px(HEIGHT_PX)

    def text(self) -> str:
        """Return the numbers as they read."""
        return self._numbers.text()

    def _words(self, row: Row) -> str:
        if row.is_user:
            return ""
        stats = row.message.stats
        if stats is not None:
            return " · ".join(self._stat_words(stats))
        return rate(row.tokens_per_second) if row.tokens_per_second > 0 else ""

    def _stat_words(self, stats: ReplyStats) -> list[str]:
        usage, timing = stats.usage, stats.timing
        first = duration(timing.first_token_ms / 1000)
        words = [
            self.tr("first token {0}").format(first),
            self.tr("reused {0}").format(count(usage.reused.total)),
            self.tr("read {0}").format(count(usage.recomputed_tokens)),
        ]
        speed = timing.decode_tokens_per_second
        return [rate(speed), *words] if speed > 0 else words

    def _why_button(self) -> QPushButton:
        button = QPushButton(self.tr("Why?"), self)
        button.setProperty("kind", "link")
        button.setCursor(Qt.CursorShape.PointingHandCursor)
        button.setToolTip(self.tr("Why so much had to be read again"))
        button.setStyleSheet(f"font-size: {self._look.px(13)}px;")
        button.clicked.connect(self._explain)
        return button

    def _explain(self) -> None:
        stats = self._row.message.stats if self._row else None
        if stats is not None:
            popover = WhyPopover(self._look, stats, self)
            popover.open_above(self._why.mapToGlobal(QPoint(0, 0)))

    def _step_button(self, name: str, label: str, step: int) -> QToolButton:
        button = icon_button(
            self._look, name, label, lambda: self._request_version(step), parent=self
        )
        button.setFixedSize(self._look.px(24), self._look.px(24))
        return button

    def _request_version(self, step: int) -> None:
        if self._row is not None:
            self.version_requested.emit(self._row.message.version + step)


def has_low_reuse(stats: ReplyStats | None) -> bool:
    """Tell whether a reply had to read again what one would expect to be ready."""
    if stats is None or stats.miss_reason is None or stats.miss_reason.cause in _EXPECTED:
        return False
    return stats.usage.recomputed_tokens >= _LOW_REUSE_TOKENS
