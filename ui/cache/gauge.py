"""One tier as a bar: how much is in use, of how much it may take."""

from __future__ import annotations

from PySide6.QtCore import QEasingCurve, QRectF, QSize, Qt, QVariantAnimation
from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QStyle, QWidget

from engine.memory.interface import TierUse
from ui.formats import size_text
from ui.theme import Theme, body_font, number_font, zoomed

MOVE_MS = 180
BAR = 6
HEIGHT = 36


class TierGauge(QWidget):
    """Name at the left, bytes at the right, a bar in the tier's colour below."""

    def __init__(self, tier: str, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._tier = tier
        self._name = tier
        self._use: TierUse | None = None
        self._shown_share = 0.0
        self._move = QVariantAnimation(self, duration=MOVE_MS)
        self._move.setEasingCurve(QEasingCurve.Type.OutCubic)
        self._move.valueChanged.connect(self._show_share)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.apply_theme(theme, 1.0)

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        self._theme = theme
        self._zoom = zoom
        self._name_font = body_font(zoom, pixels=13)
        self._number_font = number_font(zoom, pixels=13)
        self.updateGeometry()
        self.update()

    def set_name(self, name: str, sentence: str) -> None:
        """Say what the tier is called and what it is."""
        self._name = name
        self.setToolTip(sentence)
        self._describe()
        self.update()

    def set_use(self, use: TierUse | None) -> None:
        """Show a measurement; the bar moves there unless motion is off."""
        self._use = use
        self._describe()
        share = min(1.0, use.used_bytes / use.budget_bytes) if use and use.budget_bytes else 0.0
        hint = QStyle.StyleHint.SH_Widget_Animation_Duration
        self._move.stop()
        if not self.isVisible() or self.style().styleHint(hint, None, self) == 0:
            self._show_share(share)
            return
        self._move.setStartValue(self._shown_share)
        self._move.setEndValue(share)
        self._move.start()

    def words(self) -> str:
        """Return the measurement in words."""
        if self._use is None:
            return "–"
        if self._use.budget_bytes == 0:
            return self.tr("off")
        used, budget = size_text(self._use.used_bytes), size_text(self._use.budget_bytes)
        return self.tr("{0} of {1}").format(used, budget)

    def sizeHint(self) -> QSize:
        return QSize(160, zoomed(HEIGHT, self._zoom))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        line = self.rect().adjusted(0, 0, 0, -BAR - 6)
        painter.setFont(self._name_font)
        painter.setPen(self._theme.color("text"))
        painter.drawText(line, Qt.AlignmentFlag.AlignVCenter, self._name)
        painter.setFont(self._number_font)
        painter.setPen(self._theme.color("muted"))
        right = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(line, right, self.words())
        self._draw_bar(painter, QRectF(0, self.height() - BAR - 2, self.width(), BAR))

    def _draw_bar(self, painter: QPainter, bar: QRectF) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.color("pressed"))
        painter.drawRoundedRect(bar, BAR / 2, BAR / 2)
        if self._shown_share > 0:
            bar.setWidth(max(BAR, bar.width() * self._shown_share))
            painter.setBrush(self._theme.color(self._tier))
            painter.drawRoundedRect(bar, BAR / 2, BAR / 2)

    def _show_share(self, share: float) -> None:
        self._shown_share = share
        self.update()

    def _describe(self) -> None:
        self.setAccessibleName(f"{self._name}: {self.words()}")
