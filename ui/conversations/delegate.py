"""Draws one conversation: title, age or found text, ready badge, unread dot, group heading."""

from __future__ import annotations

from PySide6.QtCore import (
    QEvent,
    QModelIndex,
    QObject,
    QPersistentModelIndex,
    QRect,
    QRectF,
    QSize,
    Qt,
)
from PySide6.QtGui import QFont, QFontMetrics, QKeyEvent, QPainter, QPen
from PySide6.QtWidgets import (
    QLineEdit,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QWidget,
)

from app.conversation import Conversation, Readiness
from ui.conversations.badge import draw_chip, text_role
from ui.conversations.model import ItemRole
from ui.formats import ago_text, seconds_text
from ui.theme import Theme, body_font, number_font, zoomed

Index = QModelIndex | QPersistentModelIndex
ROW = 56
HEADING = 32
MARGIN = 8
PADDING = 12
FOUND, END = "\u2068", "\u2069"
_MIDDLE = Qt.AlignmentFlag.AlignVCenter


class ConversationDelegate(QStyledItemDelegate):
    """Rows of equal height, in the theme's colours and the window's zoom."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.apply_theme(theme, 1.0)

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        self._theme = theme
        self._zoom = zoom
        self._title_font = body_font(zoom, pixels=14)
        self._bold_font = QFont(self._title_font)
        self._bold_font.setWeight(QFont.Weight.DemiBold)
        self._small_font = number_font(zoom, pixels=12)
        self._heading_font = QFont(self._small_font)
        self._heading_font.setWeight(QFont.Weight.DemiBold)

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        heading = zoomed(HEADING, self._zoom) if index.data(ItemRole.GROUP) else 0
        return QSize(120, zoomed(ROW, self._zoom) + heading)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row: Conversation = index.data(ItemRole.CONVERSATION)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        box = self._draw_heading(painter, option.rect, index.data(ItemRole.GROUP))
        self._draw_ground(painter, box, option.state)
        inner = box.adjusted(MARGIN + PADDING, 0, -MARGIN - PADDING, 0)
        self._draw_title(painter, self.title_box(inner), str(index.data()), row)
        rest = self._draw_badge(painter, self._second_line(inner), index.data(ItemRole.READINESS))
        snippet = index.data(ItemRole.SNIPPET)
        self._draw_detail(painter, rest, snippet or ago_text(row.updated_at))
        painter.restore()

    def createEditor(self, parent: QWidget, option: QStyleOptionViewItem, index: Index) -> QWidget:
        editor = QLineEdit(parent)
        editor.setFrame(False)
        editor.setAccessibleName(self.tr("Title of the conversation"))
        return editor

    def updateEditorGeometry(
        self, editor: QWidget, option: QStyleOptionViewItem, index: Index
    ) -> None:
        height = zoomed(ROW, self._zoom)
        box = option.rect.adjusted(MARGIN, option.rect.height() - height, -MARGIN, 0)
        editor.setGeometry(box.adjusted(4, (height - 32) // 2, -4, -(height - 32) // 2))

    def eventFilter(self, editor: QObject, event: QEvent) -> bool:
        # Esc in the editor must not reach the window, where it stops a reply.
        if isinstance(event, QKeyEvent) and event.key() == Qt.Key.Key_Escape:
            event.accept()
        return super().eventFilter(editor, event)

    def title_box(self, inner: QRect) -> QRect:
        """Return the upper line of a row."""
        half = inner.height() // 2
        return QRect(inner.left(), inner.top() + zoomed(7, self._zoom), inner.width(), half - 5)

    def _second_line(self, inner: QRect) -> QRect:
        half = inner.height() // 2
        return QRect(inner.left(), inner.top() + half + 1, inner.width(), half - 8)

    def _draw_heading(self, painter: QPainter, box: QRect, heading: str) -> QRect:
        if not heading:
            return box
        height = zoomed(HEADING, self._zoom)
        painter.setFont(self._heading_font)
        painter.setPen(self._theme.color("muted"))
        line = QRect(box.left() + MARGIN + PADDING, box.top(), box.width(), height - 4)
        painter.drawText(line, Qt.AlignmentFlag.AlignBottom, heading)
        return box.adjusted(0, height, 0, 0)

    def _draw_ground(self, painter: QPainter, box: QRect, state: QStyle.StateFlag) -> None:
        ground = QRectF(box).adjusted(MARGIN, 1, -MARGIN, -1)
        is_selected = bool(state & QStyle.StateFlag.State_Selected)
        if is_selected or state & QStyle.StateFlag.State_MouseOver:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.color("selected" if is_selected else "hover"))
            painter.drawRoundedRect(ground, 6, 6)
        if is_selected and state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(QPen(self._theme.color("focus"), 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(ground.adjusted(0.75, 0.75, -0.75, -0.75), 6, 6)

    def _draw_title(self, painter: QPainter, box: QRect, title: str, row: Conversation) -> None:
        if row.is_unread:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.color("accent"))
            painter.drawEllipse(QRectF(box.left() - 11, box.center().y() - 2.5, 6, 6))
        font = self._bold_font if row.is_unread else self._title_font
        painter.setFont(font)
        painter.setPen(self._theme.color("text" if row.title else "muted"))
        line = QFontMetrics(font).elidedText(title, Qt.TextElideMode.ElideRight, box.width())
        painter.drawText(box, Qt.AlignmentFlag.AlignVCenter, line)

    def _draw_badge(self, painter: QPainter, box: QRect, readiness: Readiness | None) -> QRect:
        if readiness is None:
            return box
        words = seconds_text(readiness.seconds)
        width = QFontMetrics(self._small_font).horizontalAdvance(words)
        painter.setFont(self._small_font)
        painter.setPen(self._theme.color(text_role(readiness)))
        painter.drawText(box, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, words)
        side = zoomed(9, self._zoom)
        chip = QRectF(box.right() - width - side - 5, box.center().y() - side / 2 + 1, side, side)
        draw_chip(painter, chip, readiness.tier, self._theme)
        return box.adjusted(0, 0, -width - side - 16, 0)

    def _draw_detail(self, painter: QPainter, box: QRect, detail: str) -> None:
        painter.setFont(self._small_font)
        painter.setPen(self._theme.color("muted"))
        metrics = QFontMetrics(self._small_font)
        if FOUND not in detail:
            line = metrics.elidedText(detail, Qt.TextElideMode.ElideRight, box.width())
            painter.drawText(box, Qt.AlignmentFlag.AlignVCenter, line)
            return
        self._draw_snippet(painter, box, detail.replace("\n", " "))

    def _draw_snippet(self, painter: QPainter, box: QRect, snippet: str) -> None:
        before, _, rest = snippet.partition(FOUND)
        found, _, after = rest.partition(END)
        after = after.replace(FOUND, "").replace(END, "")
        x = box.left()
        for words, role in ((before[-16:], "muted"), (found, "accent"), (after, "muted")):
            painter.setPen(self._theme.color(role))
            room = max(0, box.right() - x)
            metrics = QFontMetrics(self._small_font)
            line = metrics.elidedText(words, Qt.TextElideMode.ElideRight, room)
            painter.drawText(QRect(x, box.top(), room, box.height()), _MIDDLE, line)
            x += metrics.horizontalAdvance(line)
