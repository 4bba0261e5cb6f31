"""Reading of blocks and manifests from kv.db, on a connection of the caller.

By statements of the driver's own: a conversation comes back in the time that SQLAlchemy takes to
put one query for all its blocks together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from app.store.kv_blocks import block_of, manifest_of
from app.store.kv_database import driver, snapshot
from engine.memory.storage import Manifest, StoredBlock


class _BlockRow(NamedTuple):
    """A row of blocks. Of a damaged file, its values may have any type."""

    id: Any
    fingerprint: Any
    hash: Any
    parent: Any
    token_ids: Any
    codec: Any
    crc32: Any
    binding: Any
    size: Any


class _ManifestRow(NamedTuple):
    """A row of manifests. Of a damaged file, its values may have any type."""

    id: Any
    conversation_id: Any
    branch: Any
    fingerprint: Any
    num_tokens: Any
    num_blocks: Any
    hashes: Any
    body_size: Any


# Of hashes in one query; more parameters are refused by SQLite before 3.32.
_CHUNK = 500
# Of payloads read in one go: what is still in the processor's cache when the engine copies it.
_BATCH_BYTES = 512 << 10

_BLOCKS = f"SELECT {', '.join(_BlockRow._fields)} FROM blocks"
_MANIFESTS = f"SELECT {', '.join(_ManifestRow._fields)} FROM manifests"
_BRANCHES = (
    f"{_MANIFESTS} WHERE fingerprint = ?1 AND conversation_id = ?2 "
    "AND (?3 IS NULL OR branch = ?3) ORDER BY updated_at DESC, id DESC"
)


def existing(
    connection: Connection, fingerprint: bytes, hashes: Iterable[bytes]
) -> dict[bytes, int]:
    """Return hash -> row id of those that are stored."""
    return dict(_rows(connection, "SELECT hash, id FROM blocks", fingerprint, list(hashes)))


def read_blocks(
    connection: Connection, fingerprint: bytes, hashes: Sequence[bytes]
) -> Iterator[StoredBlock]:
    """Yield the stored blocks in the order asked for; missing or contradictory rows are left out.

    Each payload is copied once, from the mapped file into its bytes object; its crc32 is left to
    the engine.
    """
    found = map(_BlockRow._make, _rows(connection, _BLOCKS, fingerprint, hashes))
    by_hash = {row.hash: row for row in found}
    rows = iter([by_hash[key] for key in hashes if key in by_hash])
    while batch := _next_batch(connection, rows):
        yield from batch
        batch.clear()  # before the next is read: into the same memory then


def _rows(
    connection: Connection, select: str, fingerprint: bytes, hashes: Sequence[bytes]
) -> Iterator[Any]:
    """Yield the rows of those blocks that are stored, in no order."""
    for start in range(0, len(hashes), _CHUNK):
        chunk = hashes[start : start + _CHUNK]
        marks = ", ".join("?" * len(chunk))
        query = f"{select} WHERE fingerprint = ? AND hash IN ({marks})"
        yield from driver(connection).execute(query, (fingerprint, *chunk)).fetchall()


def _next_batch(connection: Connection, rows: Iterator[_BlockRow]) -> list[StoredBlock]:
    """Return the next few blocks of some rows; none when there are no more."""
    batch: list[StoredBlock] = []
    num_bytes = 0
    with snapshot(connection) as raw:
        for row in rows:
            block = _block(raw, row)
            if block is not None:
                batch.append(block)
                num_bytes += len(block.payload)
            if num_bytes >= _BATCH_BYTES:
                break
    return batch


def read_all(connection: Connection) -> Iterator[tuple[bytes, bytes, StoredBlock | None]]:
    """Yield (fingerprint, hash, block) of every row; None where it contradicts itself."""
    # Ids first: a statement left open between two blocks would stop checkpoints.
    ids = driver(connection).execute("SELECT id FROM blocks").fetchall()
    for key in ids:
        found = driver(connection).execute(f"{_BLOCKS} WHERE id = ?", key).fetchone()
        if found is not None:
            row = _BlockRow(*found)
            yield row.fingerprint, row.hash, _block(driver(connection), row)


def count(connection: Connection) -> int:
    """Return how many blocks there are."""
    return int(driver(connection).execute("SELECT count(*) FROM blocks").fetchone()[0])


def read_manifests(
    connection: Connection, fingerprint: bytes, conversation_id: str, branch: str | None
) -> list[Manifest]:
    """Return the branches of a conversation, newest first, or the one named."""
    key = (fingerprint, conversation_id, branch)
    rows = driver(connection).execute(_BRANCHES, key).fetchall()
    found = (_manifest(connection, _ManifestRow(*row)) for row in rows)
    return [manifest for manifest in found if manifest is not None]


def read_manifest(connection: Connection, manifest_id: int) -> Manifest | None:
    """Return one manifest; None when it is gone or contradicts itself."""
    row = driver(connection).execute(f"{_MANIFESTS} WHERE id = ?", (manifest_id,)).fetchone()
    return None if row is None else _manifest(connection, _ManifestRow(*row))


def _block(raw: sqlite3.Connection, row: _BlockRow) -> StoredBlock | None:
    payload = _blob(raw, "payloads", "payload", row.id, size=row.size)
    return None if payload is None else block_of(row, payload)


def _manifest(connection: Connection, row: _ManifestRow) -> Manifest | None:
    body = _blob(driver(connection), "bodies", "body", row.id, size=row.body_size)
    return manifest_of(row, body)


def _blob(raw: sqlite3.Connection, table: str, column: str, key: int, *, size: int) -> bytes | None:
    """Return one large value with a single copy; None when it is gone or of another size."""
    try:
        with raw.blobopen(table, column, key, readonly=True) as blob:
            # A damaged length must not make us allocate gigabytes.
            return blob.read() if len(blob) == size else None
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR:
            return None
        raise
