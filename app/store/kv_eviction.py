"""What kv.db gives up first when its budget is reached, over every model's data.

The conversation least worth keeping loses the blocks that are its alone, tail first: a head without
its tail is still a shorter prefix. Blocks that several conversations name (system prompts) stay
until the last of them goes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, select

from app.store.kv_database import live_bytes
from app.store.kv_removal import drop_blocks, drop_manifest
from app.store.kv_tables import blocks, manifest_blocks, manifests

# A conversation that was restored before counts as used this much later, per restore, four times
# at most: so habits win over a single long evening, but nothing stays for ever.
_BONUS_US = 3 * 86_400 * 1_000_000
_MAX_BONUSES = 4


class EvictionOrder(StrEnum):
    """Who goes first: a mixture, the longest unused, or the least often restored."""

    BALANCED = "balanced"
    RECENCY = "recency"
    FREQUENCY = "frequency"


@dataclass(frozen=True, slots=True)
class Limit:
    """Bytes the pages in use may take, and who goes first when they are reached."""

    num_bytes: int
    order: EvictionOrder = EvictionOrder.BALANCED


def make_room(connection: Connection, need_bytes: int, *, limit: Limit, keep: int | None) -> int:
    """Evict until need_bytes more fit below the limit; return the bytes that fit now.

    keep: the manifest being written; its own blocks are not touched.
    """
    room = limit.num_bytes - live_bytes(connection)
    if room >= need_bytes:
        return room
    for manifest_id in _by_value(connection, limit.order):
        if manifest_id == keep:
            continue
        _shrink(connection, manifest_id, need_bytes - room)
        room = limit.num_bytes - live_bytes(connection)
        if room >= need_bytes:
            break
    return max(0, room)


def _by_value(connection: Connection, order: EvictionOrder) -> list[int]:
    """Return the manifests, least valuable first."""
    query = select(manifests.c.id).order_by(*_values(order))
    return list(connection.execute(query).scalars())


def _values(order: EvictionOrder) -> tuple[ColumnElement[Any], ...]:
    hits, last_use = manifests.c.hits, manifests.c.last_use
    if order is EvictionOrder.RECENCY:
        return (last_use,)
    if order is EvictionOrder.FREQUENCY:
        return (hits, last_use)
    return (last_use + func.min(hits, _MAX_BONUSES) * _BONUS_US,)


def _shrink(connection: Connection, manifest_id: int, wanted_bytes: int) -> None:
    """Drop a manifest's own blocks from its tail; the manifest too when none is left."""
    own = _own_blocks(connection, manifest_id)
    dropped: list[int] = []
    freed = 0
    for block_id, size in own:
        if freed >= wanted_bytes:
            break
        dropped.append(block_id)
        freed += size
    drop_blocks(connection, dropped)
    if len(dropped) == len(own):
        drop_manifest(connection, manifest_id)


def _own_blocks(connection: Connection, manifest_id: int) -> list[tuple[int, int]]:
    """Return (id, size) of the blocks only this manifest names, tail first."""
    other = manifest_blocks.alias()
    is_shared = select(other.c.block_id).where(
        other.c.block_id == manifest_blocks.c.block_id, other.c.manifest_id != manifest_id
    )
    query = (
        select(blocks.c.id, blocks.c.size)
        .join(manifest_blocks, manifest_blocks.c.block_id == blocks.c.id)
        .where(manifest_blocks.c.manifest_id == manifest_id, ~is_shared.exists())
        .order_by(manifest_blocks.c.position.desc())
    )
    return [(row.id, row.size) for row in connection.execute(query)]
