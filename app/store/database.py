"""An open chats.db: connections, transactions, checks. Knows the schema, no conversation."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event, select
from sqlalchemy.orm import Session

from app.errors import DatabaseDamagedError, DatabaseFullError, DatabaseUnavailableError
from app.events import Notice
from app.store.salvage import count_rows, remove, salvage, set_aside
from app.store.schema import HEAD, back_up, migrate, revision_of
from app.store.sqlite_errors import typed_errors
from app.store.tables import ConversationRow, MessageRow, VisitRow

_BUSY_TIMEOUT_MS = 5_000
_SYNCHRONOUS = "NORMAL"
_PRAGMAS = (
    f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}",
    "PRAGMA journal_mode = WAL",
    f"PRAGMA synchronous = {_SYNCHRONOUS}",
    "PRAGMA foreign_keys = ON",
    "PRAGMA cache_size = -16000",
    "PRAGMA mmap_size = 268435456",
)


class Database:
    """chats.db, created, migrated or salvaged as needed. Usable from several threads.

    on_notice is told, on the opening thread, when something was found damaged or backed up.
    Raises: DatabaseError kinds; StoreTooNewError leaves the file as it is.
    """

    def __init__(self, path: Path, *, on_notice: Callable[[Notice], None]) -> None:
        self.path = path
        self._on_notice = on_notice
        self._write_lock = threading.Lock()
        with typed_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._engine = _create_engine(path)
        self._writer = self._engine.execution_options(begin="BEGIN IMMEDIATE")
        if self._salvaged.exists():
            self._use_salvaged()
            return
        try:
            self._open()
        except DatabaseDamagedError:
            self._salvage()
            self._use_salvaged()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """Yield a session over one consistent state. Raises: DatabaseError kinds."""
        with self._watched(), Session(self._engine) as session:
            yield session

    @contextmanager
    def writing(self, *, durable: bool = False) -> Iterator[Session]:
        """Yield a session that commits at the end, or changes nothing.

        durable: wait until the disk has it, so that a power cut cannot take it back.
        Raises: DatabaseError kinds.
        """
        # One lock instead of SQLite's busy loop, whose waits are milliseconds long.
        with (
            self._watched(),
            self._write_lock,
            self._writer.connect() as connection,
            _synchronous(connection, "FULL" if durable else "NORMAL"),
            Session(connection, expire_on_commit=False) as session,
            session.begin(),
        ):
            yield session

    def quick_check(self) -> list[str]:
        """Return what SQLite finds wrong with the file; empty when it is sound."""
        with self.reading() as session:
            rows = session.connection().exec_driver_sql("PRAGMA quick_check(20)").scalars()
            return [str(row) for row in rows if row != "ok"]

    def close(self) -> None:
        """Fold the WAL into the file, if there is room for it, and close every connection."""
        # What is not folded in stays in the WAL, and is read from there at the next start.
        with (
            suppress(DatabaseFullError, DatabaseUnavailableError),
            typed_errors(self.path),
            self._engine.connect() as connection,
        ):
            _driver(connection).execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self._engine.dispose()

    @contextmanager
    def _watched(self) -> Iterator[None]:
        try:
            with typed_errors(self.path):
                yield
        except DatabaseDamagedError:
            with suppress(OSError):
                self._suspicion.touch()
            raise

    @property
    def _suspicion(self) -> Path:
        """A file that asks the next start for a check."""
        return self.path.with_name(f"{self.path.name}.check")

    def _open(self) -> None:
        is_unclean = _has_wal(self.path) or self._suspicion.exists()
        with typed_errors(self.path), self._writer.connect() as connection:
            revision = revision_of(connection)
        if is_unclean and (faults := self.quick_check()):
            raise DatabaseDamagedError(f"{self.path.name} is damaged.", detail="\n".join(faults))
        if revision != HEAD:
            self._migrate(revision)
        if is_unclean:
            self._check_tables()
        with suppress(OSError):
            self._suspicion.unlink(missing_ok=True)

    def _check_tables(self) -> None:
        """Look for every table and column. Raises: DatabaseDamagedError where one is missing."""
        with self.reading() as session:
            for row in (ConversationRow, MessageRow, VisitRow):
                session.execute(select(row).limit(0))

    def _migrate(self, revision: str | None) -> None:
        with typed_errors(self.path):
            if revision is not None:
                back_up(self.path, revision)
            with self._writer.connect() as connection, connection.begin():
                migrate(connection)

    @property
    def _salvaged(self) -> Path:
        """A new file with all that could be read of a damaged one; complete if it is there."""
        return self.path.with_name(f"{self.path.name}.salvaged")

    def _salvage(self) -> None:
        """Save what can be read into a new file; until that is complete nothing is moved."""
        self._engine.dispose()
        draft = self.path.with_name(f"{self.path.name}.draft")
        with typed_errors(draft):
            remove(draft)
            Database(draft, on_notice=self._on_notice).close()
            with closing(sqlite3.connect(draft)) as fresh:
                salvage(self.path, fresh)
            draft.replace(self._salvaged)

    def _use_salvaged(self) -> None:
        """Put the new file in the damaged one's place, also where a former try was cut short."""
        with typed_errors(self.path):
            damaged = set_aside(self.path)
            self._salvaged.replace(self.path)
            self._suspicion.unlink(missing_ok=True)
            with closing(sqlite3.connect(self.path)) as fresh:
                kept = count_rows(fresh)
        self._open()
        self._on_notice(
            Notice(
                "chats_damaged",
                f"The conversations file was damaged. {kept.messages} messages of "
                f"{kept.conversations} conversations could be read and were kept; "
                f"the damaged file is kept as {damaged.name}.",
            )
        )


def _has_wal(path: Path) -> bool:
    # SQLite removes the WAL when the last connection closes; one that is left tells of a crash.
    wal = path.with_name(f"{path.name}-wal")
    return wal.exists() and wal.stat().st_size > 0


def _create_engine(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"check_same_thread": False, "isolation_level": None},
        pool_size=8,
        max_overflow=8,
    )
    event.listen(engine, "connect", _set_pragmas)
    event.listen(engine, "begin", _begin)
    return engine


def _set_pragmas(connection: sqlite3.Connection, record: Any) -> None:
    # One damaged character must not make the conversation unreadable.
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")
    for pragma in _PRAGMAS:
        connection.execute(pragma)


def _begin(connection: Connection) -> None:
    # WORKAROUND(https://docs.sqlalchemy.org/en/20/dialects/sqlite.html#pysqlite-serializable):
    # the driver's own BEGIN comes too late for reads and for DDL.
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))


@contextmanager
def _synchronous(connection: Connection, level: str) -> Iterator[None]:
    if level == _SYNCHRONOUS:
        yield
        return
    driver = _driver(connection)
    driver.execute(f"PRAGMA synchronous = {level}")
    try:
        yield
    finally:
        driver.execute(f"PRAGMA synchronous = {_SYNCHRONOUS}")


def _driver(connection: Connection) -> sqlite3.Connection:
    """Return the driver's connection: pragmas must run outside of a transaction."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver
