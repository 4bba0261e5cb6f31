"""A short message at the foot of the window, with at most one action."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEasingCurve, QEvent, QObject, QPoint, QPropertyAnimation, QTimer
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QStyle, QWidget

SHOW_MS = 8000
SLIDE_MS = 160
FOOT = 136
SIDE = 24
SLIDE = 16


class Toast(QFrame):
    """Slides in over its parent; a newer text replaces the one on screen."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("toast")
        self._room = parent
        self._action: Callable[[], object] | None = None
        self._label = QLabel()
        self._button = QPushButton()
        self._button.setProperty("kind", "toast")
        self._button.clicked.connect(self._act)
        self._layout = layout = QHBoxLayout(self)
        layout.setContentsMargins(16, 8, 8, 8)
        layout.setSpacing(12)
        layout.addWidget(self._label)
        layout.addWidget(self._button)
        self._timer = QTimer(self, interval=SHOW_MS, singleShot=True)
        self._timer.timeout.connect(self.hide)
        self._slide = QPropertyAnimation(self, b"pos", self)
        self._slide.setDuration(SLIDE_MS)
        self._slide.setEasingCurve(QEasingCurve.Type.OutCubic)
        parent.installEventFilter(self)
        self.hide()

    def show_text(
        self, text: str, action_text: str = "", action: Callable[[], object] | None = None
    ) -> None:
        """Show a text; the action stays offered while it is on screen."""
        self._action = action
        self._label.setText(text)
        self._label.setWordWrap(len(text) > 70)
        self._button.setText(action_text)
        self._button.setVisible(action is not None)
        self.setAccessibleName(text)
        self._place()
        self.show()
        self.raise_()
        self._animate()
        self._timer.start()

    def text(self) -> str:
        """Return the text shown last."""
        return self._label.text()

    def act(self) -> None:
        """Do what the button offers."""
        self._act()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self._place()
        return super().eventFilter(watched, event)

    def _place(self) -> None:
        self.setMaximumWidth(min(560, self._room.width() - 2 * SIDE))
        self._layout.activate()
        self.adjustSize()
        self.move(self._rest())

    def _rest(self) -> QPoint:
        room = self._room.rect()
        return QPoint((room.width() - self.width()) // 2, room.height() - self.height() - FOOT)

    def _animate(self) -> None:
        hint = QStyle.StyleHint.SH_Widget_Animation_Duration
        if self.style().styleHint(hint, None, self) == 0:
            return
        self._slide.stop()
        self._slide.setStartValue(self._rest() + QPoint(0, SLIDE))
        self._slide.setEndValue(self._rest())
        self._slide.start()

    def _act(self) -> None:
        action, self._action = self._action, None
        self.hide()
        if action is not None:
            action()
