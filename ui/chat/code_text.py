"""The text of a code block: coloured, selectable, growing at its end while a reply streams."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator

from PySide6.QtCore import QMimeData, Qt, QTimer
from PySide6.QtGui import (
    QBrush,
    QKeyEvent,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextLayout,
    QTextOption,
    QWheelEvent,
)
from PySide6.QtWidgets import QTextEdit, QWidget

from ui.chat.elements import Code
from ui.chat.highlight import PLAIN_ROLE, Run, color_runs, lexer_for
from ui.chat.look import CODE_LINE_PX, Look, set_line_height
from ui.chat.text_area import leave_to_parent, prepare_text

# Colouring gives the window back after this long and goes on when it is idle.
SLICE_MS = 6
MAX_COLOURED_CHARS = 200_000
_TAIL_LINES = 12


class CodeText(QTextEdit):
    """Read-only code that scrolls sideways and never wraps."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        prepare_text(self)
        self.setLineWrapMode(QTextEdit.LineWrapMode.NoWrap)
        self.setWordWrapMode(QTextOption.WrapMode.NoWrap)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self._look = look
        self._code = Code("")
        self._pass: Iterator[Run] = iter(())
        self._pending: dict[int, list[Run]] = defaultdict(list)
        self._timer = QTimer(self, singleShot=True, interval=0)
        self._timer.timeout.connect(self._color_slice)

    @property
    def code(self) -> str:
        """The code as it was written."""
        return self._code.text

    @property
    def is_settled(self) -> bool:
        """Tell whether no colouring is left for idle times."""
        return not self._timer.isActive()

    def set_code(self, code: Code, *, is_live: bool) -> None:
        """Show code; is_live while more of it is on its way."""
        old, self._code = self._code, code
        if old.text and code.text.startswith(old.text):
            self._append(code.text[len(old.text) :])
        elif code.text != old.text:
            self._replace(code.text)
            old = Code("")
        if not code.text:
            # The name of the language may still be growing.
            return
        if is_live and not code.is_closed and old.text and old.info == code.info:
            self._color_tail(old.text.count("\n"))
        elif (code, is_live) != (old, True) or not is_live:
            self._color_all()

    def fit(self, width: int) -> int:
        """Return the height that shows every line, and the scroll bar if one is needed."""
        size = self.document().size()
        height = round(size.height() + 0.49)
        if size.width() > width:
            height += self.horizontalScrollBar().sizeHint().height()
        return height

    def _replace(self, text: str) -> None:
        self.clear()
        cursor = QTextCursor(self.document())
        line = QTextBlockFormat()
        set_line_height(line, self._look.px(CODE_LINE_PX))
        cursor.setBlockFormat(line)
        cursor.insertText(text, self._plain())
        self.moveCursor(QTextCursor.MoveOperation.Start)

    def _append(self, text: str) -> None:
        if text:
            cursor = QTextCursor(self.document())
            cursor.movePosition(QTextCursor.MoveOperation.End)
            cursor.insertText(text, self._plain())

    def _plain(self) -> QTextCharFormat:
        result = QTextCharFormat()
        result.setFont(self._look.mono())
        result.setForeground(QBrush(self._look.color(PLAIN_ROLE)))
        return result

    def _color_all(self) -> None:
        lexer = lexer_for(self._code.info)
        if lexer is None or len(self._code.text) > MAX_COLOURED_CHARS:
            return
        self._pending.clear()
        self._pass = color_runs(self._code.text, lexer)
        self._color_slice()

    def _color_tail(self, first_changed: int) -> None:
        # The lines above give the lexer its bearings; the pass at the end puts right the rare
        # case that a string began even earlier.
        lexer = lexer_for(self._code.info)
        if lexer is None:
            return
        start = max(0, first_changed - _TAIL_LINES)
        tail = "\n".join(self._code.text.split("\n")[start:])
        runs: dict[int, list[Run]] = defaultdict(list)
        for run in color_runs(tail, lexer, first_line=start):
            runs[run.line].append(run)
        for line in range(first_changed, self.document().blockCount()):
            self._color_line(line, runs[line])

    def _color_slice(self) -> None:
        deadline = time.perf_counter() + SLICE_MS / 1000
        for run in self._pass:
            is_new_line = run.line not in self._pending
            if is_new_line:
                self._flush_pending()
            self._pending[run.line].append(run)
            if is_new_line and time.perf_counter() > deadline:
                self._timer.start()
                return
        self._flush_pending()

    def _flush_pending(self) -> None:
        for line, runs in self._pending.items():
            self._color_line(line, runs)
        self._pending.clear()

    def _color_line(self, line: int, runs: list[Run]) -> None:
        block = self.document().findBlockByNumber(line)
        if block.isValid():
            block.layout().setFormats([self._range(run) for run in runs])
            self.document().markContentsDirty(block.position(), block.length())

    def _range(self, run: Run) -> QTextLayout.FormatRange:
        result = QTextLayout.FormatRange()
        result.start, result.length = run.start, run.length
        color = QTextCharFormat()
        color.setForeground(QBrush(self._look.color(run.role)))
        if run.role == "code_comment":
            color.setFontItalic(True)
        result.format = color
        return result

    def createMimeDataFromSelection(self) -> QMimeData:
        """Copy code as plain text: colours would be pasted into editors."""
        result = QMimeData()
        result.setText(self.textCursor().selection().toPlainText())
        return result

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll sideways here; up and down belongs to the conversation."""
        delta = event.angleDelta()
        if abs(delta.x()) > abs(delta.y()):
            super().wheelEvent(event)
        else:
            event.ignore()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Leave paging to the conversation."""
        if not leave_to_parent(event):
            super().keyPressEvent(event)
