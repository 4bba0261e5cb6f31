"""settings.toml: read leniently, written atomically. Unknown keys and comments survive."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit import TOMLDocument
from tomlkit.exceptions import TOMLKitError

from app.errors import SettingsError
from app.settings import SAMPLING_RULES, Settings, Text, check, rule_of
from engine.config import SamplingParams

_log = logging.getLogger(__name__)

SettingsListener = Callable[[Settings], None]


class SettingsStore:
    """The settings in force, and the file they come from. Usable from several threads.

    A value that does not fit falls back to its default with a warning in the log; the file keeps
    it until that setting is changed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._listeners: list[SettingsListener] = []
        self._document = TOMLDocument()
        self._stamp: tuple[int, int] | None = None
        self._current = self._read()

    @property
    def value(self) -> Settings:
        """The settings in force."""
        return self._current

    def update(self, **changes: Any) -> None:
        """Change the settings named, and save. Raises: as ``save``; TypeError for other names."""
        with self._lock:
            self.save(replace(self._current, **changes))

    def save(self, settings: Settings) -> None:
        """Check and write all settings, then tell the listeners.

        Raises: SettingsError when one is out of its range, or when the file cannot be written.
        """
        check(settings)
        with self._lock:
            _merge(self._document, self._current, settings)
            self._write()
            self._current = settings
        self._tell()

    def reload(self) -> bool:
        """Read the file again if it was changed outside; True when a setting differs."""
        with self._lock:
            if _stamp(self.path) == self._stamp:
                return False
            before, self._current = self._current, self._read()
        if self._current == before:
            return False
        self._tell()
        return True

    def subscribe(self, listener: SettingsListener) -> Callable[[], None]:
        """Call listener after every change; return a function that ends it."""
        self._listeners.append(listener)

        def unsubscribe() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return unsubscribe

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener(self._current)

    def _read(self) -> Settings:
        self._stamp = _stamp(self.path)
        self._document = _parse(self.path)
        return _settings(self._document.unwrap())

    def _write(self) -> None:
        temporary = self.path.with_name(f"{self.path.name}.new")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # The address of a shared store holds a password.
            temporary.touch(mode=0o600)
            with temporary.open("w", encoding="utf-8", newline="\n") as file:
                file.write(tomlkit.dumps(self._document))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self.path)
        except OSError as error:
            raise SettingsError("", f"The settings cannot be saved: {error.strerror}.") from error
        self._stamp = _stamp(self.path)


def _parse(path: Path) -> TOMLDocument:
    """Return the file's document; an unreadable file is set aside, not overwritten."""
    try:
        return tomlkit.parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return TOMLDocument()
    except (TOMLKitError, UnicodeDecodeError) as error:
        aside = path.with_name(f"{path.name}.damaged")
        _log.warning("%s is not valid TOML (%s); kept as %s", path, error, aside.name)
        with suppress(OSError):  # where it cannot be renamed it cannot be overwritten either
            path.replace(aside)
    except OSError as error:
        _log.warning("%s cannot be read: %s", path, error)
    return TOMLDocument()


def _settings(values: Mapping[str, Any]) -> Settings:
    accepted: dict[str, Any] = {}
    for item in fields(Settings):
        if item.name not in values:
            continue
        value = values[item.name]
        if item.name == "sampling":
            accepted[item.name] = _sampling(value)
        elif (fitting := _fitting(item.name, value, rule_of(item.name))) is not None:
            accepted[item.name] = fitting
    return replace(Settings(), **accepted)


def _sampling(values: Any) -> SamplingParams:
    if not isinstance(values, Mapping):
        _log.warning("settings: sampling is not a table, ignored")
        return SamplingParams()
    accepted = {
        name: fitting
        for name, rule in SAMPLING_RULES.items()
        if name in values and (fitting := _fitting(name, values[name], rule)) is not None
    }
    return replace(SamplingParams(), **accepted)


def _fitting(name: str, value: Any, rule: Any) -> Any:
    """Return the value as the setting holds it, None when it does not fit."""
    if isinstance(value, list):
        value = tuple(value)
    if value is not None and rule.accepts(value):
        return value
    is_secret = isinstance(rule, Text) and rule.is_secret
    shown = "(not shown)" if is_secret else repr(value)
    _log.warning("settings: %s = %s is not %s, ignored", name, shown, rule)
    return None


def _merge(document: TOMLDocument, before: Settings, after: Settings) -> None:
    """Put what was changed into the document; what was never set stays out of it."""
    for item in fields(Settings):
        value = getattr(after, item.name)
        if value == getattr(before, item.name):
            continue
        if item.name == "sampling":
            _merge_sampling(document, value)
        elif value is None:
            document.pop(item.name, None)
        else:
            _put(document, item.name, list(value) if isinstance(value, tuple) else value)


def _put(document: TOMLDocument, name: str, value: Any) -> None:
    if name in document:
        document[name] = value
        return
    # Plain keys after a table would belong to the table, so they go before the first one.
    tables = [key for key, item in document.items() if isinstance(item, Mapping)]
    if not tables:
        document.append(name, tomlkit.item(value))
        return
    moved = {key: document.pop(key) for key in tables}
    document.append(name, tomlkit.item(value))
    for key, table in moved.items():
        document.append(key, table)


def _merge_sampling(document: TOMLDocument, sampling: SamplingParams) -> None:
    table = document.get("sampling")
    if not isinstance(table, MutableMapping):
        document.pop("sampling", None)
        table = tomlkit.table()
        document.append("sampling", table)
        table = document["sampling"]
    for item in fields(sampling):
        value = getattr(sampling, item.name)
        if value is None:
            table.pop(item.name, None)
        else:
            table[item.name] = value


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
