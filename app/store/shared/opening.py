"""Opening a shared store, where psycopg may be missing: an installation need not have it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.errors import SharedDriverMissingError

if TYPE_CHECKING:
    from app.store.shared.database import SharedDatabase


def open_database(url: str) -> SharedDatabase:
    """Return the database at an address; connects when it is used.

    Raises: SharedAddressError, SharedDriverMissingError.
    """
    try:
        from app.store.shared.database import SharedDatabase
    except ImportError as error:
        raise SharedDriverMissingError(
            "psycopg is not installed: python -m pip install 'psycopg[binary]'.", detail=str(error)
        ) from error
    return SharedDatabase(url)
