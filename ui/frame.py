"""The window before there is anything in it: on screen first, filled a moment later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPointF, QRectF, Qt, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui.theme import Theme
from ui.window_state import WindowState

if TYPE_CHECKING:
    from ui.main_window import MainWindow

DEFAULT_SIZE = (1280, 800)
COLUMNS = (272, 700, 320)
_TOP, _MARGIN, _CONTROL = 48, 12, 32
_COMPOSER = (760, 92)


class Frame(QWidget):
    """The top-level window. Its columns are painted until the real ones take their place."""

    painted = Signal()

    def __init__(self, theme: Theme, state: WindowState) -> None:
        super().__init__()
        self._theme = theme
        self._columns = state.columns() or COLUMNS
        self._content: MainWindow | None = None
        self._is_painted = False
        self._layout = QVBoxLayout(self)
        self._layout.setContentsMargins(0, 0, 0, 0)
        self.setWindowTitle("Reprise")
        self.setMinimumSize(640, 480)
        self.resize(*DEFAULT_SIZE)
        state.restore_geometry(self)

    def fill(self, content: MainWindow) -> None:
        """Show what the window holds; from now on it is the content that is closed."""
        self._content = content
        content.windowTitleChanged.connect(self.setWindowTitle)
        self.setWindowTitle(content.windowTitle())
        self._layout.addWidget(content)
        content.show()
        content.pane.focus_composer()

    def closeEvent(self, event: QCloseEvent) -> None:
        if self._content is not None:
            self._content.close()
        super().closeEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self._theme.color("page"))
        if self._content is None:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            self._draw_columns(painter)
        painter.end()
        if not self._is_painted:
            self._is_painted = True
            QTimer.singleShot(0, self.painted.emit)

    def _draw_columns(self, painter: QPainter) -> None:
        left, _, right = self._columns
        edge, height = self.width() - right, self.height()
        for area in (QRectF(0, 0, left, height), QRectF(edge, 0, right, height)):
            painter.fillRect(area, self._theme.color("side"))
        painter.setPen(QPen(self._theme.color("hairline"), 1))
        for x in (left + 0.5, edge - 0.5):
            painter.drawLine(QPointF(x, 0), QPointF(x, height))
        painter.drawLine(QPointF(left + 1, _TOP + 0.5), QPointF(edge - 1, _TOP + 0.5))
        self._draw_controls(painter, left)
        self._draw_composer(painter, QRectF(left, 0, edge - left, height))

    def _draw_controls(self, painter: QPainter, left: int) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.color("control"))
        width = left - 2 * _MARGIN
        if width > 0:
            painter.drawRoundedRect(QRectF(_MARGIN, 8, width, _CONTROL), 6, 6)

    def _draw_composer(self, painter: QPainter, centre: QRectF) -> None:
        width = min(_COMPOSER[0], centre.width() - 104)
        field = QRectF(0, 0, width, _COMPOSER[1])
        field.moveCenter(QPointF(centre.center().x(), 0))
        field.moveBottom(centre.bottom() - 16)
        painter.setPen(QPen(self._theme.color("hairline"), 1))
        painter.setBrush(self._theme.color("raised"))
        painter.drawRoundedRect(field.adjusted(0.5, 0.5, -0.5, -0.5), 14, 14)
