"""Removing from kv.db: what is forgotten, damaged or left over, in the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, bindparam, delete, exists, select

from app.store.kv_blocks import existing
from app.store.kv_tables import blocks, bodies, manifest_blocks, manifests, payloads


def forget(connection: Connection, conversation_id: str) -> None:
    """Drop a conversation's manifests, and the blocks that nothing else names."""
    ids = select(manifests.c.id).where(manifests.c.conversation_id == conversation_id)
    for manifest_id in list(connection.execute(ids).scalars()):
        drop_manifest(connection, manifest_id)


def drop_manifest(connection: Connection, manifest_id: int) -> None:
    """Drop one manifest, and the blocks that nothing else names."""
    links = manifest_blocks.c.manifest_id == manifest_id
    block_ids = list(connection.execute(select(manifest_blocks.c.block_id).where(links)).scalars())
    connection.execute(delete(manifest_blocks).where(links))
    connection.execute(delete(bodies).where(bodies.c.id == manifest_id))
    connection.execute(delete(manifests).where(manifests.c.id == manifest_id))
    drop_unnamed(connection, block_ids)


def discard_blocks(connection: Connection, fingerprint: bytes, hashes: Sequence[bytes]) -> None:
    """Drop damaged blocks, whoever names them."""
    drop_blocks(connection, existing(connection, fingerprint, hashes).values())


def drop_unnamed(connection: Connection, block_ids: Iterable[int]) -> None:
    """Drop those of the blocks that no manifest names."""
    is_named = select(manifest_blocks.c.block_id).where(
        manifest_blocks.c.block_id == bindparam("key")
    )
    unnamed = [
        key
        for key in block_ids
        if connection.execute(is_named.limit(1), {"key": key}).first() is None
    ]
    drop_blocks(connection, unnamed)


def drop_blocks(connection: Connection, block_ids: Iterable[int]) -> None:
    """Drop blocks with their payloads and the links to them."""
    rows = [{"key": key} for key in block_ids]
    if not rows:
        return
    for column in (manifest_blocks.c.block_id, payloads.c.id, blocks.c.id):
        connection.execute(delete(column.table).where(column == bindparam("key")), rows)


def sweep(connection: Connection) -> int:
    """Drop what nothing names and what lacks its other half; return the number of blocks dropped.

    Such rows cannot come from a whole transaction of ours, but from a file mended by hand.
    """
    named = exists().where(manifest_blocks.c.block_id == blocks.c.id)
    has_payload = exists().where(payloads.c.id == blocks.c.id)
    orphans = select(blocks.c.id).where(~named | ~has_payload)
    block_ids = list(connection.execute(orphans).scalars())
    drop_blocks(connection, block_ids)
    known = select(blocks.c.id)
    connection.execute(delete(payloads).where(payloads.c.id.not_in(known)))
    has_body = select(bodies.c.id)
    halves = select(manifests.c.id).where(manifests.c.id.not_in(has_body))
    for manifest_id in list(connection.execute(halves).scalars()):
        drop_manifest(connection, manifest_id)
    connection.execute(delete(bodies).where(bodies.c.id.not_in(select(manifests.c.id))))
    return len(block_ids)
