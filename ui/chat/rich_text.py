"""A run of paragraphs as one read-only text widget: selectable, spoken by screen readers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

from PySide6.QtCore import QMimeData, QRectF, QUrl
from PySide6.QtGui import (
    QDesktopServices,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QTextBlock,
    QTextCharFormat,
    QTextCursor,
    QWheelEvent,
)
from PySide6.QtWidgets import QTextBrowser, QTextEdit, QWidget

from ui.chat.elements import Paragraph, Rule
from ui.chat.look import QUOTE_PROPERTY, QUOTE_PX, RULE_PROPERTY, Look
from ui.chat.spans import openable
from ui.chat.text_area import leave_to_parent, prepare_text

LINE_BREAK = "\u2028"

TextElement = Paragraph | Rule


class RichText(QTextBrowser):
    """Shows paragraphs and rules, one text block each; only what changed is written again."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        prepare_text(self)
        # NOTE: wrapping at the widget's width would wait for the widget to be shown.
        self.setLineWrapMode(QTextEdit.LineWrapMode.FixedPixelWidth)
        self.setOpenLinks(False)
        self.anchorClicked.connect(open_link)
        self._look = look
        self._elements: list[TextElement] = []
        self._has_marks = False

    def set_elements(self, elements: Sequence[TextElement]) -> None:
        """Show these elements, keeping the blocks that they share with those before."""
        keep = sum(1 for _ in takewhile(_are_equal, zip(elements, self._elements, strict=False)))
        if keep == len(elements) == len(self._elements):
            return
        if not self._grow_last(elements, keep):
            self._write_from(elements, keep)
        self._elements = list(elements)
        self._has_marks = any(isinstance(e, Rule) or e.quote for e in elements)

    def fit(self, width: int) -> int:
        """Lay the text out in this width and return its height."""
        self._wrap_at(width)
        return round(self.document().size().height() + 0.49)

    def ideal_width(self, width: int) -> int:
        """Return how much of this width the text needs."""
        self._wrap_at(width)
        return min(width, int(self.document().idealWidth()) + 1)

    def _wrap_at(self, width: int) -> None:
        if self.lineWrapColumnOrWidth() != width:
            self.setLineWrapColumnOrWidth(width)

    def loadResource(self, kind: int, name: QUrl | str) -> None:
        """Load nothing: a message must not reach for files or servers."""

    def _grow_last(self, elements: Sequence[TextElement], keep: int) -> bool:
        """Append to the last block when only its last span grew; a selection in it survives."""
        if not keep == len(elements) - 1 == len(self._elements) - 1:
            return False
        added = _added_text(self._elements[keep], elements[keep])
        if not added:
            return False
        last = elements[keep]
        assert isinstance(last, Paragraph)
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        style = self._look.char_format(last.spans[-1], last.level, is_quoted=last.quote > 0)
        cursor.insertText(added.replace("\n", LINE_BREAK), style)
        return True

    def _write_from(self, elements: Sequence[TextElement], keep: int) -> None:
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        if keep < len(self._elements):
            self._cut(cursor, keep)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        for index in range(keep, len(elements)):
            previous = elements[index - 1] if index else None
            self._write(cursor, elements[index], previous)
        cursor.endEditBlock()

    def _cut(self, cursor: QTextCursor, keep: int) -> None:
        # The separator before the block goes too; writing brings its own.
        cursor.setPosition(max(0, self.document().findBlockByNumber(keep).position() - 1))
        cursor.movePosition(QTextCursor.MoveOperation.End, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        if keep:
            # NOTE: an empty block that is joined with a removed one takes that one's format.
            before = self._elements[keep - 2] if keep > 1 else None
            cursor.setBlockFormat(self._look.block_format(self._elements[keep - 1], before))

    def _write(
        self, cursor: QTextCursor, element: TextElement, previous: TextElement | None
    ) -> None:
        block_format = self._look.block_format(element, previous)
        if previous is None:
            cursor.setBlockFormat(block_format)
        else:
            cursor.insertBlock(block_format, QTextCharFormat())
        if isinstance(element, Paragraph):
            write_spans(cursor, element, self._look)

    def createMimeDataFromSelection(self) -> QMimeData:
        """Copy words with the bullets and breaks that plain text has."""
        result = super().createMimeDataFromSelection()
        result.setText(self.textCursor().selection().toPlainText().replace("\t", " "))
        return result

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the text, then the bars of quotations and the rules."""
        super().paintEvent(event)
        if self._has_marks:
            painter = QPainter(self.viewport())
            block = self.document().begin()
            while block.isValid():
                self._paint_marks(painter, block)
                block = block.next()
            painter.end()

    def _paint_marks(self, painter: QPainter, block: QTextBlock) -> None:
        style = block.blockFormat()
        top, bottom = _edges(block)
        color = self._look.color("hairline")
        if style.boolProperty(RULE_PROPERTY):
            left = style.leftMargin()
            painter.fillRect(QRectF(left, (top + bottom) / 2, self.width() - left, 1), color)
        depth = style.intProperty(QUOTE_PROPERTY)
        previous = block.previous()
        if depth and previous.isValid() and previous.blockFormat().intProperty(QUOTE_PROPERTY):
            top = _edges(previous)[1]
        step = self._look.px(QUOTE_PX)
        for level in range(depth):
            bar = style.leftMargin() - step * (depth - level)
            painter.fillRect(QRectF(bar, top, 3, bottom - top), color)

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Leave scrolling to the conversation."""
        event.ignore()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Leave paging to the conversation."""
        if not leave_to_parent(event):
            super().keyPressEvent(event)


def write_spans(cursor: QTextCursor, paragraph: Paragraph, look: Look) -> None:
    """Insert the words of a paragraph at the cursor, its list marker first."""
    is_quoted = paragraph.quote > 0
    if paragraph.marker:
        style = look.marker_format()
        cursor.insertText(f"{paragraph.marker}\t", style)
    for span in paragraph.spans:
        style = look.char_format(span, paragraph.level, is_quoted=is_quoted)
        cursor.insertText(span.text.replace("\n", LINE_BREAK), style)


def open_link(url: QUrl) -> None:
    """Open a web address in the browser, and nothing else."""
    if openable(url.toString()):
        QDesktopServices.openUrl(url)


def _edges(block: QTextBlock) -> tuple[float, float]:
    # NOTE: blockBoundingRect() leaves out the room that a minimum line height adds.
    layout = block.layout()
    last = layout.lineAt(layout.lineCount() - 1)
    top = layout.position().y()
    return top, top + last.y() + last.height()


def _are_equal(pair: tuple[TextElement, TextElement]) -> bool:
    return pair[0] is pair[1] or pair[0] == pair[1]


def _added_text(old: TextElement, new: TextElement) -> str:
    """Return what new has at the end of its last span, when they are equal up to there."""
    if isinstance(old, Rule) or isinstance(new, Rule) or not old.spans or not new.spans:
        return ""
    if _shape(old) != _shape(new) or old.spans[:-1] != new.spans[:-1]:
        return ""
    was, is_now = old.spans[-1], new.spans[-1]
    if (was.style, was.href) != (is_now.style, is_now.href):
        return ""
    return is_now.text[len(was.text) :] if is_now.text.startswith(was.text) else ""


def _shape(paragraph: Paragraph) -> tuple[int, int, str, int, bool]:
    return (
        paragraph.level,
        paragraph.indent,
        paragraph.marker,
        paragraph.quote,
        paragraph.is_tight,
    )
