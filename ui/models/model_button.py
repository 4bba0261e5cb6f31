"""The button that names the loaded model, and shows a load under way."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QAbstractButton, QSizePolicy, QWidget

from app.events import ModelInfo, ModelLoading
from ui.formats import percent_text
from ui.icons import pixmap
from ui.theme import Theme, body_font, number_font, zoomed

HEIGHT = 32
PADDING = 10
GAP = 8
CHEVRON = 16
MAX_NAME = 320


class ModelButton(QAbstractButton):
    """Name, quantisation, chevron; a thin line below grows while a model loads."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._name = ""
        self._detail = ""
        self._fraction: float | None = None
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAttribute(Qt.WidgetAttribute.WA_Hover)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.apply_theme(theme, 1.0)
        self.show_model(None)

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        self._theme = theme
        self._zoom = zoom
        self._name_font = body_font(zoom, pixels=14)
        self._name_font.setWeight(QFont.Weight.DemiBold)
        self._detail_font = number_font(zoom, pixels=12)
        self.updateGeometry()
        self.update()

    def show_model(self, info: ModelInfo | None) -> None:
        """Name a loaded model, or ask for one."""
        if info is None:
            self._show(self.tr("Choose a model"), "", None)
        else:
            self._show(info.name, info.quantisation, None)

    def show_loading(self, event: ModelLoading, name: str) -> None:
        """Show how far a load is."""
        words = self.tr("Loading {0}").format(name)
        if event.stage == "measuring":
            words = self.tr("Checking the memory precision")
        self._show(words, percent_text(event.fraction), event.fraction)

    def sizeHint(self) -> QSize:
        name = min(MAX_NAME, QFontMetrics(self._name_font).horizontalAdvance(self._name) + 2)
        detail = QFontMetrics(self._detail_font).horizontalAdvance(self._detail)
        gap = GAP if detail else 0
        width = PADDING + name + gap + detail + GAP + CHEVRON + PADDING - 2
        return QSize(width, zoomed(HEIGHT, self._zoom))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._draw_ground(painter)
        middle = Qt.AlignmentFlag.AlignVCenter
        box = self.rect().adjusted(PADDING, 0, -PADDING - CHEVRON - GAP + 2, 0)
        detail = QFontMetrics(self._detail_font).horizontalAdvance(self._detail)
        metrics = QFontMetrics(self._name_font)
        room = box.width() - detail - (GAP if detail else 0)
        name = metrics.elidedText(self._name, Qt.TextElideMode.ElideMiddle, room)
        painter.setFont(self._name_font)
        painter.setPen(self._theme.color("text"))
        painter.drawText(box, middle, name)
        painter.setFont(self._detail_font)
        painter.setPen(self._theme.color("muted"))
        painter.drawText(
            box.adjusted(0, 1, 0, 1), middle | Qt.AlignmentFlag.AlignRight, self._detail
        )
        chevron = pixmap("chevron-down", self._theme.muted, CHEVRON)
        left = self.width() - PADDING - CHEVRON + 2
        painter.drawPixmap(left, (self.height() - CHEVRON) // 2 + 1, chevron)

    def _draw_ground(self, painter: QPainter) -> None:
        ground = QRectF(self.rect()).adjusted(0.75, 0.75, -0.75, -0.75)
        if self.underMouse() or self.isDown():
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self._theme.color("hover"))
            painter.drawRoundedRect(ground, 6, 6)
        if self._fraction is not None:
            self._draw_progress(painter, ground)
        if self.hasFocus():
            painter.setPen(QPen(self._theme.color("focus"), 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(ground, 6, 6)

    def _draw_progress(self, painter: QPainter, ground: QRectF) -> None:
        bar = QRectF(PADDING, ground.bottom() - 2.5, ground.width() - 2 * PADDING, 2.5)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._theme.color("pressed"))
        painter.drawRoundedRect(bar, 1.25, 1.25)
        bar.setWidth(max(2.5, bar.width() * (self._fraction or 0.0)))
        painter.setBrush(self._theme.color("accent"))
        painter.drawRoundedRect(bar, 1.25, 1.25)

    def _show(self, name: str, detail: str, fraction: float | None) -> None:
        self._name, self._detail, self._fraction = name, detail, fraction
        self.setText(name)
        self.setAccessibleName(" ".join(filter(None, (self.tr("Model:"), name, detail))))
        self.updateGeometry()
        self.update()
