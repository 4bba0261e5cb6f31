"""Writing to kv.db: one function per kind of change, each inside a transaction of the caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from app.store.kv_blocks import binding_of
from app.store.kv_database import PAGE_SIZE, driver
from app.store.kv_eviction import Limit, make_room
from app.store.kv_reads import existing
from app.store.kv_removal import drop_unnamed
from app.store.kv_tables import blocks, bodies, manifest_blocks, manifests
from engine.memory.storage import Manifest, NewBlock, SnapshotJob

_INSERT_BLOCK = (
    "INSERT INTO blocks (fingerprint, hash, parent, token_ids, codec, crc32, binding, size, "
    "last_use) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True, slots=True)
class Written:
    """What a job brought: new blocks and bytes of payload, blocks there was no room for."""

    num_blocks: int
    num_bytes: int
    num_left_out: int


def write_job(
    connection: Connection, job: SnapshotJob, *, limit: Limit, rest: Callable[[float], None]
) -> Written:
    """Store a manifest and those of its blocks that are not there yet.

    Makes room first, so that the pages in use stay within the limit; where even that does not
    help, the head of the chain is kept and the tail left out. rest: called after every block with
    the seconds of processor time it took.
    """
    manifest = job.manifest
    stored = existing(connection, manifest.fingerprint, manifest.block_hashes)
    manifest_id = put_manifest(connection, manifest)
    # Links come before evictions, or room would be made with the very blocks this job relies on.
    drop_unnamed(connection, link(connection, manifest_id, manifest.block_hashes, stored))
    new = _new_blocks(job, stored)
    room = make_room(connection, sum(map(cost_of, new)), limit=limit, keep=manifest_id)
    fitting = _fitting(new, room)
    for block in fitting:
        started = time.thread_time()
        stored[block.hash] = _insert_block(connection, manifest.fingerprint, block)
        rest(time.thread_time() - started)
    if fitting:
        drop_unnamed(connection, link(connection, manifest_id, manifest.block_hashes, stored))
    # The estimate leaves out pages that split; what they took is given back at once.
    make_room(connection, 0, limit=limit, keep=manifest_id)
    num_bytes = sum(size_of(block) for block in fitting)
    return Written(len(fitting), num_bytes, len(new) - len(fitting))


def size_of(block: NewBlock) -> int:
    """Return the bytes of a block's payload."""
    return memoryview(block.payload).nbytes


def cost_of(block: NewBlock) -> int:
    """Return the bytes of file a block needs, with its share of half-filled and index pages."""
    return size_of(block) + size_of(block) // 64 + PAGE_SIZE // 16


def touch(connection: Connection, uses: Mapping[tuple[bytes, bytes], int]) -> None:
    """Count reads of blocks. uses: (fingerprint, hash) -> times."""
    statement = (
        update(blocks)
        .where(blocks.c.fingerprint == bindparam("f"), blocks.c.hash == bindparam("h"))
        .values(hits=blocks.c.hits + bindparam("n"), last_use=timestamp())
    )
    rows = [{"f": key[0], "h": key[1], "n": count} for key, count in uses.items()]
    connection.execute(statement, rows)


def touch_manifests(connection: Connection, uses: Mapping[tuple[bytes, str], int]) -> None:
    """Count restores of conversations. uses: (fingerprint, conversation_id) -> times."""
    statement = (
        update(manifests)
        .where(
            manifests.c.fingerprint == bindparam("f"),
            manifests.c.conversation_id == bindparam("c"),
        )
        .values(hits=manifests.c.hits + bindparam("n"), last_use=timestamp())
    )
    rows = [{"f": key[0], "c": key[1], "n": count} for key, count in uses.items()]
    connection.execute(statement, rows)


def timestamp() -> int:
    """Return microseconds since 1970."""
    return time.time_ns() // 1_000


def put_manifest(connection: Connection, manifest: Manifest) -> int:
    """Insert or replace a manifest with its body, without links; return its row id."""
    values = {
        "num_tokens": manifest.num_tokens,
        "num_blocks": len(manifest.block_hashes),
        "hashes": b"".join(manifest.block_hashes),
        "body_size": len(manifest.body),
        "updated_at": timestamp(),
        "last_use": timestamp(),
    }
    key = {
        "conversation_id": manifest.conversation_id,
        "branch": manifest.branch,
        "fingerprint": manifest.fingerprint,
    }
    conditions = [manifests.c[name] == value for name, value in key.items()]
    found = connection.execute(select(manifests.c.id).where(*conditions)).scalar()
    if found is None:
        found = connection.execute(insert(manifests).values(**key, **values)).lastrowid
    else:
        connection.execute(update(manifests).where(manifests.c.id == found).values(**values))
        # Deleted first: an update would fill other pages before it frees those of the old body.
        connection.execute(delete(bodies).where(bodies.c.id == found))
    connection.execute(insert(bodies).values(id=found, body=manifest.body))
    return int(found)


def link(
    connection: Connection, manifest_id: int, hashes: Sequence[bytes], stored: Mapping[bytes, int]
) -> set[int]:
    """Make the links of a manifest what it names and what is stored.

    Returns the row ids of the blocks it does not name any more; nothing may name them now.
    """
    query = select(manifest_blocks.c.position, manifest_blocks.c.block_id).where(
        manifest_blocks.c.manifest_id == manifest_id
    )
    before = {row.position: row.block_id for row in connection.execute(query)}
    after = {at: stored[key] for at, key in enumerate(hashes) if key in stored}
    stale = [at for at, block_id in before.items() if after.get(at) != block_id]
    if stale:
        _unlink(connection, manifest_id, stale)
    fresh = [
        {"manifest_id": manifest_id, "position": at, "block_id": block_id}
        for at, block_id in after.items()
        if before.get(at) != block_id
    ]
    if fresh:
        connection.execute(insert(manifest_blocks), fresh)
    return {before[at] for at in stale}


def _unlink(connection: Connection, manifest_id: int, positions: Sequence[int]) -> None:
    statement = delete(manifest_blocks).where(
        manifest_blocks.c.manifest_id == manifest_id,
        manifest_blocks.c.position == bindparam("at"),
    )
    connection.execute(statement, [{"at": at} for at in positions])


def _new_blocks(job: SnapshotJob, stored: Mapping[bytes, int]) -> list[NewBlock]:
    """Return the blocks to be written, each once, head of the chain first."""
    offered = {block.hash: block for block in job.blocks if block.hash not in stored}
    return [offered[key] for key in dict.fromkeys(job.manifest.block_hashes) if key in offered]


def _fitting(new: Sequence[NewBlock], room: int) -> list[NewBlock]:
    fitting = []
    for block in new:
        room -= cost_of(block)
        if room < 0:
            break
        fitting.append(block)
    return fitting


def _insert_block(connection: Connection, fingerprint: bytes, new: NewBlock) -> int:
    """Insert a block, by the driver's own statements; return its row id.

    The payload is written into its pages in place. As a parameter, SQLite would copy it twice more.
    """
    raw, block, num_bytes = driver(connection), new.stored(), size_of(new)
    names = (block.hash, block.parent, block.token_ids, block.codec)
    numbers = (block.crc32, binding_of(block), num_bytes, timestamp())
    block_id = raw.execute(_INSERT_BLOCK, (fingerprint, *names, *numbers)).lastrowid
    assert block_id is not None
    raw.execute("INSERT INTO payloads (id, payload) VALUES (?, zeroblob(?))", (block_id, num_bytes))
    with raw.blobopen("payloads", "payload", block_id) as blob:
        blob.write(block.payload)
    return block_id
