"""Line icons from resources/icons (Lucide), recoloured by theme role."""

from __future__ import annotations

from functools import lru_cache

from PySide6.QtCore import QByteArray, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QGuiApplication, QIcon, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from ui.theme import RESOURCES

_SIZES = (16, 18, 24)
_STROKE = "1.75"


def icon(name: str, color: str, *, disabled: str | None = None) -> QIcon:
    """Return resources/icons/<name>.svg in a colour, "#rrggbb" or anything QColor knows."""
    return _icon(name, color, disabled, _pixel_ratio())


def pixmap(name: str, color: str, size: int) -> QPixmap:
    """Return an icon as a pixmap of size x size device-independent pixels."""
    return _render(name, color, size, _pixel_ratio())


@lru_cache(maxsize=512)
def _icon(name: str, color: str, disabled: str | None, ratio: float) -> QIcon:
    result = QIcon()
    for size in _SIZES:
        shape = _render(name, color, size, ratio)
        off = _render(name, disabled, size, ratio) if disabled else _faded(shape)
        result.addPixmap(shape)
        result.addPixmap(off, QIcon.Mode.Disabled)
    return result


def _render(name: str, color: str, size: int, ratio: float) -> QPixmap:
    shape = QColor(color)
    source = (RESOURCES / "icons" / f"{name}.svg").read_text("utf-8")
    source = source.replace("currentColor", shape.name())
    source = source.replace('stroke-width="2"', f'stroke-width="{_STROKE}"')
    result = QPixmap(QSize(size, size) * ratio)
    result.setDevicePixelRatio(ratio)
    result.fill(Qt.GlobalColor.transparent)
    painter = QPainter(result)
    painter.setOpacity(shape.alphaF())
    QSvgRenderer(QByteArray(source.encode())).render(painter, QRectF(0, 0, size, size))
    painter.end()
    return result


def _faded(shape: QPixmap) -> QPixmap:
    result = QPixmap(shape.size())
    result.setDevicePixelRatio(shape.devicePixelRatio())
    result.fill(Qt.GlobalColor.transparent)
    painter = QPainter(result)
    painter.setOpacity(0.45)
    painter.drawPixmap(0, 0, shape)
    painter.end()
    return result


def _pixel_ratio() -> float:
    # The largest ratio of any screen: scaling down keeps lines sharp, scaling up does not.
    return max((screen.devicePixelRatio() for screen in QGuiApplication.screens()), default=1.0)
