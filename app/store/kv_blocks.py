"""What rows of blocks and manifests say, in kv.db and in a shared store alike.

On a connection of the caller. Nothing is trusted that a damaged file could hold.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select

from app.store.kv_tables import blocks
from engine.memory.storage import Manifest, StoredBlock

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


def block_rows(
    connection: Connection, fingerprint: bytes, hashes: Sequence[bytes]
) -> dict[bytes, Row[Any]]:
    """Return the rows of those blocks that are stored, by hash, without payloads."""
    rows: dict[bytes, Row[Any]] = {}
    for chunk in _chunks(hashes):
        query = select(blocks).where(blocks.c.fingerprint == fingerprint, blocks.c.hash.in_(chunk))
        rows.update((row.hash, row) for row in connection.execute(query))
    return rows


def block_of(row: Any, payload: bytes) -> StoredBlock | None:
    """Return a block of its row and its payload; None when they contradict each other.

    row: its columns as attributes.
    """
    block = StoredBlock(row.hash, row.parent, row.token_ids, row.codec, payload, row.crc32)
    return block if _is_bound(block, row.binding) else None


def _is_bound(block: StoredBlock, binding: Any) -> bool:
    # Columns of a damaged row may hold values of any type.
    try:
        return bool(binding_of(block) == binding)
    except (TypeError, AttributeError, OverflowError):
        return False


def manifest_of(row: Any, body: bytes | None) -> Manifest | None:
    """Return a manifest of its row and its body; None when they contradict each other.

    row: its columns as attributes.
    """
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
