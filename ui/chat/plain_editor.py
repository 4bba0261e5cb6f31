"""The field one writes in: plain text, grows with it, and never sends a half-composed word."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QMimeData, Qt, QTimer, Signal
from PySide6.QtGui import QInputMethodEvent, QKeyEvent, QPalette, QTextBlockFormat, QTextCursor
from PySide6.QtWidgets import QFrame, QTextEdit, QWidget

from ui.chat.look import LINE_PX, Look, set_line_height

_ENTER = (Qt.Key.Key_Return, Qt.Key.Key_Enter)
_SEND_MODIFIERS = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.MetaModifier
_BREAK_MODIFIERS = Qt.KeyboardModifier.ShiftModifier | Qt.KeyboardModifier.AltModifier


class PlainEditor(QTextEdit):
    """A multi-line field; Enter or Ctrl+Enter submits, Shift+Enter breaks the line."""

    submitted = Signal()
    cancelled = Signal()
    up_in_empty = Signal()
    files_dropped = Signal(list)
    height_changed = Signal()

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.sends_on_enter = True
        self._preedit = ""
        self._has_just_composed = False
        self.setAcceptRichText(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(0)
        self.viewport().setAutoFillBackground(False)
        self.set_look(look)
        self.document().documentLayout().documentSizeChanged.connect(
            lambda _: self.height_changed.emit()
        )

    @property
    def is_composing(self) -> bool:
        """Tell whether an input method holds text that is not part of the document yet."""
        return bool(self._preedit) or self._has_just_composed

    def set_look(self, look: Look) -> None:
        """Change font, colours and line height."""
        self._look = look
        self.setFont(look.body())
        self.document().setDefaultFont(look.body())
        self.setStyleSheet(f"font-size: {look.px(15)}px; background: transparent;")
        palette = self.palette()
        palette.setColor(QPalette.ColorRole.PlaceholderText, look.color("faint"))
        self.setPalette(palette)
        self._set_line_height()

    def text(self) -> str:
        """Return what was written."""
        return self.toPlainText()

    def set_text(self, text: str) -> None:
        """Replace the text and put the cursor at its end."""
        self.setPlainText(text)
        self._set_line_height()
        self.moveCursor(QTextCursor.MoveOperation.End)

    def wanted_height(self) -> int:
        """Return the height that shows all lines."""
        return max(self._look.px(LINE_PX), round(self.document().size().height() + 0.49))

    def insertFromMimeData(self, source: QMimeData) -> None:
        """Paste plain text; files become attachments."""
        paths = [url.toLocalFile() for url in source.urls() if url.isLocalFile()]
        if paths:
            self.files_dropped.emit(paths)
        else:
            super().insertFromMimeData(source)

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        """Accept files as well as text."""
        return source.hasUrls() or super().canInsertFromMimeData(source)

    def event(self, event: QEvent) -> bool:
        """Claim Esc before a shortcut of the window does."""
        is_override = event.type() == QEvent.Type.ShortcutOverride
        if is_override and isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            event.accept()
            return True
        return super().event(event)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        """Follow what the input method holds."""
        self._preedit = event.preeditString()
        if event.commitString():
            # Some input methods pass the Enter that committed the word on to us, right after it.
            self._has_just_composed = True
            QTimer.singleShot(0, self._forget_commit)
        super().inputMethodEvent(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Submit, cancel, or write."""
        if event.key() in _ENTER and self._takes_enter(event):
            return
        is_plain = event.modifiers() in (
            Qt.KeyboardModifier.NoModifier,
            Qt.KeyboardModifier.KeypadModifier,
        )
        if event.key() == Qt.Key.Key_Escape and not self.is_composing:
            self.cancelled.emit()
        elif event.key() == Qt.Key.Key_Up and is_plain and self._is_blank():
            self.up_in_empty.emit()
        elif event.key() in (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown) and self._fits():
            event.ignore()
        else:
            super().keyPressEvent(event)

    def _takes_enter(self, event: QKeyEvent) -> bool:
        if self.is_composing:
            event.accept()
            return True
        has_send_modifier = bool(event.modifiers() & _SEND_MODIFIERS)
        has_break_modifier = bool(event.modifiers() & _BREAK_MODIFIERS)
        if has_send_modifier or (self.sends_on_enter and not has_break_modifier):
            self.submitted.emit()
            return True
        self.textCursor().insertBlock()
        self.ensureCursorVisible()
        return True

    def _is_blank(self) -> bool:
        return self.document().isEmpty() and not self.is_composing

    def _fits(self) -> bool:
        return self.verticalScrollBar().maximum() == 0

    def _forget_commit(self) -> None:
        self._has_just_composed = False

    def _set_line_height(self) -> None:
        cursor = QTextCursor(self.document())
        cursor.select(QTextCursor.SelectionType.Document)
        line = QTextBlockFormat()
        set_line_height(line, self._look.px(LINE_PX))
        cursor.mergeBlockFormat(line)
