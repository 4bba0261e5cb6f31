"""Numbers as a person reads them: grouped digits, seconds and minutes."""

from __future__ import annotations

from PySide6.QtCore import QCoreApplication, QLocale

translate = QCoreApplication.translate


def count(number: int) -> str:
    """Return a number with its thousands apart, in the language of the window."""
    locale = QLocale()
    if locale.language() == QLocale.Language.C:
        locale = QLocale(QLocale.Language.English)
    return locale.toString(number)


def duration(seconds: float) -> str:
    """Return a time span: "0.4 s", "12 s", "3 min"."""
    if seconds < 9.95:
        return translate("words", "{0} s").format(f"{seconds:.1f}")
    if seconds < 99.5:
        return translate("words", "{0} s").format(str(round(seconds)))
    return translate("words", "{0} min").format(str(round(seconds / 60)))


def rate(tokens_per_second: float) -> str:
    """Return a speed in tokens per second; one decimal below ten."""
    digits = 1 if tokens_per_second < 9.95 else 0
    return translate("words", "{0} tokens/s").format(f"{tokens_per_second:.{digits}f}")
