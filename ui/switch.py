"""A switch: a check box that looks like what it does."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QWidget

from ui.theme import Theme

WIDTH, HEIGHT = 36, 20


class Switch(QAbstractButton):
    """Checkable; screen readers meet a button with a checked state."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setCheckable(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setFixedSize(self.sizeHint())

    def apply_theme(self, theme: Theme) -> None:
        """Take over colours."""
        self._theme = theme
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(WIDTH + 4, HEIGHT + 4)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setOpacity(1.0 if self.isEnabled() else 0.45)
        track = QRectF(2, 2, WIDTH, HEIGHT)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.color("accent" if self.isChecked() else "unread"))
        painter.drawRoundedRect(track, HEIGHT / 2, HEIGHT / 2)
        x = track.right() - HEIGHT + 3 if self.isChecked() else track.left() + 3
        painter.setBrush(self._theme.color("accent_text" if self.isChecked() else "raised"))
        painter.drawEllipse(QRectF(x, track.top() + 3, HEIGHT - 6, HEIGHT - 6))
        if self.hasFocus():
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(self._theme.color("focus"), 1.5))
            painter.drawRoundedRect(track.adjusted(-1, -1, 1, 1), HEIGHT / 2 + 1, HEIGHT / 2 + 1)
