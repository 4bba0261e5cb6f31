"""The way back to the end of the conversation, shown while one reads further up."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QObject, QSize, Qt
from PySide6.QtWidgets import QAbstractScrollArea, QPushButton

from ui.chat.look import Look
from ui.icons import icon

_BOTTOM_PX = 16


class JumpButton(QPushButton):
    """A pill that floats above the lower edge of a scroll area."""

    def __init__(self, look: Look, area: QAbstractScrollArea) -> None:
        super().__init__(area)
        self._area = area
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.set_look(look)
        self.hide()
        area.viewport().installEventFilter(self)

    def set_look(self, look: Look) -> None:
        """Change colours and size."""
        theme, height = look.theme, look.px(32)
        self.setText(self.tr("Jump to latest"))
        self.setIcon(icon("arrow-down", theme.text))
        self.setIconSize(QSize(look.px(16), look.px(16)))
        self.setStyleSheet(
            f"QPushButton {{ background: {theme.raised}; color: {theme.text};"
            f" border: 1px solid {theme.hairline}; border-radius: {height // 2}px;"
            f" min-height: {height - 2}px; padding: 0 14px 0 10px; font-size: {look.px(13)}px; }}"
            f"QPushButton:hover {{ background: {theme.hover}; }}"
            f"QPushButton:focus {{ border: 1px solid {theme.focus}; }}"
        )
        self._place()

    def set_shown(self, *, is_shown: bool) -> None:
        """Appear or go."""
        if is_shown and self.isHidden():
            self._place()
            self.show()
            self.raise_()
        elif not is_shown:
            self.hide()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Stay in the middle of the lower edge."""
        if event.type() == QEvent.Type.Resize:
            self._place()
        return False

    def _place(self) -> None:
        self.adjustSize()
        area = self._area.viewport().geometry()
        x = area.center().x() - self.width() // 2
        self.move(x, area.bottom() - self.height() - _BOTTOM_PX)
