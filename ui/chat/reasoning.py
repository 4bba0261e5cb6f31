"""What a model thought before it answered, folded away under one line."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QToolButton, QWidget

from ui.chat.elements import Element, Paragraph, Rule
from ui.chat.look import Look
from ui.chat.markdown_stream import MarkdownStream
from ui.chat.message_body import MessageBody
from ui.chat.message_model import Row
from ui.chat.words import count
from ui.icons import icon


class ReasoningSection(QWidget):
    """A line that opens and closes; open by itself only while nothing else is there to read."""

    toggled = Signal(bool)

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._stream = MarkdownStream()
        self._is_open = False
        self._button = QToolButton(self)
        self._button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._button.setIconSize(QSize(look.px(14), look.px(14)))
        self._button.setStyleSheet(
            f"color: {look.theme.muted}; font-size: {look.px(13)}px; padding: 2px 6px 2px 2px;"
        )
        self._button.setCursor(Qt.CursorShape.PointingHandCursor)
        self._button.clicked.connect(self._toggle)
        self._body: MessageBody | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether the thoughts are shown."""
        return self._is_open

    @staticmethod
    def is_needed(row: Row) -> bool:
        """Tell whether a message has thoughts."""
        return bool(row.message.reasoning)

    def set_row(self, row: Row) -> None:
        """Show the thoughts of a message."""
        is_thinking = row.is_live and not row.message.content
        is_open = row.is_reasoning_open
        self._is_open = is_thinking if is_open is None else is_open
        self._button.setText(self._title(row, is_thinking=is_thinking))
        name = "chevron-down" if self._is_open else "chevron-right"
        self._button.setIcon(icon(name, self._look.theme.muted))
        if self._is_open:
            self._show_thoughts(row)
        elif self._body is not None:
            self._body.hide()

    def fit(self, width: int) -> int:
        """Lay the line and the thoughts out in this width and return the height."""
        size = self._button.sizeHint()
        self._button.setGeometry(-self._look.px(5), 0, size.width(), size.height())
        if not self._is_open or self._body is None:
            return size.height()
        height = self._body.fit(width)
        self._body.setGeometry(0, size.height() + 6, width, height)
        self._body.place()
        return size.height() + 6 + height

    def _show_thoughts(self, row: Row) -> None:
        if self._body is None:
            self._body = MessageBody(self._look, self)
        self._body.show()
        self._stream.set_text(row.message.reasoning)
        self._body.set_elements([_quoted(e) for e in self._stream.elements], is_live=row.is_live)

    def _title(self, row: Row, *, is_thinking: bool) -> str:
        if is_thinking:
            return self.tr("Thinking…")
        tokens = thought_tokens(row)
        if tokens is None:
            return self.tr("Thoughts")
        return self.tr("Thought for about {0} tokens").format(count(tokens))

    def _toggle(self) -> None:
        self.toggled.emit(not self._is_open)


def thought_tokens(row: Row) -> int | None:
    """Return the share of the reply's tokens that its thoughts took, None when not known yet."""
    message = row.message
    total = len(message.reasoning) + len(message.content)
    if message.stats is None or not total:
        return None
    return max(1, round(message.stats.usage.completion_tokens * len(message.reasoning) / total))


def _quoted(element: Element) -> Element:
    if isinstance(element, Paragraph | Rule):
        return replace(element, quote=element.quote + 1)
    return element
