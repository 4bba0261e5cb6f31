"""Copies payloads of kv.db straight to where the caller wants them.

By the C interface of the very SQLite that the driver uses, on a connection of its own: the driver
can only return a new bytes object, which is a copy more. Where that interface cannot be reached,
the driver has to do.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_ubyte, c_void_p
from functools import lru_cache
from pathlib import Path
from typing import Protocol

_OPEN_READONLY = 0x1
_BUSY_MS = 2000
_VALUE = (b"main", b"payloads", b"payload")

# Source: https://sqlite.org/c3ref/blob_open.html and its neighbours.
_FUNCTIONS = {
    "sqlite3_open_v2": (c_char_p, POINTER(c_void_p), c_int, c_char_p),
    "sqlite3_close": (c_void_p,),
    "sqlite3_busy_timeout": (c_void_p, c_int),
    "sqlite3_exec": (c_void_p, c_char_p, c_void_p, c_void_p, c_void_p),
    "sqlite3_blob_open": (
        *(c_void_p, c_char_p, c_char_p, c_char_p, c_int64, c_int),
        POINTER(c_void_p),
    ),
    "sqlite3_blob_reopen": (c_void_p, c_int64),
    "sqlite3_blob_bytes": (c_void_p,),
    "sqlite3_blob_read": (c_void_p, c_void_p, c_int, c_int),
    "sqlite3_blob_close": (c_void_p,),
}


class PayloadReading(Protocol):
    """A state of the file that payloads are copied from."""

    def copy(self, row_id: int, target: memoryview) -> bool:
        """Copy a payload that fills target; False where it is gone or of another size.

        Raises: sqlite3.Error kinds.
        """
        ...


class DriverReading:
    """Copies by way of the driver's bytes. raw: a connection of the caller."""

    def __init__(self, raw: sqlite3.Connection) -> None:
        self._raw = raw

    def copy(self, row_id: int, target: memoryview) -> bool:
        """Copy a payload. Raises: sqlite3.Error kinds."""
        try:
            with self._raw.blobopen("payloads", "payload", row_id, readonly=True) as blob:
                if len(blob) != len(target):
                    return False
                target[:] = blob.read()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR:
                return False
            raise
        return True


class Payloads:
    """The connection that payloads are copied from; opened when it is needed first."""

    def __init__(self, path: Path, mmap_bytes: int) -> None:
        self._path = path
        # The query has the schema read.
        self._first = f"PRAGMA mmap_size = {mmap_bytes}; SELECT id FROM payloads LIMIT 0".encode()
        self._lock = threading.Lock()
        self._connection: c_void_p | None = None

    @contextmanager
    def reading(self) -> Iterator[PayloadReading | None]:
        """Yield a state of the file, which stops checkpoints meanwhile.

        None while another thread has it, or where there is no such interface.
        Raises: sqlite3.Error kinds.
        """
        library = _library()
        if library is None or not self._lock.acquire(blocking=False):
            yield None
            return
        try:
            reading = _NativeReading(library, self._opened(library))
            try:
                yield reading
            finally:
                reading.close()
        finally:
            self._lock.release()

    def open(self) -> None:
        """Open the connection now, so that nobody waits for it. Raises: sqlite3.Error kinds."""
        with self.reading():
            pass

    def close(self) -> None:
        """Close the connection, once nobody reads; it is opened again when it is needed."""
        with self._lock:
            connection, self._connection = self._connection, None
            library = _library()
            if connection is not None and library is not None:
                library.sqlite3_close(connection)

    def _opened(self, library: ctypes.CDLL) -> c_void_p:
        if self._connection is None:
            self._connection = _open(library, self._path, self._first)
        return self._connection


class _NativeReading:
    """One blob handle, moved from payload to payload; as long as it is open, the state stays."""

    def __init__(self, library: ctypes.CDLL, connection: c_void_p) -> None:
        self._library = library
        self._connection = connection
        self._blob = c_void_p()

    def copy(self, row_id: int, target: memoryview) -> bool:
        """Copy a payload. Raises: sqlite3.Error kinds."""
        library, num_bytes = self._library, len(target)
        if not self._move_to(row_id) or library.sqlite3_blob_bytes(self._blob) != num_bytes:
            return False
        address = ctypes.addressof(c_ubyte.from_buffer(target)) if num_bytes else None
        self._check(library.sqlite3_blob_read(self._blob, address, num_bytes, 0))
        return True

    def close(self) -> None:
        """Give the state up."""
        self._library.sqlite3_blob_close(self._blob)
        self._blob = c_void_p()

    def _move_to(self, row_id: int) -> bool:
        """Open a payload; False where there is none."""
        if self._blob:
            code = self._library.sqlite3_blob_reopen(self._blob, row_id)
        else:
            where = (self._connection, *_VALUE, row_id, 0, byref(self._blob))
            code = self._library.sqlite3_blob_open(*where)
        if code & 0xFF == sqlite3.SQLITE_ERROR:
            # A handle that was moved to nothing is of no use any more.
            self.close()
            return False
        self._check(code)
        return True

    def _check(self, code: int) -> None:
        if code != sqlite3.SQLITE_OK:
            raise _error(code)


def _open(library: ctypes.CDLL, path: Path, first: bytes) -> c_void_p:
    """Return a connection on which some statements were run. Raises: sqlite3.Error kinds."""
    connection = c_void_p()
    code = library.sqlite3_open_v2(str(path).encode(), byref(connection), _OPEN_READONLY, None)
    if not code:
        library.sqlite3_busy_timeout(connection, _BUSY_MS)
        code = library.sqlite3_exec(connection, first, None, None, None)
    if code:
        library.sqlite3_close(connection)
        raise _error(code)
    return connection


def _error(code: int) -> sqlite3.Error:
    """Return an error as the driver would raise it."""
    error = sqlite3.DatabaseError(f"error {code}")
    error.sqlite_errorcode = code
    return error


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL | None:
    """Return the interface of the driver's own SQLite; another copy would break its file locks."""
    spec = importlib.util.find_spec("_sqlite3")
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return None
    try:
        library = ctypes.CDLL(spec.origin)
        for name, arguments in _FUNCTIONS.items():
            getattr(library, name).argtypes = arguments
    except (OSError, AttributeError):
        return None
    return library
