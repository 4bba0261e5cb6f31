"""Reading of blocks and manifests from kv.db, on a connection of the caller.

Rows of a shared store are the same ones; what makes something of them is used for both.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select

from app.store.kv_database import driver
from app.store.kv_tables import blocks, manifests
from engine.memory.interface import Manifest, StoredBlock

_CHUNK = 500


def binding_of(block: StoredBlock) -> int:
    """Return a checksum that ties a block's crc32 to its hash, parent, tokens and codec.

    A payload that was moved to another row together with its crc32 is found out by it.
    """
    names = b"\0".join((block.hash, block.parent, block.token_ids, block.codec.encode()))
    return zlib.crc32(names, block.crc32)


def existing(
    connection: Connection, fingerprint: bytes, hashes: Iterable[bytes]
) -> dict[bytes, int]:
    """Return hash -> row id of those that are stored."""
    found: dict[bytes, int] = {}
    for chunk in _chunks(list(hashes)):
        query = select(blocks.c.hash, blocks.c.id).where(
            blocks.c.fingerprint == fingerprint, blocks.c.hash.in_(chunk)
        )
        found.update((row.hash, row.id) for row in connection.execute(query))
    return found


def read_blocks(
    connection: Connection, fingerprint: bytes, hashes: Sequence[bytes]
) -> Iterator[StoredBlock]:
    """Yield the stored blocks in the order asked for; missing or contradictory rows are left out.

    Each payload is copied once, from the mapped file into its bytes object; its crc32 is left to
    the engine.
    """
    rows = block_rows(connection, fingerprint, hashes)
    for key in hashes:
        if (row := rows.get(key)) is not None and (block := _block(connection, row)) is not None:
            yield block


def read_all(connection: Connection) -> Iterator[tuple[bytes, bytes, StoredBlock | None]]:
    """Yield (fingerprint, hash, block) of every row; None where it contradicts itself."""
    ids = list(connection.execute(select(blocks.c.id)).scalars())
    for chunk in _chunks(ids):
        for row in connection.execute(select(blocks).where(blocks.c.id.in_(chunk))).all():
            yield row.fingerprint, row.hash, _block(connection, row)


def count(connection: Connection) -> int:
    """Return how many blocks there are."""
    return int(connection.execute(select(func.count()).select_from(blocks)).scalar() or 0)


def read_manifests(
    connection: Connection, fingerprint: bytes, conversation_id: str
) -> list[Manifest]:
    """Return the branches of a conversation, newest first."""
    query = (
        select(manifests)
        .where(
            manifests.c.fingerprint == fingerprint,
            manifests.c.conversation_id == conversation_id,
        )
        .order_by(manifests.c.updated_at.desc(), manifests.c.id.desc())
    )
    found = (_manifest(connection, row) for row in connection.execute(query).all())
    return [manifest for manifest in found if manifest is not None]


def read_manifest(connection: Connection, manifest_id: int) -> Manifest | None:
    """Return one manifest; None when it is gone or contradicts itself."""
    row = connection.execute(select(manifests).where(manifests.c.id == manifest_id)).first()
    return None if row is None else _manifest(connection, row)


def read_blob(
    connection: Connection, table: str, column: str, key: int, *, size: int
) -> bytes | None:
    """Return one large value with a single copy; None when it is gone or of another size."""
    try:
        with driver(connection).blobopen(table, column, key, readonly=True) as blob:
            # A damaged length must not make us allocate gigabytes.
            return blob.read() if len(blob) == size else None
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_ERROR:
            return None
        raise


def block_rows(
    connection: Connection, fingerprint: bytes, hashes: Sequence[bytes]
) -> dict[bytes, Row[Any]]:
    """Return the rows of those blocks that are stored, by hash, without payloads."""
    rows: dict[bytes, Row[Any]] = {}
    for chunk in _chunks(hashes):
        query = select(blocks).where(blocks.c.fingerprint == fingerprint, blocks.c.hash.in_(chunk))
        rows.update((row.hash, row) for row in connection.execute(query))
    return rows


def _block(connection: Connection, row: Row[Any]) -> StoredBlock | None:
    payload = read_blob(connection, "payloads", "payload", row.id, size=row.size)
    return None if payload is None else block_of(row, payload)


def block_of(row: Row[Any], payload: bytes) -> StoredBlock | None:
    """Return a block of its row and its payload; None when they contradict each other."""
    block = StoredBlock(row.hash, row.parent, row.token_ids, row.codec, payload, row.crc32)
    return block if _is_bound(block, row.binding) else None


def _is_bound(block: StoredBlock, binding: Any) -> bool:
    # Columns of a damaged row may hold values of any type.
    try:
        return bool(binding_of(block) == binding)
    except (TypeError, AttributeError, OverflowError):
        return False


def _manifest(connection: Connection, row: Row[Any]) -> Manifest | None:
    body = read_blob(connection, "bodies", "body", row.id, size=row.body_size)
    return manifest_of(row, body)


def manifest_of(row: Row[Any], body: bytes | None) -> Manifest | None:
    """Return a manifest of its row and its body; None when they contradict each other."""
    hashes = split_hashes(row.hashes, row.num_blocks)
    if body is None or hashes is None or not isinstance(row.num_tokens, int):
        return None
    return Manifest(row.conversation_id, row.branch, row.fingerprint, row.num_tokens, hashes, body)


def split_hashes(joined: Any, num: Any) -> tuple[bytes, ...] | None:
    """Take hashes of equal length apart; None when they do not divide evenly."""
    if not isinstance(joined, bytes) or not isinstance(num, int) or num < 0:
        return None
    if not num or len(joined) < num or len(joined) % num:
        return None if joined else ()
    size = len(joined) // num
    return tuple(joined[at : at + size] for at in range(0, len(joined), size))


def _chunks(values: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK]
