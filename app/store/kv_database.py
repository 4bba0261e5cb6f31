"""An open kv.db: connections, creation, real bytes on disk. Knows the tables, no job.

Many connections read; one, of the process that holds the lock file, writes and checkpoints
(SQLite before 3.51.3 can lose a WAL that two connections reset at once).
"""

from __future__ import annotations

import ctypes
import logging
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from sqlalchemy import URL, Connection, Engine, create_engine, event

from app.errors import DatabaseDamagedError, DatabaseError
from app.store.kv_tables import VERSION, metadata, notes
from app.store.sqlite_errors import typed_errors

_log = logging.getLogger(__name__)

_APPLICATION_ID = 0x52505253
# Of new files; one that is there keeps its own. With larger pages, small blocks waste much of the
# last one, and are not read faster.
PAGE_SIZE = 16_384
_MAX_MMAP = 2**31 - 65_536
_SUFFIXES = ("", "-wal", "-shm")
_BEFORE_TABLES = (
    f"PRAGMA page_size = {PAGE_SIZE}",
    "PRAGMA auto_vacuum = INCREMENTAL",
)
_PRAGMAS = (
    "PRAGMA busy_timeout = 2000",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = NORMAL",
    "PRAGMA secure_delete = OFF",
    "PRAGMA foreign_keys = ON",
    "PRAGMA wal_autocheckpoint = 0",
    f"PRAGMA mmap_size = {_MAX_MMAP}",
)


class KVDatabase:
    """kv.db, created or replaced where this process may write.

    A file that cannot be used now is tried again with every read and write. ``is_writable`` is
    False while another process writes.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.was_damaged = False
        self._lock = FileLock(f"{path}.lock", thread_local=False)
        # Readers must not open a file that is just being replaced.
        self._gate = threading.Lock()
        self._running: sqlite3.Connection | None = None
        self._readers = _create_engine(path)
        self._writer = _create_engine(path)
        event.listen(self._writer, "begin", _begin)
        try:
            if self.lock():
                self._open_or_replace()
        except DatabaseError as error:  # whoever writes next says what is not being kept
            _log.warning("kv.db cannot be used: %s", error)

    @property
    def is_writable(self) -> bool:
        """Whether this process is the one that writes."""
        return bool(self._lock.is_locked)

    def lock(self) -> bool:
        """Try to become the process that writes; False while another one is.

        Raises: DatabaseError kinds when nobody can.
        """
        with typed_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                return False
        return True

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yield a connection on which every statement sees the newest state.

        There is no transaction: a snapshot held for as long as a reader likes would stop
        checkpoints. Raises: DatabaseError kinds.
        """
        with typed_errors(self.path):
            with self._gate:
                connection = self._readers.connect()
            with connection:
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yield a connection inside one transaction; only the writer thread may ask for it."""
        assert self.is_writable
        with typed_errors(self.path), self._writer.connect() as connection:
            self._running = driver(connection)
            try:
                with connection.begin():
                    yield connection
            finally:
                self._running = None

    def checkpoint(self) -> bool:
        """Move the WAL into the file and empty it; False where a reader or interrupt stops it."""
        with typed_errors(self.path), self._writer.connect() as connection:
            self._running = driver(connection)
            try:
                row = self._running.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                    raise
                return False
            finally:
                self._running = None
        return not row[0]

    def vacuum(self, num_bytes: int) -> None:
        """Give free pages of at least one and about num_bytes back to the disk."""
        # NOTE: execute() stops after the first page, because this pragma has rows but no columns.
        with typed_errors(self.path), self._writer.connect() as connection:
            num_pages = max(1, num_bytes // page_bytes(connection))
            driver(connection).executescript(f"PRAGMA incremental_vacuum({num_pages});")

    def interrupt(self) -> None:
        """Make the statement the writer is in fail, from another thread."""
        if (running := self._running) is not None:
            running.interrupt()

    def file_bytes(self) -> int:
        """Return the bytes on disk, the WAL included."""
        return sum(_size(part) for part in self._parts()[:2])

    def replace(self, *, keep: bool) -> None:
        """Start over with an empty file; keep sets the old one aside under a fixed name.

        Raises: DatabaseUnavailableError when the old file cannot be moved.
        """
        with typed_errors(self.path), self._gate:
            self._dispose()
            _remove(self.path, keep=keep)
            self._create()

    def close(self) -> None:
        """Close every connection and let another process write."""
        if self.is_writable:
            with suppress(DatabaseError):
                self.checkpoint()
        self._dispose()
        self._lock.release()

    def abandon(self) -> None:
        """Let another process write, and leave the file and its WAL as they are for it.

        Closing the last connection would move the WAL into the file, whatever time that takes.
        """
        for engine in (self._readers, self._writer):
            # Not even the end of the interpreter may close it.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine))
        self._lock.release()

    def _open_or_replace(self) -> None:
        # What a former start set aside has served its purpose by now.
        with suppress(OSError):
            _damaged(self.path).unlink(missing_ok=True)
        try:
            with typed_errors(self.path):
                self._create()
        except DatabaseDamagedError:
            self.was_damaged = True
            self.replace(keep=True)

    def _create(self) -> None:
        with self._readers.connect() as connection:
            if _is_foreign(connection):
                raise DatabaseDamagedError(f"{self.path.name} is damaged or of another version.")
        with self._writer.connect() as connection, connection.begin():
            metadata.create_all(connection)
            notes.create_all(connection)
            connection.exec_driver_sql(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.exec_driver_sql(f"PRAGMA user_version = {VERSION}")

    def _dispose(self) -> None:
        # The writer goes last: who closes last checkpoints.
        self._readers.dispose()
        self._writer.dispose()

    def _parts(self) -> list[Path]:
        return [self.path.with_name(self.path.name + suffix) for suffix in _SUFFIXES]


def page_bytes(connection: Connection) -> int:
    """Return the bytes of a page of this file."""
    return _pragma(connection, "page_size")


def live_bytes(connection: Connection) -> int:
    """Return the bytes of the pages in use, as the open transaction sees them."""
    used = _pragma(connection, "page_count") - _pragma(connection, "freelist_count")
    return used * page_bytes(connection)


def free_bytes(connection: Connection) -> int:
    """Return the bytes of the pages that could be given back to the disk."""
    return _pragma(connection, "freelist_count") * page_bytes(connection)


def driver(connection: Connection) -> sqlite3.Connection:
    """Return the driver's connection: blobs and checkpoints have no place in SQLAlchemy."""
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    return raw


@contextmanager
def snapshot(connection: Connection) -> Iterator[sqlite3.Connection]:
    """Yield the driver's connection, whose statements see one state; checkpoints wait meanwhile.

    One by one, each would take and give up the locks anew, which costs more than a small blob.
    """
    raw = driver(connection)
    raw.execute("BEGIN")
    try:
        yield raw
    finally:
        raw.rollback()


def _pragma(connection: Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar() or 0)


def _is_foreign(connection: Connection) -> bool:
    """Tell whether there are tables, but not exactly ours."""
    tables = set(connection.exec_driver_sql("SELECT name FROM sqlite_master").scalars())
    if not tables:
        return False
    is_ours = _pragma(connection, "application_id") == _APPLICATION_ID
    is_current = _pragma(connection, "user_version") == VERSION
    return not (is_ours and is_current and tables.issuperset(metadata.tables))


def _create_engine(path: Path) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        connect_args={"check_same_thread": False, "isolation_level": None},
    )
    event.listen(engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(connection: sqlite3.Connection, record: Any) -> None:
    if not connection.execute("PRAGMA page_count").fetchone()[0]:
        for pragma in _BEFORE_TABLES:
            connection.execute(pragma)
    for pragma in _PRAGMAS:
        connection.execute(pragma)


def _begin(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _damaged(path: Path) -> Path:
    return path.with_name(f"{path.name}.damaged")


def _remove(path: Path, *, keep: bool) -> None:
    for suffix in _SUFFIXES[1:]:
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    if not path.exists():
        return
    if keep:
        path.replace(_damaged(path))
    else:
        path.unlink()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
