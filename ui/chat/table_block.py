"""A table as a text widget that scrolls sideways when it is wider than the column."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QBrush,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextFrameFormat,
    QTextLength,
    QTextTable,
    QTextTableCellFormat,
    QTextTableFormat,
    QWheelEvent,
)
from PySide6.QtWidgets import QTextBrowser, QWidget

from ui.chat.elements import Paragraph, Span, Style, Table
from ui.chat.look import Look, set_line_height
from ui.chat.rich_text import RichText, write_spans

_CELL_PADDING_PX = 7
_CELL_LINE_PX = 21
_ALIGNS = {"right": Qt.AlignmentFlag.AlignRight, "center": Qt.AlignmentFlag.AlignHCenter}


class TableBlock(RichText):
    """Shows one table: a bold header, hairlines between rows, no vertical lines."""

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(look, parent)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self._table: Table | None = None
        self._grid: QTextTable | None = None

    def set_table(self, table: Table) -> None:
        """Show a table; while it grows only the rows that changed are written."""
        if table == self._table:
            return
        old, self._table = self._table, table
        if self._grid is None or not _continues(table, old):
            self._grid = self._new_grid(table)
            old = None
        first = len(old.rows) - 1 if old else 0
        cursor = QTextCursor(self.document())
        cursor.beginEditBlock()
        if self._grid.rows() != len(table.rows):
            self._grid.resize(len(table.rows), len(table.aligns))
        for row in range(first, len(table.rows)):
            self._write_row(row, table, old)
        cursor.endEditBlock()

    def fit(self, width: int) -> int:
        """Lay the table out in this width and return its height."""
        height = super().fit(width)
        if self.document().size().width() > width:
            height += self.horizontalScrollBar().sizeHint().height()
        return height

    def _new_grid(self, table: Table) -> QTextTable:
        self.clear()
        cursor = QTextCursor(self.document())
        # NOTE: Qt keeps an empty line before and after a table; they are made to vanish.
        cursor.setBlockFormat(_no_line())
        style = QTextTableFormat()
        style.setCellPadding(self._look.px(_CELL_PADDING_PX))
        style.setCellSpacing(0)
        style.setBorder(0)
        style.setBorderCollapse(True)
        style.setHeaderRowCount(1)
        style.setWidth(QTextLength(QTextLength.Type.VariableLength, 0))
        grid = cursor.insertTable(len(table.rows), len(table.aligns), style)
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.setBlockFormat(_no_line())
        return grid

    def _write_row(self, row: int, table: Table, old: Table | None) -> None:
        is_known = old is not None and row < len(old.rows)
        for column in range(len(table.aligns)):
            spans = _cell(table, row, column)
            if old is None or not is_known or _cell(old, row, column) != spans:
                self._write_cell(row, column, spans, is_new=not is_known)

    def _write_cell(self, row: int, column: int, spans: tuple[Span, ...], *, is_new: bool) -> None:
        assert self._grid is not None
        assert self._table is not None
        cell = self._grid.cellAt(row, column)
        cursor = cell.firstCursorPosition()
        if is_new:
            cell.setFormat(self._cell_format(is_header=row == 0))
            cursor.setBlockFormat(self._line_format(self._table.aligns[column]))
        cursor.setPosition(cell.lastPosition(), QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        write_spans(cursor, Paragraph(_bold(spans) if row == 0 else spans), self._look)

    def _line_format(self, align: str) -> QTextBlockFormat:
        result = QTextBlockFormat()
        set_line_height(result, self._look.px(_CELL_LINE_PX))
        result.setAlignment(_ALIGNS.get(align, Qt.AlignmentFlag.AlignLeft))
        return result

    def _cell_format(self, *, is_header: bool) -> QTextTableCellFormat:
        result = QTextTableCellFormat()
        result.setBottomBorder(1)
        result.setBottomBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
        role = "faint" if is_header else "hairline"
        result.setBottomBorderBrush(QBrush(self._look.color(role)))
        result.setVerticalAlignment(QTextCharFormat.VerticalAlignment.AlignTop)
        return result

    def wheelEvent(self, event: QWheelEvent) -> None:
        """Scroll sideways here; up and down belongs to the conversation."""
        delta = event.angleDelta()
        if abs(delta.x()) > abs(delta.y()):
            QTextBrowser.wheelEvent(self, event)
        else:
            event.ignore()


def _continues(table: Table, old: Table | None) -> bool:
    if old is None or old.aligns != table.aligns or len(old.rows) > len(table.rows):
        return False
    return old.rows[:-1] == table.rows[: len(old.rows) - 1]


def _cell(table: Table, row: int, column: int) -> tuple[Span, ...]:
    cells = table.rows[row]
    return cells[column] if column < len(cells) else ()


def _no_line() -> QTextBlockFormat:
    result = QTextBlockFormat()
    result.setLineHeight(1, QTextBlockFormat.LineHeightTypes.FixedHeight.value)
    return result


def _bold(spans: tuple[Span, ...]) -> tuple[Span, ...]:
    return tuple(Span(span.text, span.style | Style.BOLD, span.href) for span in spans)
