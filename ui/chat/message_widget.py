"""One message: a field on the right for the person, plain text on the left for the model."""

from __future__ import annotations

from PySide6.QtCore import QRect, Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QEnterEvent
from PySide6.QtWidgets import QWidget

from ui.chat.context_marker import GAP_PX as MARKER_GAP_PX
from ui.chat.context_marker import ContextMarker
from ui.chat.look import Look
from ui.chat.markdown_stream import MarkdownStream
from ui.chat.message_body import MessageBody
from ui.chat.message_editor import MessageEditor
from ui.chat.message_model import Row
from ui.chat.parts import RoundedField
from ui.chat.question_card import QuestionCard
from ui.chat.reasoning import ReasoningSection
from ui.chat.reply_footer import ReplyFooter
from ui.chat.status_lines import StatusChip, WaitingLine
from ui.chat.user_text import parse_user

GUTTER_PX = 52
BUBBLE_SHARE = 0.82
_BUBBLE_X_PX = 16
# Lines carry their extra room above the letters, so the field has less of it there.
_BUBBLE_TOP_PX = 8
_BUBBLE_BOTTOM_PX = 12
_PART_GAP_PX = 10

Section = ReasoningSection | WaitingLine | StatusChip | QuestionCard | ReplyFooter
_REPLY_SECTIONS: tuple[type[Section], ...] = (
    ReasoningSection,
    WaitingLine,
    StatusChip,
    QuestionCard,
    ReplyFooter,
)
_USER_SECTIONS: tuple[type[Section], ...] = (ReplyFooter,)


class MessageWidget(QWidget):
    """Shows a row. It is as wide as the column and both gutters, so that hovering is easy."""

    height_changed = Signal(str)
    hovered = Signal(str)
    menu_requested = Signal(str, object)
    edit_saved = Signal(str, str)
    edit_cancelled = Signal(str)
    version_requested = Signal(str, int)
    continue_requested = Signal(str)
    retry_requested = Signal(str)
    reasoning_toggled = Signal(str, bool)
    question_answered = Signal(str, str, bool)

    def __init__(self, look: Look, row: Row, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_StaticContents)
        self._look = look
        self._row = row
        self._stream = MarkdownStream()
        self._bubble: RoundedField | None = None
        self._editor: MessageEditor | None = None
        self._places: list[tuple[QWidget, QRect]] = []
        self._fitted: tuple[int, int] | None = None
        self._sections: dict[type[Section], Section] = {}
        self._marker: ContextMarker | None = None
        self._top = 0
        if row.is_user:
            self._bubble = RoundedField(look, self, fill="user_bubble", radius=14)
        self._body = MessageBody(look, self._bubble or self, can_fold=row.is_user)
        self._body.height_changed.connect(self._tell_height)
        self.setAccessibleName(self.tr("Your message") if row.is_user else self.tr("Reply"))

    @property
    def message_id(self) -> str:
        """The message that is shown."""
        return self._row.message.id

    @property
    def body(self) -> MessageBody:
        """The content."""
        return self._body

    @property
    def marker(self) -> ContextMarker | None:
        """The line above, if messages before this one have left the context."""
        return self._marker

    @property
    def editor(self) -> MessageEditor | None:
        """The open editor, if there is one."""
        return self._editor

    def section(self, kind: type[Section]) -> Section | None:
        """Return a line around the content, if it is there."""
        return self._sections.get(kind)

    def set_row(self, row: Row) -> None:
        """Show the present state of a message."""
        self._row, self._fitted = row, None
        self._show_marker()
        self._show_editor()
        self._show_content()
        for kind in _USER_SECTIONS if row.is_user else _REPLY_SECTIONS:
            self._show_section(kind)

    def fit(self, width: int) -> int:
        """Measure for a column of this width and return the height; ``place`` moves the parts.

        NOTE: Qt can move the pixels it has only while no widget has been resized, so the view
        scrolls between the two.
        """
        if self._fitted is None or self._fitted[0] != width:
            self._fitted = width, self._fit(width)
        return self._fitted[1]

    def _fit(self, width: int) -> int:
        left = self._look.px(GUTTER_PX)
        self._places = []
        self._top = self._fit_marker(left, width)
        if self._editor is not None:
            height = self._editor.fit(width)
            self._places.append((self._editor, QRect(left, self._top, width, height)))
            return self._top + height
        return self._fit_bubble(left, width) if self._bubble else self._fit_reply(left, width)

    def place(self) -> None:
        """Move the parts to where ``fit`` wants them."""
        for part, area in self._places:
            if part.geometry() != area:
                part.setGeometry(area)
        self._body.place()

    def anchor_rect(self) -> QRect:
        """Return the rectangle, in this widget, that actions appear beside."""
        if self._bubble is not None:
            return self._bubble.geometry()
        gutter = self._look.px(GUTTER_PX)
        height = self.height() - self._top
        return QRect(gutter, self._top, self.width() - 2 * gutter, height)

    def _fit_marker(self, left: int, width: int) -> int:
        """Place the marker above everything; return where the message begins."""
        if self._marker is None:
            return 0
        height = self._marker.fit(width)
        self._places.append((self._marker, QRect(left, 0, width, height)))
        return height + self._look.px(MARKER_GAP_PX)

    def _fit_bubble(self, left: int, width: int) -> int:
        assert self._bubble is not None
        pad_x, pad_y = self._look.px(_BUBBLE_X_PX), self._look.px(_BUBBLE_TOP_PX)
        inner = self._body.ideal_width(int(width * BUBBLE_SHARE) - 2 * pad_x)
        height = self._body.fit(inner)
        self._places.append((self._body, QRect(pad_x, pad_y, inner, height)))
        outer = inner + 2 * pad_x
        bottom = pad_y + height + self._look.px(_BUBBLE_BOTTOM_PX)
        place = QRect(left + width - outer, self._top, outer, bottom)
        self._places.append((self._bubble, place))
        bottom += self._top
        footer = self._sections.get(ReplyFooter)
        if footer is not None:
            footer_height = footer.fit(width)
            self._places.append((footer, QRect(left, bottom + 2, width, footer_height)))
            bottom += 2 + footer_height
        return bottom

    def _fit_reply(self, left: int, width: int) -> int:
        y = self._top
        for section in self._stack():
            gap = self._look.px(6 if isinstance(section, ReplyFooter) else _PART_GAP_PX)
            y += gap if y > self._top else 0
            height = section.fit(width)
            outer = section.natural_width(width) if isinstance(section, StatusChip) else width
            self._places.append((section, QRect(left, y, outer, height)))
            y += height
        return max(y, self._top + self._look.px(23))

    def _stack(self) -> list[Section | MessageBody]:
        before, *after = [self._sections.get(kind) for kind in _REPLY_SECTIONS]
        body = self._body if self._row.message.content else None
        return [section for section in (before, body, *after) if section is not None]

    def _show_content(self) -> None:
        message = self._row.message
        if self._row.is_user:
            self._body.set_elements(parse_user(message.content))
            return
        self._stream.set_text(message.content)
        self._body.set_elements(self._stream.elements, is_live=self._row.is_live)
        self._body.setVisible(bool(message.content) and self._editor is None)

    def _show_marker(self) -> None:
        if not ContextMarker.is_needed(self._row):
            if self._marker is not None:
                self._marker.hide()
                self._marker.deleteLater()
                self._marker = None
            return
        if self._marker is None:
            self._marker = ContextMarker(self._look, self)
            self._marker.show()
        self._marker.set_row(self._row)

    def _show_editor(self) -> None:
        text = self._row.edit_text
        if text is not None and self._editor is None:
            self._editor = self._new_editor(text)
            self._editor.show()
        elif text is None and self._editor is not None:
            self._editor.hide()
            self._editor.deleteLater()
            self._editor = None
        is_reading = self._editor is None
        (self._bubble or self._body).setVisible(is_reading)
        for section in self._sections.values():
            section.setVisible(is_reading)

    def _show_section(self, kind: type[Section]) -> None:
        section = self._sections.get(kind)
        if not kind.is_needed(self._row):
            if section is not None:
                section.hide()
                section.deleteLater()
                del self._sections[kind]
            return
        if section is None:
            section = self._sections[kind] = self._new_section(kind)
            section.setVisible(self._editor is None)
        section.set_row(self._row)

    def _new_section(self, kind: type[Section]) -> Section:
        if kind is ReplyFooter:
            footer = ReplyFooter(self._look, self, is_right=self._row.is_user)
            footer.version_requested.connect(
                lambda version: self.version_requested.emit(self.message_id, version)
            )
            return footer
        section = kind(self._look, self)
        if isinstance(section, ReasoningSection):
            section.toggled.connect(lambda on: self.reasoning_toggled.emit(self.message_id, on))
        elif isinstance(section, QuestionCard):
            section.answered.connect(self._answer)
        elif isinstance(section, StatusChip):
            section.continue_requested.connect(
                lambda: self.continue_requested.emit(self.message_id)
            )
            section.retry_requested.connect(lambda: self.retry_requested.emit(self.message_id))
        return section

    def _answer(self, answer: str, is_always: bool) -> None:
        self.question_answered.emit(self.message_id, answer, is_always)

    def _new_editor(self, text: str) -> MessageEditor:
        editor = MessageEditor(self._look, text, self, is_user=self._row.is_user)
        editor.saved.connect(lambda text: self.edit_saved.emit(self.message_id, text))
        editor.cancelled.connect(lambda: self.edit_cancelled.emit(self.message_id))
        editor.text_changed.connect(self._keep_edit)
        editor.height_changed.connect(self._tell_height)
        return editor

    def _keep_edit(self, text: str) -> None:
        if self._row.edit_text is not None:
            self._row.edit_text = text

    def _tell_height(self) -> None:
        self._fitted = None
        self.height_changed.emit(self.message_id)

    def enterEvent(self, event: QEnterEvent) -> None:
        """Tell that the mouse came in."""
        self.hovered.emit(self.message_id)
        super().enterEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        """Ask for the menu of this message."""
        self.menu_requested.emit(self.message_id, event.globalPos())
        event.setAccepted(True)
