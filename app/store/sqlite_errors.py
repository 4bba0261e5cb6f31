"""Translates what SQLite and SQLAlchemy raise into the typed errors of the application."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sqlalchemy.exc import DBAPIError

from app.errors import (
    DatabaseBusyError,
    DatabaseDamagedError,
    DatabaseError,
    DatabaseFullError,
    DatabaseUnavailableError,
)

# Rules our own code keeps can only be broken by an index that lost entries.
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT}
_WAL_INDEX_BYTES = 1 << 15
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}


@contextmanager
def typed_errors(path: Path) -> Iterator[None]:
    """Raise a DatabaseError where the block raises an error of SQLite or of the system."""
    try:
        yield
    except DBAPIError as error:
        if isinstance(error.orig, sqlite3.Error):
            raise translate(error.orig, path) from error
        raise
    except sqlite3.Error as error:
        raise translate(error, path) from error
    except UnicodeDecodeError as error:
        # SQLite quotes a damaged schema in its message, which the driver then cannot decode.
        raise DatabaseDamagedError(f"{path.name} is damaged.", detail=repr(error)) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise _full(path, str(error)) from error
        raise _unavailable(path, str(error)) from error


def translate(error: sqlite3.Error, path: Path) -> DatabaseError:
    """Return the typed error for one of SQLite's; its own text goes into the detail."""
    # Errors of the sqlite3 module itself carry no code; a damaged text value is one of them.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
    detail = f"{path}: {error}"
    if code in _BUSY:
        return DatabaseBusyError(f"{path.name} is in use by another program.", detail=detail)
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return _full(path, detail)
    if code in _DAMAGED or (isinstance(error, sqlite3.OperationalError) and code == 1):
        return DatabaseDamagedError(f"{path.name} is damaged.", detail=detail)
    return _unavailable(path, detail)


def _is_full(path: Path) -> bool:
    """Tell whether there is no room for the index of a WAL, which SQLite calls an I/O error."""
    with suppress(OSError):
        return shutil.disk_usage(path.parent).free < _WAL_INDEX_BYTES
    return False


def _full(path: Path, detail: str) -> DatabaseError:
    return DatabaseFullError(f"The disk is full; {path.name} cannot grow.", detail=detail)


def _unavailable(path: Path, detail: str) -> DatabaseError:
    return DatabaseUnavailableError(f"{path.name} cannot be read or written.", detail=detail)
