"""The right column: what the memory holds now, advice, settings, and what each chat costs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QPoint, Qt, QTimer, Signal, Slot
from PySide6.QtWidgets import QFrame, QLabel, QScrollArea, QVBoxLayout, QWidget

from app.events import CacheChanged, ModelInfo
from ui.cache.advice import AdviceSection
from ui.cache.history import HistorySection
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
        self.advice = AdviceSection(theme)
        self.advice.setting_requested.connect(self._reveal_setting)
        self.history = HistorySection(services, theme)
        self.form = SettingsForm(services, theme)
        self.form.reload_requested.connect(self.reload_requested)
        self._now_title = QLabel()
        self._advice_title = QLabel()
        self._form_title = QLabel()
        self._history_title = QLabel()
        self._scroll = self._build()
        self.retranslate()

    def show_cache(self, event: CacheChanged) -> None:
        """Show the newest numbers."""
        self.now.show_cache(event)
        self.form.set_cache(event)
        has_advice = self.advice.show_advice(event.advice, event.cold_error)
        self._advice_block.setVisible(has_advice)
        self.history.note_size(event.cold_used_bytes)

    def set_model(self, model: ModelInfo | None) -> None:
        """Show the settings for this model."""
        self.form.set_model(model)

    def focus_settings(self) -> None:
        """Bring the settings into view."""
        QTimer.singleShot(0, self._reveal_settings)

    def apply_theme(self, theme: Theme, zoom: float) -> None:
        """Take over colours and sizes."""
        for section in (self.now, self.advice, self.form, self.history):
            section.apply_theme(theme, zoom)

    def retranslate(self) -> None:
        """Write every text in the language of the moment."""
        self._now_title.setText(self.tr("Memory now"))
        self._advice_title.setText(self.tr("Advice"))
        self._form_title.setText(self.tr("Settings"))
        self._history_title.setText(self.tr("Kept on disk"))
        self.setAccessibleName(self.tr("Cache panel"))
        for section in (self.now, self.advice, self.form, self.history):
            section.retranslate()

    def _build(self) -> QScrollArea:
        self._inside = QWidget()
        column = QVBoxLayout(self._inside)
        column.setContentsMargins(20, 16, 20, 24)
        column.setSpacing(12)
        self._advice_block = _block(self._advice_title, self.advice)
        self._advice_block.hide()
        column.addWidget(_block(self._now_title, self.now, is_first=True))
        column.addWidget(self._advice_block)
        column.addWidget(_block(self._form_title, self.form))
        column.addWidget(_block(self._history_title, self.history))
        column.addStretch()
        scroll = QScrollArea(widgetResizable=True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(self._inside)
        outer = QVBoxLayout(self)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.addWidget(scroll)
        return scroll

    def _reveal_settings(self) -> None:
        self._scroll_to(self._form_title)
        self.form.focus_first()

    @Slot(str)
    def _reveal_setting(self, name: str) -> None:
        if row := self.form.reveal(name):
            # Rows that were just unfolded have their place only after the next turn.
            QTimer.singleShot(0, lambda: self._scroll_to(row))

    def _scroll_to(self, widget: QWidget) -> None:
        top = widget.mapTo(self._inside, QPoint(0, 0)).y()
        self._scroll.verticalScrollBar().setValue(top - 16)


def hairline() -> QFrame:
    """Return a line one pixel high."""
    line = QFrame()
    line.setProperty("hairline", True)
    return line


def _block(title: QLabel, section: QWidget, *, is_first: bool = False) -> QWidget:
    """Return a section under its title, and a hairline above both unless it is the first."""
    block = QWidget()
    column = QVBoxLayout(block)
    column.setContentsMargins(0, 0, 0, 0)
    column.setSpacing(12)
    if not is_first:
        column.addSpacing(8)
        column.addWidget(hairline())
        column.addSpacing(8)
    title.setProperty("role", "heading")
    column.addWidget(title)
    column.addWidget(section)
    return block
