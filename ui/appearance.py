"""Theme, text size and language of the whole application, and the wish to change them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from ui.theme import Theme, body_font, load_theme, palette, stylesheet, system_theme
from ui.translation import Language

if TYPE_CHECKING:
    from app.settings_file import SettingsStore

ZOOM_STEP = 0.1
ZOOM_RANGE = (0.7, 2.0)
UI_PX = 14


class Appearance(QObject):
    """Applies what the settings say; emits after everything is in place."""

    theme_changed = Signal()
    language_changed = Signal()

    def __init__(self, settings: SettingsStore, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._settings = settings
        self._language = Language()
        self.zoom = settings.value.zoom
        self.theme = self._resolve()
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._system_changed)
        self._language.switch(settings.value.language)
        self._apply()

    def set_theme(self, preference: str) -> None:
        """Choose "system", "light" or "dark"."""
        self._settings.update(theme=preference)
        self._refresh()

    def set_language(self, preference: str) -> None:
        """Choose "system" or one of LANGUAGES."""
        self._settings.update(language=preference)
        self._language.switch(preference)
        self.language_changed.emit()

    def zoom_by(self, steps: int) -> None:
        """Make everything larger or smaller; 0 steps returns to the original size."""
        wanted = self.zoom + steps * ZOOM_STEP if steps else 1.0
        self.zoom = round(min(max(wanted, ZOOM_RANGE[0]), ZOOM_RANGE[1]), 2)
        self._settings.update(zoom=self.zoom)
        self._refresh()

    def close(self) -> None:
        """Take the translators out of the application again."""
        QGuiApplication.styleHints().colorSchemeChanged.disconnect(self._system_changed)
        self._language.remove()

    @Slot()
    def _system_changed(self) -> None:
        if self._settings.value.theme == "system":
            self._refresh()

    def _refresh(self) -> None:
        self.theme = self._resolve()
        self._apply()
        self.theme_changed.emit()

    def _resolve(self) -> Theme:
        preference = self._settings.value.theme
        return load_theme(system_theme() if preference == "system" else preference)

    def _apply(self) -> None:
        put_on(self.theme, self.zoom)


def put_on(theme: Theme, zoom: float = 1.0) -> None:
    """Give the whole application a theme and a text size."""
    application = QApplication.instance()
    assert isinstance(application, QApplication)
    application.setPalette(palette(theme))
    application.setFont(body_font(zoom, pixels=UI_PX))
    application.setStyleSheet(stylesheet(theme, zoom))
