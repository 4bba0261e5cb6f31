"""Texts of the window in the user's language, read from the Linguist files themselves.

Reading ``resources/i18n/*.ts`` keeps one file as the source and the product, so that a fresh
checkout speaks Chinese without a compile step. English needs a file only for plural forms.
"""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QLibraryInfo, QLocale, QTranslator

from ui.message_catalog import compile_messages, read_ts
from ui.theme import RESOURCES

LANGUAGES = {"en": "English", "zh_CN": "简体中文"}
I18N = RESOURCES / "i18n"


def resolve_language(preference: str) -> str:
    """Return a language of ours: the one asked for, or the one nearest to the system's."""
    if preference in LANGUAGES:
        return preference
    return "zh_CN" if QLocale.system().language() == QLocale.Language.Chinese else "en"


class CatalogTranslator(QTranslator):
    """A translator over bytes, which it keeps: Qt does not copy them."""

    def __init__(self, language: str) -> None:
        super().__init__()
        messages = read_ts(I18N / f"reprise_{language}.ts")
        self._catalog = compile_messages(messages, language)
        self.load(self._catalog, str(I18N))


class Language:
    """The translators installed at the moment; switching replaces them."""

    def __init__(self) -> None:
        self.current = ""
        self._installed: list[QTranslator] = []

    def switch(self, preference: str) -> str:
        """Install a language and make its numbers and dates the default; return its code."""
        self.remove()
        self.current = resolve_language(preference)
        self._install(CatalogTranslator(self.current))
        qt_texts = QTranslator()
        folder = QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)
        if self.current != "en" and qt_texts.load(f"qtbase_{self.current}", folder):
            self._install(qt_texts)
        QLocale.setDefault(QLocale(self.current))
        return self.current

    def remove(self) -> None:
        """Take our translators out again."""
        for translator in self._installed:
            QCoreApplication.removeTranslator(translator)
        self._installed.clear()

    def _install(self, translator: QTranslator) -> None:
        QCoreApplication.installTranslator(translator)
        self._installed.append(translator)
