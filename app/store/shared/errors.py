"""Translates what psycopg and SQLAlchemy raise into the typed errors of the shared store.

A connection that is refused has no SQLSTATE, only the server's text, so its words are looked at.
No message and no detail holds an address: it may carry a password.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors as pg
from sqlalchemy.exc import DBAPIError

from app.errors import (
    SharedRefusedError,
    SharedStoreError,
    SharedUnreachableError,
    SharedUnusableError,
)

_REFUSED = ("password", "pg_hba.conf", "authentication", "role ", "ssl", "certificate", "gss")
_CONFLICTS = (
    pg.SerializationFailure,
    pg.DeadlockDetected,
    pg.ForeignKeyViolation,
    pg.UniqueViolation,
)


class SharedConflictError(SharedStoreError):
    """Another machine wrote the same rows at the same moment; trying again settles it."""


@contextmanager
def typed_errors() -> Iterator[None]:
    """Raise a SharedStoreError where the block raises an error of the server's."""
    try:
        yield
    except DBAPIError as error:
        if isinstance(error.orig, psycopg.Error):
            raise translate(error.orig) from error
        raise
    except psycopg.Error as error:
        raise translate(error) from error
    except (TypeError, ValueError, OverflowError) as error:
        # Tables that are not ours, or a server that is none.
        raise _unusable("holds values that make no sense", repr(error)) from error


def translate(error: psycopg.Error) -> SharedStoreError:
    """Return the typed error for one of psycopg's; its own text goes into the detail."""
    detail = str(error)
    if isinstance(error, _CONFLICTS):
        return SharedConflictError("Another machine writes the same states now.", detail=detail)
    if isinstance(error, pg.InvalidAuthorizationSpecification):
        return _refused(detail)
    if isinstance(error, pg.InvalidCatalogName):
        return _unusable("has no such database", detail)
    if isinstance(error, pg.InsufficientPrivilege | pg.ReadOnlySqlTransaction):
        return _unusable("does not let this user create or change tables", detail)
    if isinstance(error, pg.DiskFull | pg.OutOfMemory):
        return _unusable("has no room left", detail)
    if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return _of_connection(error, detail)
    return _unusable("does not work with these tables", detail)


def _of_connection(error: psycopg.Error, detail: str) -> SharedStoreError:
    words = detail.casefold()
    if error.sqlstate is None:
        if "database" in words and "does not exist" in words:
            return _unusable("has no such database", detail)
        if any(word in words for word in _REFUSED):
            return _refused(detail)
    if isinstance(error, pg.QueryCanceled) or "timeout" in words:
        return SharedUnreachableError("The shared store takes too long to answer.", detail=detail)
    return SharedUnreachableError("The shared store cannot be reached.", detail=detail)


def _refused(detail: str) -> SharedStoreError:
    return SharedRefusedError(
        "The shared store does not let us in: user, password or encryption are not right.",
        detail=detail,
    )


def _unusable(what: str, detail: str) -> SharedStoreError:
    return SharedUnusableError(f"The shared store {what}.", detail=detail)
