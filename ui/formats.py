"""Numbers as people read them: sizes, durations, ages, counts. Translated, no widgets."""

from __future__ import annotations

from datetime import UTC, datetime

from PySide6.QtCore import QCoreApplication, QDateTime, QLocale

_KIB = 1024.0
_DAY_S = 86_400


def size_text(num_bytes: float) -> str:
    """Return bytes with a unit, e.g. "412 MB" or "1.7 GB"."""
    value, unit = float(num_bytes), "B"
    for bigger in ("KB", "MB", "GB", "TB"):
        if value < _KIB:
            break
        value, unit = value / _KIB, bigger
    decimals = 1 if unit in ("GB", "TB") or (value < 10 and unit != "B") else 0
    return f"{QLocale().toString(value, 'f', decimals)} {unit}"


def count_text(number: int) -> str:
    """Return a whole number with its thousands set apart."""
    return QLocale().toString(number)


def percent_text(share: float) -> str:
    """Return a share of one as a whole percentage."""
    return f"{round(share * 100)} %"


def seconds_text(seconds: float) -> str:
    """Return a wait: "instant", "0.1 s", "38 s", "3 min"."""
    if seconds < 0.05:
        return QCoreApplication.translate("formats", "instant")
    if seconds < 9.95:
        return f"{QLocale().toString(seconds, 'f', 1)} s"
    if seconds < 90:
        return f"{round(seconds)} s"
    if seconds < 5400:
        return QCoreApplication.translate("formats", "{0} min").format(round(seconds / 60))
    return QCoreApplication.translate("formats", "{0} h").format(round(seconds / 3600))


def ago_text(moment: datetime, now: datetime | None = None) -> str:
    """Return how long ago something was: minutes, hours, then a weekday or a date."""
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    age_s = ((now or datetime.now(UTC)) - moment).total_seconds()
    if age_s < 60:
        return QCoreApplication.translate("formats", "just now")
    if age_s < 3600:
        return QCoreApplication.translate("formats", "{0} min ago").format(int(age_s // 60))
    if age_s < _DAY_S:
        return QCoreApplication.translate("formats", "{0} h ago").format(int(age_s // 3600))
    if age_s < 2 * _DAY_S:
        return QCoreApplication.translate("formats", "yesterday")
    return _date_text(moment, age_s)


def speed_text(tokens_per_second: float | None) -> str:
    """Return a generation speed with its unit."""
    if tokens_per_second is None:
        return "–"
    number = QLocale().toString(tokens_per_second, "f", 1)
    return QCoreApplication.translate("formats", "{0} tokens/s").format(number)


def _date_text(moment: datetime, age_s: float) -> str:
    local = QDateTime.fromSecsSinceEpoch(int(moment.timestamp()))
    if age_s < 7 * _DAY_S:
        return QLocale().toString(local, "dddd")
    return QLocale().toString(local.date(), QLocale.FormatType.ShortFormat)
