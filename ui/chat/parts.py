"""Small painted pieces that the chat shares: rounded fields, quiet buttons, one-line labels."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QLabel, QToolButton, QWidget

from ui.chat.look import Look
from ui.icons import icon


class RoundedField(QWidget):
    """A field with round corners, filled and outlined by theme roles."""

    def __init__(
        self,
        look: Look,
        parent: QWidget | None = None,
        *,
        fill: str = "code_bg",
        outline: str = "",
        radius: float = 10,
    ) -> None:
        super().__init__(parent)
        self._look, self._fill, self._outline, self._radius = look, fill, outline, radius

    def set_colors(self, look: Look, *, fill: str, outline: str = "") -> None:
        """Change the roles that it is painted with."""
        self._look, self._fill, self._outline = look, fill, outline
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Paint the field."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        has_outline = bool(self._outline)
        pen = QPen(self._look.color(self._outline)) if has_outline else Qt.PenStyle.NoPen
        painter.setPen(pen)
        painter.setBrush(self._look.color(self._fill))
        inset = 0.5 if has_outline else 0
        area = QRectF(self.rect()).adjusted(inset, inset, -inset, -inset)
        painter.drawRoundedRect(area, self._radius, self._radius)
        painter.end()


def icon_button(
    look: Look, name: str, label: str, on_click: Callable[[], None], *, parent: QWidget
) -> QToolButton:
    """Return a quiet 28-px button with an icon and an accessible name."""
    button = QToolButton(parent)
    button.setIcon(icon(name, look.theme.muted))
    button.setIconSize(QSize(look.px(16), look.px(16)))
    button.setFixedSize(look.px(28), look.px(28))
    button.setToolTip(label)
    button.setAccessibleName(label)
    button.setCursor(Qt.CursorShape.PointingHandCursor)
    button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
    button.clicked.connect(lambda: on_click())
    return button


def quiet_label(look: Look, text: str = "", *, role: str = "muted", parent: QWidget) -> QLabel:
    """Return a small line of words in a colour role, with digits of equal width."""
    label = QLabel(text, parent)
    label.setFont(look.small())
    label.setStyleSheet(f"color: {look.roles[role]}; font-size: {look.px(13)}px;")
    label.setTextFormat(Qt.TextFormat.PlainText)
    return label
