"""Typed errors of the application: what the world did wrong, in plain words."""

from __future__ import annotations


class AppError(Exception):
    """Base of every error the application raises on purpose.

    The message is one plain sentence for the user; ``detail`` holds what a bug report needs.
    """

    def __init__(self, message: str, *, detail: str = "") -> None:
        super().__init__(message)
        self.detail = detail


class HomeUnusableError(AppError):
    """A folder of the program's data cannot be made or written."""


class NotFoundError(AppError):
    """A conversation or message is not in the store (any more)."""


class DatabaseError(AppError):
    """Base of what can go wrong with a database file."""


class DatabaseDamagedError(DatabaseError):
    """The file is not a database, or its pages contradict each other."""


class DatabaseBusyError(DatabaseError):
    """Another process holds the database longer than we wait."""


class DatabaseFullError(DatabaseError):
    """The disk is full."""


class DatabaseUnavailableError(DatabaseError):
    """The file cannot be opened, read or written: permissions, read-only volume, hardware."""


class StoreTooNewError(DatabaseError):
    """The database was written by a newer version of the program.

    found, known: schema revisions.
    """

    def __init__(self, found: str, known: str) -> None:
        super().__init__(
            "Your conversations were last opened by a newer version of Reprise. "
            "Please update; nothing has been changed.",
            detail=f"schema {found}, this version knows up to {known}",
        )
        self.found = found
        self.known = known


class SharedStoreError(AppError):
    """Base of what can go wrong with the PostgreSQL server that several machines share."""


class SharedAddressError(SharedStoreError):
    """The address is not one of a PostgreSQL server."""


class SharedDriverMissingError(SharedStoreError):
    """psycopg, which talks to the server, is not installed."""


class SharedUnreachableError(SharedStoreError):
    """There is no answer: no such host, nothing listens, too slow, or the connection broke."""


class SharedRefusedError(SharedStoreError):
    """The server does not let us in: password, user, encryption, or who may connect."""


class SharedUnusableError(SharedStoreError):
    """The server answers, but the database cannot be used: missing, no rights, full, damaged."""


class SettingsError(AppError):
    """A setting is out of its range. name: the field."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message, detail=name)
        self.name = name


class ImportFormatError(AppError):
    """A file offered for import is not in a format we know, or is damaged."""


class ExportError(AppError):
    """An export cannot be written."""
