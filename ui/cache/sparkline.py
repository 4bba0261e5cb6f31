"""The last minutes of one number as a thin line."""

from __future__ import annotations

from collections import deque

from PySide6.QtCore import QPointF, QSize
from PySide6.QtGui import QColor, QLinearGradient, QPainter, QPainterPath, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from ui.theme import Theme

NUM_VALUES = 120
HEIGHT = 40


class Sparkline(QWidget):
    """Newest value at the right; the scale starts at zero."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._values: deque[float] = deque(maxlen=NUM_VALUES)
        self._theme = theme
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def apply_theme(self, theme: Theme) -> None:
        """Take over colours."""
        self._theme = theme
        self.update()

    def add(self, value: float) -> None:
        """Append a value."""
        self._values.append(value)
        self.update()

    def num_values(self) -> int:
        """Return how many values there are; a line needs two."""
        return len(self._values)

    def sizeHint(self) -> QSize:
        return QSize(160, HEIGHT)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        floor = self.height() - 0.5
        painter.setPen(QPen(self._theme.color("hairline"), 1))
        painter.drawLine(QPointF(0, floor), QPointF(self.width(), floor))
        points = self._points()
        if len(points) > 1:
            self._draw_line(painter, points)

    def _points(self) -> list[QPointF]:
        top = max(self._values, default=0.0) or 1.0
        step = self.width() / (NUM_VALUES - 1)
        start = self.width() - step * (len(self._values) - 1)
        room = self.height() - 6
        return [
            QPointF(start + step * i, 4 + room * (1 - value / top))
            for i, value in enumerate(self._values)
        ]

    def _draw_line(self, painter: QPainter, points: list[QPointF]) -> None:
        line = QPainterPath(points[0])
        for point in points[1:]:
            line.lineTo(point)
        area = QPainterPath(line)
        area.lineTo(points[-1].x(), self.height())
        area.lineTo(points[0].x(), self.height())
        shade = QLinearGradient(0, 0, 0, self.height())
        shade.setColorAt(0, _with_alpha(self._theme.color("hot"), 0.22))
        shade.setColorAt(1, _with_alpha(self._theme.color("hot"), 0.02))
        painter.fillPath(area, shade)
        painter.strokePath(line, QPen(self._theme.color("hot"), 1.5))


def _with_alpha(color: QColor, alpha: float) -> QColor:
    color.setAlphaF(alpha)
    return color
