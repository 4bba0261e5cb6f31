"""The right column: what the memory holds now, and its settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QLabel, QScrollArea, QVBoxLayout, QWidget

from app.events import CacheChanged, ModelInfo
from ui.cache.now import NowSection
from ui.cache.settings_form import SettingsForm
from ui.theme import Theme

if TYPE_CHECKING:
    from app.services import Services


class CachePanel(QWidget):
    """Scrolls as one column; a hairline between sections, no frames."""

    reload_requested = Signal()

    def __init__(self, services: Services, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("surface", "side")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.now = NowSection(theme)
        self.form = SettingsForm(services, theme)
        self.form.reload_requested.connect(self.reload_requested)
        self._now_title = QLabel()
        self._form_title = QLabel()
        self._scroll = self._build()
        self.retranslate()

    def show_cache(self, event: CacheChanged) -> None:
        """Show the newest numbers."""
        self.now.show_cache(event)
        self.form.set_cache(event)

    def set_model(self, model: ModelInfo | None) -> None:
        """Show the settings for this model."""
        self.form.set_model(model)

    def focus_settings(self) -> None:
        """Bring the settings into view."""
        QTimer.singleShot(0, self._reveal_settings)

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        self.now.apply_theme(theme, zoom)
        self.form.apply_theme(theme, zoom)

    def retranslate(self) -> None:
        """Write every text in the language of the moment."""
        self._now_title.setText(self.tr("Memory now"))
        self._form_title.setText(self.tr("Settings"))
        self.setAccessibleName(self.tr("Cache panel"))
        self.now.retranslate()
        self.form.retranslate()

    def _build(self) -> QScrollArea:
        inside = QWidget()
        column = QVBoxLayout(inside)
        column.setContentsMargins(20, 16, 20, 24)
        column.setSpacing(12)
        for title, section in ((self._now_title, self.now), (self._form_title, self.form)):
            title.setProperty("role", "heading")
            column.addWidget(title)
            column.addWidget(section)
            if section is self.now:
                column.addSpacing(8)
                column.addWidget(hairline())
                column.addSpacing(8)
        column.addStretch()
        scroll = QScrollArea(widgetResizable=True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(inside)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll)
        return scroll

    def _reveal_settings(self) -> None:
        top = self._form_title.pos().y()
        self._scroll.verticalScrollBar().setValue(top - 16)
        self.form.focus_first()


def hairline() -> QFrame:
    """Return a line one pixel high."""
    line = QFrame()
    line.setProperty("hairline", True)
    return line
