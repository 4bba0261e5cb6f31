"""Where a message is written: field, attached files, context meter, Send and Stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QEvent, QSize, Qt, QTimer, Signal
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QFocusEvent, QResizeEvent
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QToolButton, QVBoxLayout, QWidget

from ui.chat.attachments import (
    AttachmentError,
    AttachmentRow,
    read_attachment,
    with_attachments,
)
from ui.chat.context_meter import ContextMeter
from ui.chat.look import COLUMN_PX, LINE_PX, Look
from ui.chat.message_widget import GUTTER_PX
from ui.chat.parts import RoundedField, icon_button, quiet_label
from ui.chat.plain_editor import PlainEditor
from ui.icons import icon

DRAFT_DELAY_MS = 400
MAX_SHARE = 0.4
_ROUND_PX = 32
_NOTE_MS = 6000


class Composer(QWidget):
    """A rounded field at the foot of the conversation."""

    send_requested = Signal(str)
    stop_requested = Signal()
    draft_changed = Signal(str)
    edit_last_requested = Signal()

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._look = look
        self._model_name = ""
        self._is_busy = False
        self._max_height = 400
        self._draft = ""
        self._field = RoundedField(look, self, fill="raised", outline="hairline", radius=14)
        self._text = PlainEditor(look, self._field)
        self._files = AttachmentRow(look, self._field)
        self._meter = ContextMeter(look, self._field)
        self._note = quiet_label(look, role="muted", parent=self._field)
        self._attach = icon_button(look, "paperclip", "", self._choose_files, parent=self._field)
        self._stop = self._round_button(self.stop_requested.emit)
        self._send = self._round_button(self.submit)
        self._draft_timer = QTimer(self, singleShot=True, interval=DRAFT_DELAY_MS)
        self._draft_timer.timeout.connect(self.flush_draft)
        self._note_timer = QTimer(self, singleShot=True, interval=_NOTE_MS)
        self._note_timer.timeout.connect(self._refresh)
        self._arrange()
        self._connect()
        self.setAcceptDrops(True)
        self.setFocusProxy(self._text)
        self.set_look(look)

    @property
    def editor(self) -> PlainEditor:
        """The field itself."""
        return self._text

    @property
    def meter(self) -> ContextMeter:
        """The context meter."""
        return self._meter

    @property
    def send_button(self) -> QToolButton:
        """The button that sends."""
        return self._send

    @property
    def stop_button(self) -> QToolButton:
        """The button that stops the reply."""
        return self._stop

    @property
    def can_send(self) -> bool:
        """Tell whether Send would do something now."""
        has_words = bool(self._text.text().strip()) or bool(self._files.attachments)
        return bool(self._model_name) and has_words

    @property
    def note(self) -> str:
        """The quiet words beside the buttons."""
        return self._note.text()

    def set_draft(self, text: str) -> None:
        """Show the draft of a conversation; nothing is reported back."""
        self._draft_timer.stop()
        self._draft = text
        self._text.set_text(text)
        self._files.clear()

    def set_model_name(self, name: str) -> None:
        """Say who is written to; "" when no model is loaded."""
        self._model_name = name
        self._refresh()

    def set_busy(self, *, is_busy: bool) -> None:
        """Say whether a reply is being written or waits."""
        self._is_busy = is_busy
        self._refresh()

    def set_sends_on_enter(self, *, is_on: bool) -> None:
        """Choose between Enter and Ctrl+Enter."""
        self._text.sends_on_enter = is_on
        self._refresh()

    def set_room(self, height: int) -> None:
        """Say how high the conversation and this field are together."""
        self._max_height = int(height * MAX_SHARE)
        self._grow()

    def set_look(self, look: Look) -> None:
        """Change theme or zoom."""
        self._look = look
        self._text.set_look(look)
        self._files.set_look(look)
        self._meter.set_look(look)
        self._note.setStyleSheet(f"color: {look.theme.muted}; font-size: {look.px(12)}px;")
        self._attach.setIcon(icon("paperclip", look.theme.muted))
        for button in (self._send, self._stop):
            button.setFixedSize(look.px(_ROUND_PX), look.px(_ROUND_PX))
            button.setIconSize(QSize(look.px(16), look.px(16)))
        self._show_focus(is_focused=self._text.hasFocus())
        self._refresh()
        self._grow()

    def retranslate(self) -> None:
        """Take over the language."""
        self._refresh()

    def attach(self, paths: list[str]) -> None:
        """Read files and show them as chips; say why one cannot go along."""
        for path in paths:
            try:
                self._files.add(read_attachment(Path(path)))
            except AttachmentError as error:
                self._say(str(error))

    def submit(self) -> None:
        """Send what was written, if it can be sent."""
        if not self.can_send:
            self._say(self._reason())
            return
        text = with_attachments(self._text.text().strip(), self._files.attachments)
        self.set_draft("")
        # Before the draft is gone, the message is stored; what cannot be sent is written here anew.
        self.send_requested.emit(text)
        if not self._text.text():
            self.draft_changed.emit("")

    def flush_draft(self) -> None:
        """Report the draft now if it changed."""
        self._draft_timer.stop()
        if self._text.text() != self._draft:
            self._draft = self._text.text()
            self.draft_changed.emit(self._draft)

    def _connect(self) -> None:
        self._text.submitted.connect(self.submit)
        self._text.up_in_empty.connect(self.edit_last_requested)
        self._text.files_dropped.connect(self.attach)
        self._text.textChanged.connect(self._on_text)
        self._text.height_changed.connect(self._grow)
        self._text.cancelled.connect(self._on_escape)
        self._text.installEventFilter(self)
        self._files.changed.connect(self._on_files)

    def _arrange(self) -> None:
        foot = QHBoxLayout()
        foot.setContentsMargins(0, 0, 0, 0)
        foot.setSpacing(8)
        foot.addWidget(self._attach)
        foot.addWidget(self._note)
        foot.addStretch(1)
        for widget in (self._meter, self._stop, self._send):
            foot.addWidget(widget)
        inner = QVBoxLayout(self._field)
        inner.setContentsMargins(16, 14, 10, 10)
        inner.setSpacing(8)
        inner.addWidget(self._files)
        inner.addWidget(self._text)
        inner.addLayout(foot)
        self._outer = QHBoxLayout(self)
        self._outer.setContentsMargins(0, 0, 0, 16)
        self._outer.addWidget(self._field)

    def _round_button(self, on_click: Callable[[], None]) -> QToolButton:
        button = QToolButton(self._field)
        button.setCursor(Qt.CursorShape.PointingHandCursor)
        button.clicked.connect(lambda: on_click())
        return button

    def _on_text(self) -> None:
        self._draft_timer.start()
        self._refresh()

    def _on_files(self) -> None:
        self._refresh()
        self._grow()

    def _on_escape(self) -> None:
        if self._is_busy:
            self.stop_requested.emit()

    def _choose_files(self) -> None:
        paths, _ = QFileDialog.getOpenFileNames(self, self.tr("Attach text files"))
        self.attach(paths)

    def _grow(self) -> None:
        wanted = self._text.wanted_height()
        limit = max(self._look.px(LINE_PX * 3), self._max_height - self._look.px(90))
        self._text.setFixedHeight(min(wanted, limit))
        is_cut = wanted > limit
        policy = Qt.ScrollBarPolicy
        self._text.setVerticalScrollBarPolicy(
            policy.ScrollBarAsNeeded if is_cut else policy.ScrollBarAlwaysOff
        )

    def _say(self, words: str) -> None:
        self._note.setText(words)
        self._note.setVisible(bool(words))
        self._note_timer.start()

    def _reason(self) -> str:
        return "" if self._model_name else self.tr("Choose a model to send this")

    def _refresh(self) -> None:
        self._text.setPlaceholderText(self._placeholder())
        self._text.setAccessibleName(self.tr("Message"))
        self._attach.setToolTip(self.tr("Attach text files"))
        self._attach.setAccessibleName(self.tr("Attach text files"))
        has_words = self.can_send
        self._stop.setVisible(self._is_busy)
        self._send.setVisible(not self._is_busy or has_words)
        self._send.setEnabled(has_words)
        self._paint_button(self._send, "arrow-up", self._send_words(), is_strong=has_words)
        self._paint_button(self._stop, "stop-solid", self.tr("Stop (Esc)"), is_strong=not has_words)
        if not self._note_timer.isActive():
            self._note.setText(self._hint())
            self._note.setVisible(bool(self._note.text()))

    def _placeholder(self) -> str:
        if not self._model_name:
            return self.tr("Write now, choose a model to send")
        return self.tr("Message {0}").format(self._model_name)

    def _send_words(self) -> str:
        if not self._model_name:
            return self._reason()
        if self._is_busy:
            return self.tr("Send after this reply")
        key = self.tr("Enter") if self._text.sends_on_enter else self.tr("Ctrl+Enter")
        return self.tr("Send ({0})").format(key)

    def _hint(self) -> str:
        if self._is_busy and self.can_send:
            return self.tr("Will be queued after this reply")
        return self._reason() if self._text.text().strip() else ""

    def _paint_button(self, button: QToolButton, name: str, words: str, *, is_strong: bool) -> None:
        theme, radius = self._look.theme, self._look.px(_ROUND_PX) // 2
        fill = theme.accent if is_strong else theme.control
        ink = theme.accent_text if is_strong else theme.muted
        button.setIcon(icon(name, ink))
        button.setToolTip(words)
        button.setAccessibleName(words)
        button.setStyleSheet(
            f"QToolButton {{ background: {fill}; border-radius: {radius}px; padding: 0;"
            " border: 1px solid transparent; }"
            f"QToolButton:focus {{ border: 2px solid {theme.text}; }}"
        )

    def _show_focus(self, *, is_focused: bool) -> None:
        outline = "focus" if is_focused else "hairline"
        self._field.set_colors(self._look, fill="raised", outline=outline)

    def eventFilter(self, watched: object, event: QEvent) -> bool:
        """Draw the focus ring around the whole field."""
        if isinstance(event, QFocusEvent):
            self._show_focus(is_focused=event.gotFocus())
        return False

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        """Accept files."""
        if event.mimeData().hasUrls():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """Attach files."""
        self._text.insertFromMimeData(event.mimeData())
        event.acceptProposedAction()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Stay as wide as the column of messages."""
        gutter = self._look.px(GUTTER_PX)
        room = event.size().width() - 2 * gutter
        side = max(gutter, (event.size().width() - min(self._look.px(COLUMN_PX), room)) // 2)
        self._outer.setContentsMargins(side, 0, side, 16)
        super().resizeEvent(event)
        self._grow()
