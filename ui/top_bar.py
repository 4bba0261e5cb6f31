"""The bar above the chat: the model, and the way to everything else."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QHBoxLayout, QMenu, QToolButton, QWidget

from app.events import ModelInfo, ModelLoading
from ui.icons import icon
from ui.models.model_button import ModelButton
from ui.theme import Theme, zoomed

HEIGHT, BUTTON, ICON = 48, 32, 18


class TopBar(QWidget):
    """Toggles at the edges, the model at the left, the menu at the right."""

    cancel_requested = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._info: ModelInfo | None = None
        self.left = _flat_button()
        self.model = ModelButton(theme)
        self.cancel = _flat_button()
        self.menu = _flat_button()
        self.menu.setShortcut(QKeySequence(Qt.Key.Key_F10))
        self.menu.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.right = _flat_button()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(8, 8, 8, 8)
        layout.setSpacing(4)
        for widget in (self.left, self.model, self.cancel):
            layout.addWidget(widget)
        layout.addStretch()
        for widget in (self.menu, self.right):
            layout.addWidget(widget)
        self.cancel.clicked.connect(self.cancel_requested)
        self.cancel.hide()
        self.retranslate()
        self.apply_theme(theme, 1.0)

    def set_menu(self, menu: QMenu) -> None:
        """Offer a menu under the menu button."""
        self.menu.setMenu(menu)

    def show_model(self, info: ModelInfo | None) -> None:
        """Name the loaded model."""
        self._info = info
        self.model.show_model(info)
        self.cancel.hide()

    def show_loading(self, event: ModelLoading, name: str) -> None:
        """Show how far a load is, with a way to cancel it."""
        self.model.show_loading(event, name)
        self.cancel.show()

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        self.setFixedHeight(zoomed(HEIGHT, zoom))
        self.model.apply_theme(theme, zoom)
        for button in (self.left, self.cancel, self.menu, self.right):
            button.setIconSize(QSize(1, 1) * zoomed(ICON, zoom))
            button.setFixedSize(QSize(1, 1) * zoomed(BUTTON, zoom))
        self.left.setIcon(icon("panel-left", theme.muted))
        self.right.setIcon(icon("panel-right", theme.muted))
        self.cancel.setIcon(icon("x", theme.muted))
        self.menu.setIcon(icon("ellipsis", theme.muted))

    def retranslate(self) -> None:
        """Write every text in the language of the moment."""
        for button, text in (
            (self.left, self.tr("Show or hide conversations")),
            (self.right, self.tr("Show or hide the cache panel")),
            (self.cancel, self.tr("Cancel loading")),
            (self.menu, self.tr("Menu")),
        ):
            button.setToolTip(text)
            button.setAccessibleName(text)
        if self.cancel.isHidden():
            self.model.show_model(self._info)


def _flat_button() -> QToolButton:
    button = QToolButton()
    button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
    return button
