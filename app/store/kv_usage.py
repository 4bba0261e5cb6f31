"""What kv.db holds, by conversation and model, for the cache panel."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from app.store.kv_tables import blocks, manifest_blocks, manifests


@dataclass(frozen=True, slots=True)
class ConversationUse:
    """One conversation's part of the store, for one model.

    own_bytes: would be free if it were forgotten. shared_bytes: of blocks other conversations name
    too. num_tokens: of its longest branch. last_use: microseconds since 1970.
    """

    conversation_id: str
    fingerprint: bytes
    num_branches: int
    num_tokens: int
    num_blocks: int
    own_bytes: int
    shared_bytes: int
    last_use: int


def usage(connection: Connection) -> list[ConversationUse]:
    """Return every conversation's use, biggest first."""
    named = (
        select(
            manifests.c.conversation_id,
            manifests.c.fingerprint,
            manifest_blocks.c.block_id,
        )
        .join(manifest_blocks, manifest_blocks.c.manifest_id == manifests.c.id)
        .distinct()
        .cte("named")
    )
    owners = (
        select(named.c.block_id, func.count().label("num")).group_by(named.c.block_id).cte("owners")
    )
    own = func.sum(blocks.c.size).filter(owners.c.num == 1)
    shared = func.sum(blocks.c.size).filter(owners.c.num > 1)
    query = (
        select(named.c.conversation_id, named.c.fingerprint, func.count(), own, shared)
        .join(owners, owners.c.block_id == named.c.block_id)
        .join(blocks, blocks.c.id == named.c.block_id)
        .group_by(named.c.conversation_id, named.c.fingerprint)
    )
    sizes = {
        (row[0], row[1]): (row[2], row[3] or 0, row[4] or 0) for row in connection.execute(query)
    }
    uses = [_use(*row, sizes.get((row[0], row[1]), (0, 0, 0))) for row in _branches(connection)]
    return sorted(uses, key=lambda use: use.own_bytes + use.shared_bytes, reverse=True)


def _branches(connection: Connection) -> list[tuple[str, bytes, int, int, int, int]]:
    query = select(
        manifests.c.conversation_id,
        manifests.c.fingerprint,
        func.count(),
        func.max(manifests.c.num_tokens),
        func.sum(manifests.c.body_size),
        func.max(manifests.c.last_use),
    ).group_by(manifests.c.conversation_id, manifests.c.fingerprint)
    return [tuple(row) for row in connection.execute(query)]


def _use(
    conversation_id: str,
    fingerprint: bytes,
    num_branches: int,
    num_tokens: int,
    body_bytes: int,
    last_use: int,
    sizes: tuple[int, int, int],
) -> ConversationUse:
    num_blocks, own_bytes, shared_bytes = sizes
    return ConversationUse(
        conversation_id,
        fingerprint,
        num_branches,
        num_tokens,
        num_blocks,
        own_bytes + body_bytes,
        shared_bytes,
        last_use,
    )
