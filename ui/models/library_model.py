"""The model files of the library folders as Qt sees them, and how a row is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from PySide6.QtCore import (
    QAbstractListModel,
    QModelIndex,
    QPersistentModelIndex,
    QRect,
    QRectF,
    QSize,
    Qt,
)
from PySide6.QtGui import QFontMetrics, QPainter, QPen
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from ui.formats import count_text, size_text
from ui.icons import pixmap
from ui.theme import Theme, body_font, number_font, zoomed

if TYPE_CHECKING:
    from app.model_library import ModelEntry

Index = QModelIndex | QPersistentModelIndex
NO_PARENT = QModelIndex()
ROW = 56
PADDING = 16


class EntryRole(IntEnum):
    """What a row offers beyond its name."""

    ENTRY = Qt.ItemDataRole.UserRole + 1
    DETAIL = Qt.ItemDataRole.UserRole + 2
    IS_LOADED = Qt.ItemDataRole.UserRole + 3


class LibraryModel(QAbstractListModel):
    """Rows in the library's order."""

    def __init__(self) -> None:
        super().__init__()
        self._entries: list[ModelEntry] = []
        self._loaded = ""

    def set_entries(self, entries: Sequence[ModelEntry], *, loaded: str) -> None:
        """Show these files; loaded is the path of the model in use, "" for none."""
        self.beginResetModel()
        self._entries = list(entries)
        self._loaded = loaded
        self.endResetModel()

    def rowCount(self, parent: Index = NO_PARENT) -> int:
        return 0 if parent.isValid() else len(self._entries)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> object:
        if not index.isValid() or index.row() >= len(self._entries):
            return None
        entry = self._entries[index.row()]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return entry.name
            case Qt.ItemDataRole.ToolTipRole:
                return entry.path
            case EntryRole.ENTRY:
                return entry
            case EntryRole.DETAIL | Qt.ItemDataRole.AccessibleDescriptionRole:
                return self._detail(entry)
            case EntryRole.IS_LOADED:
                return entry.path == self._loaded
        return None

    def _detail(self, entry: ModelEntry) -> str:
        if entry.error:
            return entry.error
        parts = [size_text(entry.size_bytes), entry.quantisation, entry.architecture]
        if entry.context_length:
            parts.append(self.tr("context {0}").format(count_text(entry.context_length)))
        return " · ".join(filter(None, parts))


class EntryDelegate(QStyledItemDelegate):
    """Name above, numbers below; the model in use carries a check."""

    def __init__(self, theme: Theme, zoom: float, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._zoom = zoom
        self._name_font = body_font(zoom, pixels=14)
        self._detail_font = number_font(zoom, pixels=12)

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(200, zoomed(ROW, self._zoom))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        entry: ModelEntry = index.data(EntryRole.ENTRY)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_ground(painter, option)
        inner = option.rect.adjusted(PADDING, 0, -PADDING, 0)
        if index.data(EntryRole.IS_LOADED):
            mark = pixmap("check", self._theme.accent, 18)
            painter.drawPixmap(inner.right() - 18, inner.center().y() - 9, mark)
            inner.adjust(0, 0, -28, 0)
        half = inner.height() // 2
        upper = QRect(inner.left(), inner.top() + 7, inner.width(), half - 6)
        lower = QRect(inner.left(), inner.top() + half + 1, inner.width(), half - 8)
        self._draw_line(painter, upper, str(index.data()), "muted" if entry.error else "text")
        painter.setFont(self._detail_font)
        self._draw_line(
            painter, lower, index.data(EntryRole.DETAIL), "danger" if entry.error else "muted"
        )
        painter.restore()

    def _draw_ground(self, painter: QPainter, option: QStyleOptionViewItem) -> None:
        is_selected = bool(option.state & QStyle.StateFlag.State_Selected)
        ground = QRectF(option.rect).adjusted(0.75, 1, -0.75, -1)
        if is_selected or option.state & QStyle.StateFlag.State_MouseOver:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.color("selected" if is_selected else "hover"))
            painter.drawRoundedRect(ground, 6, 6)
        if is_selected and option.state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(QPen(self._theme.color("focus"), 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(ground, 6, 6)
        painter.setFont(self._name_font)

    def _draw_line(self, painter: QPainter, box: QRect, text: str, role: str) -> None:
        painter.setPen(self._theme.color(role))
        metrics = QFontMetrics(painter.font())
        line = metrics.elidedText(text, Qt.TextElideMode.ElideRight, box.width())
        painter.drawText(box, Qt.AlignmentFlag.AlignVCenter, line)
