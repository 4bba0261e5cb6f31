"""Reading from a shared store, on a connection of the caller. Nothing read is trusted.

Whoever may write there can write anything: rows of odd sizes and types are left out here, texts
are parsed like an imported file, and what is in a block the engine verifies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, func, select
from sqlalchemy.dialects.postgresql import aggregate_order_by

from app.store import kv_blocks
from app.store.kv_tables import bodies, manifests
from app.store.shared.database import driver
from app.store.shared.tables import SCHEMA, conversations, messages
from app.store.shared.text import SharedText
from engine.memory.storage import Manifest, StoredBlock

MAX_BLOCK_BYTES = 256 << 20
_MAX_BODY_BYTES = 1 << 30
_MAX_TEXT_BYTES = 64 << 20

# Binary, or every byte would travel as two hexadecimal digits.
_PAYLOADS = (
    f"SELECT id, payload FROM {SCHEMA}.payloads WHERE id = ANY(%s) AND octet_length(payload) <= %s"
)


@dataclass(frozen=True, slots=True)
class SharedManifest:
    """A manifest on the server, without its body. version: other after each change."""

    fingerprint: bytes
    conversation_id: str
    branch: str
    num_tokens: int
    version: int
    hashes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class SharedConversation:
    """A conversation on the server. updated_at: microseconds since 1970, by its clock."""

    id: str
    title: str
    version: int
    updated_at: int


def list_manifests(
    connection: Connection, conversation_id: str | None = None
) -> Iterator[SharedManifest]:
    """Yield every manifest, or those of one conversation; odd ones are left out."""
    columns = manifests.c
    query = select(
        columns.fingerprint,
        columns.conversation_id,
        columns.branch,
        columns.num_tokens,
        columns.updated_at,
        columns.hashes,
        columns.num_blocks,
    )
    if conversation_id is not None:
        query = query.where(columns.conversation_id == conversation_id)
    for row in connection.execute(query):
        hashes = kv_blocks.split_hashes(row.hashes, row.num_blocks)
        if hashes is not None:
            yield SharedManifest(*row[:5], hashes=hashes)


def read_manifest(connection: Connection, known: SharedManifest) -> tuple[Manifest, int] | None:
    """Return a manifest with its body, and its version; None when it is gone or odd."""
    query = (
        select(manifests, bodies.c.body)
        .join(bodies, bodies.c.id == manifests.c.id)
        .where(
            manifests.c.fingerprint == known.fingerprint,
            manifests.c.conversation_id == known.conversation_id,
            manifests.c.branch == known.branch,
            func.octet_length(bodies.c.body) == manifests.c.body_size,
            manifests.c.body_size <= _MAX_BODY_BYTES,
        )
    )
    row = connection.execute(query).first()
    manifest = None if row is None else kv_blocks.manifest_of(row, row.body)
    return None if manifest is None or row is None else (manifest, row.updated_at)


def read_blocks(
    connection: Connection, fingerprint: bytes, hashes: Sequence[bytes]
) -> list[StoredBlock]:
    """Return those of the blocks that are there and agree with themselves, in this order."""
    rows = kv_blocks.block_rows(connection, fingerprint, hashes)
    payloads = _payloads(connection, [row.id for row in rows.values()])
    found: list[StoredBlock] = []
    for key in hashes:
        row = rows.get(key)
        payload = None if row is None else payloads.get(row.id)
        if row is None or payload is None or len(payload) != row.size:
            continue
        block = kv_blocks.block_of(row, payload)
        if block is not None:
            found.append(block)
    return found


def list_conversations(
    connection: Connection, conversation_id: str | None = None
) -> list[SharedConversation]:
    """Return every conversation, or the one named, newest first."""
    columns = conversations.c
    query = select(columns.id, columns.title, columns.version, columns.updated_at)
    if conversation_id is not None:
        query = query.where(columns.id == conversation_id)
    rows = connection.execute(query.order_by(columns.updated_at.desc()))
    return [SharedConversation(*row) for row in rows]


def read_text(connection: Connection, conversation_id: str) -> SharedText | None:
    """Return a conversation's text; None when it is gone or too large to be one."""
    # One statement: between two of them another machine may write.
    parts = messages.c
    mine = parts.conversation_id == conversation_id
    size = select(func.coalesce(func.sum(func.octet_length(parts.document)), 0)).where(mine)
    # Sent in the order of writing, but rows have none; the texts say who follows whom.
    documents = select(func.array_agg(aggregate_order_by(parts.document, parts.id))).where(mine)
    rows = conversations.c
    row = connection.execute(
        select(rows.version, rows.document, documents.scalar_subquery()).where(
            rows.id == conversation_id,
            func.octet_length(rows.document) + size.scalar_subquery() <= _MAX_TEXT_BYTES,
        )
    ).first()
    return None if row is None else SharedText(row[0], row[1], tuple(row[2] or ()))


def _payloads(connection: Connection, ids: list[int]) -> dict[int, bytes]:
    with driver(connection).cursor(binary=True) as cursor:
        rows: list[Any] = cursor.execute(_PAYLOADS, (ids, MAX_BLOCK_BYTES)).fetchall()
    return {row[0]: row[1] for row in rows}
