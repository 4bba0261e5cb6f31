"""A shared store's connections: opened, given their tables, cut off. Knows the schema, no job.

Imports psycopg; whoever may have to do without it imports this module late.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Connection, Engine, create_engine, event, insert, select, text

from app.errors import SharedAddressError, SharedUnreachableError
from app.shared_url import checked, masked
from app.store import kv_tables
from app.store.shared.errors import typed_errors
from app.store.shared.tables import SCHEMA, metadata, server

# What the address itself says goes before these. A frozen peer is noticed without asking it.
_DEFAULTS: dict[str, Any] = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
    "application_name": "reprise",
}
_STATEMENT_TIMEOUT_MS = 30_000
_MAKE_LOCK = 0x5250_5253


class SharedDatabase:
    """A pool of connections to one address, made when they are asked for.

    Raises: SharedAddressError. Everything else is found out when a connection is wanted.
    """

    def __init__(self, url: str, *, pool_size: int = 2) -> None:
        self._parameters = _parameters(url)
        self._open: set[psycopg.Connection[Any]] = set()
        self._lock = threading.Lock()
        self._is_cut = False
        self._engine = self._create_engine(pool_size)

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """Yield a connection where every statement stands for itself.

        Raises: SharedStoreError kinds.
        """
        with typed_errors(), self._engine.connect() as connection:
            try:
                yield connection.execution_options(isolation_level="AUTOCOMMIT")
            except BaseException:
                # What the driver itself was asked may have ended it without SQLAlchemy knowing.
                connection.invalidate()
                raise

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection inside one transaction. Raises: SharedStoreError kinds."""
        with typed_errors(), self._engine.begin() as connection:
            yield connection

    def make(self) -> str:
        """Create schema and tables where they are missing; return the server's identity.

        Raises: SharedStoreError kinds.
        """
        with self.writing() as connection:
            # Two machines that come to a new database at once must not both make the tables.
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MAKE_LOCK})
            known = connection.execute(
                text("SELECT 1 FROM pg_namespace WHERE nspname = :name"), {"name": SCHEMA}
            )
            if known.first() is None:
                connection.execute(text(f"CREATE SCHEMA {SCHEMA}"))
            if not _has_tables(connection):
                _create_tables(connection)
            return str(connection.execute(select(server.c.id)).scalar_one())

    def cut(self) -> None:
        """Break every connection, from another thread: whoever waits for an answer gets an error.

        The database cannot be used afterwards.
        """
        # Inside the lock: a descriptor that was closed meanwhile may be somebody else's by now.
        with self._lock:
            self._is_cut = True
            for connection in self._open:
                _shut(connection)

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._engine.dispose()

    def _create_engine(self, pool_size: int) -> Engine:
        engine = create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            pool_size=pool_size,
            max_overflow=1,
            use_native_hstore=False,
            hide_parameters=True,
            execution_options={"schema_translate_map": {None: SCHEMA}},
        )
        event.listen(engine, "close", self._closed)
        return engine

    def _connect(self) -> psycopg.Connection[Any]:
        connection = psycopg.connect(**self._parameters)
        connection.execute(f"SET statement_timeout = {_STATEMENT_TIMEOUT_MS}")
        connection.commit()
        with self._lock:
            self._open.add(connection)
            is_cut = self._is_cut
        if is_cut:
            connection.close()
            raise SharedUnreachableError("The shared store is being closed.")
        return connection

    def _closed(self, connection: psycopg.Connection[Any], record: Any) -> None:
        with self._lock:
            self._open.discard(connection)


def driver(connection: Connection) -> psycopg.Connection[Any]:
    """Return the driver's connection: notifications and binary values have no place in SQLAlchemy.

    Raises: nothing; statements on it raise psycopg's own errors.
    """
    raw = connection.connection.driver_connection
    assert isinstance(raw, psycopg.Connection)
    return raw


def _parameters(url: str) -> dict[str, Any]:
    try:
        return _DEFAULTS | conninfo_to_dict(checked(url))
    except psycopg.Error:
        # Its text quotes parts of the address, the password among them.
        raise SharedAddressError("This address makes no sense.", detail=masked(url)) from None


def _has_tables(connection: Connection) -> bool:
    query = text("SELECT count(*) FROM pg_tables WHERE schemaname = :name")
    found = connection.execute(query, {"name": SCHEMA}).scalar_one()
    return int(found) >= len(kv_tables.metadata.tables) + len(metadata.tables)


def _create_tables(connection: Connection) -> None:
    kv_tables.metadata.create_all(connection)
    metadata.create_all(connection)
    # Keys and values do not get smaller by compression; trying would only take time.
    for table, column in (("payloads", "payload"), ("bodies", "body")):
        alter = f"ALTER TABLE {SCHEMA}.{table} ALTER COLUMN {column} SET STORAGE EXTERNAL"
        connection.execute(text(alter))
    if connection.execute(select(server.c.id)).first() is None:
        connection.execute(insert(server).values(id=uuid4().hex))


def _shut(connection: psycopg.Connection[Any]) -> None:
    with suppress(psycopg.Error, OSError):
        descriptor = connection.fileno()
        # A second object over the same descriptor, which must not close it.
        side = socket.socket(fileno=descriptor)
        try:
            side.shutdown(socket.SHUT_RDWR)
        finally:
            side.detach()
