"""The ready badge: a chip in the tier's colour and the wait in words."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPainterPath, QPen

from app.conversation import Readiness, ReadyTier
from ui.theme import Theme

_FILL = {ReadyTier.HOT: "hot", ReadyTier.WARM: "warm", ReadyTier.COLD: "cold"}


def tier_fill(tier: ReadyTier) -> str:
    """Return the role a tier is filled with."""
    return _FILL.get(tier, "unread")


def text_role(readiness: Readiness) -> str:
    """Return the role the badge's words are written in."""
    return f"{tier_fill(readiness.tier)}_text"


def draw_chip(painter: QPainter, box: QRectF, tier: ReadyTier, theme: Theme) -> None:
    """Fill a small rounded square; hatched where everything would be read again."""
    color = theme.color(tier_fill(tier))
    if tier is ReadyTier.NONE:
        draw_hatching(painter, box, color, radius=2.5)
        return
    painter.setPen(Qt.PenStyle.NoPen)
    painter.setBrush(color)
    painter.drawRoundedRect(box, 2.5, 2.5)


def draw_hatching(painter: QPainter, box: QRectF, color: QColor, *, radius: float) -> None:
    """Draw diagonal lines inside a rounded outline."""
    painter.save()
    outline = QPainterPath()
    outline.addRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
    painter.setPen(QPen(color, 1))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.drawPath(outline)
    painter.setClipPath(outline)
    # Lines at 45 degrees that enter the box at its left edge or at its foot.
    y = box.top()
    while y < box.bottom() + box.width():
        painter.drawLine(QPointF(box.left(), y), QPointF(box.right(), y - box.width()))
        y += 3
    painter.restore()
