"""Writing to a shared store, on a connection and in a transaction of the caller.

Blocks are immutable and named by their content, so two machines that write the same one agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    cast,
    delete,
    exists,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert

from app.store import kv_blocks
from app.store.kv_removal import drop_blocks
from app.store.kv_tables import blocks, bodies, manifest_blocks, manifests, payloads
from app.store.kv_writes import link
from app.store.shared.tables import CHANNEL, conversations, messages
from app.store.shared.text import OutgoingText
from engine.memory.storage import Manifest, StoredBlock

KEEP_UNNAMED_DAYS = 7
KEEP_UNUSED_DAYS = 180
_DAY_US = 86_400 * 1_000_000
_SWEEP_LOCK = 0x5250_5254


def lacking(connection: Connection, fingerprint: bytes, hashes: Sequence[bytes]) -> list[bytes]:
    """Return the hashes that are not there, in order; those that are will stay for days."""
    found = kv_blocks.existing(connection, fingerprint, hashes)
    connection.execute(
        update(blocks).where(blocks.c.id.in_(found.values())).values(last_use=_now())
    )
    return [key for key in dict.fromkeys(hashes) if key not in found]


def put_blocks(connection: Connection, fingerprint: bytes, new: Iterable[StoredBlock]) -> None:
    """Insert blocks; those that another machine inserts first are left as they are."""
    # In one order everywhere: two machines with the same blocks must not wait for each other.
    for block in sorted(new, key=lambda one: one.hash):
        statement = (
            insert(blocks)
            .values(
                fingerprint=fingerprint,
                hash=block.hash,
                parent=block.parent,
                token_ids=block.token_ids,
                codec=block.codec,
                crc32=block.crc32,
                binding=kv_blocks.binding_of(block),
                size=len(block.payload),
                last_use=_now(),
            )
            .on_conflict_do_nothing()
            .returning(blocks.c.id)
        )
        key = connection.execute(statement).scalar()
        if key is not None:
            connection.execute(insert(payloads).values(id=key, payload=bytes(block.payload)))


def put_manifest(connection: Connection, manifest: Manifest) -> int:
    """Insert or replace a manifest, name its blocks, tell the others; return its version."""
    hashes = manifest.block_hashes
    values = {
        "num_tokens": manifest.num_tokens,
        "num_blocks": len(hashes),
        "hashes": b"".join(hashes),
        "body_size": len(manifest.body),
        "last_use": _now(),
    }
    key = ("conversation_id", "branch", "fingerprint")
    statement = insert(manifests).values(
        conversation_id=manifest.conversation_id,
        branch=manifest.branch,
        fingerprint=manifest.fingerprint,
        updated_at=_now(),
        **values,
    )
    # A version is never used twice, whatever the server's clock does.
    later = func.greatest(manifests.c.updated_at + 1, _now())
    statement = statement.on_conflict_do_update(
        index_elements=key, set_={**values, "updated_at": later}
    )
    row = connection.execute(statement.returning(manifests.c.id, manifests.c.updated_at)).one()
    body = {"body": manifest.body}
    connection.execute(
        insert(bodies)
        .values(id=row.id, **body)
        .on_conflict_do_update(index_elements=["id"], set_=body)
    )
    link(connection, row.id, hashes, kv_blocks.existing(connection, manifest.fingerprint, hashes))
    notify(connection, manifest.conversation_id)
    return int(row.updated_at)


def put_text(connection: Connection, sent: OutgoingText) -> int:
    """Insert or replace a conversation's text, tell the others; return its version.

    Messages that other machines wrote stay; those that are gone go.
    """
    values = {"title": sent.title, "document": sent.document, "updated_at": _now()}
    statement = insert(conversations).values(id=sent.id, version=1, **values)
    statement = statement.on_conflict_do_update(
        index_elements=["id"], set_={**values, "version": conversations.c.version + 1}
    )
    version = connection.execute(statement.returning(conversations.c.version)).scalar_one()
    rows = [
        {"conversation_id": sent.id, "id": key, "document": document}
        for key, document in sorted(sent.parts.items())
    ]
    part = insert(messages)
    part = part.on_conflict_do_update(
        index_elements=["conversation_id", "id"], set_={"document": part.excluded.document}
    )
    if rows:
        connection.execute(part, rows)
    is_gone = messages.c.id.in_(sent.gone)
    connection.execute(delete(messages).where(messages.c.conversation_id == sent.id, is_gone))
    notify(connection, sent.id)
    return int(version)


def forget(connection: Connection, conversation_id: str) -> None:
    """Drop a conversation: text, manifests, and the blocks that nothing else names."""
    ids = list(
        connection.execute(
            select(manifests.c.id).where(manifests.c.conversation_id == conversation_id)
        ).scalars()
    )
    _drop_manifests(connection, ids)
    connection.execute(delete(conversations).where(conversations.c.id == conversation_id))
    notify(connection, conversation_id)


def discard_blocks(connection: Connection, fingerprint: bytes, hashes: Sequence[bytes]) -> None:
    """Drop damaged blocks; whoever has a sound one sends it again with the next turn."""
    drop_blocks(connection, kv_blocks.existing(connection, fingerprint, hashes).values())


def sweep(connection: Connection) -> int:
    """Drop what nobody used for long and blocks nothing names for days; return their number.

    Another machine that is at it already does it for all.
    """
    lock = text("SELECT pg_try_advisory_xact_lock(:key)")
    if not connection.execute(lock, {"key": _SWEEP_LOCK}).scalar():
        return 0
    unused = manifests.c.last_use < _now() - KEEP_UNUSED_DAYS * _DAY_US
    _drop_manifests(
        connection, list(connection.execute(select(manifests.c.id).where(unused)).scalars())
    )
    return _drop_unnamed(connection, blocks.c.last_use < _now() - KEEP_UNNAMED_DAYS * _DAY_US)


def notify(connection: Connection, conversation_id: str) -> None:
    """Tell every machine, this one too, when the transaction is done: a conversation changed."""
    connection.execute(select(func.pg_notify(CHANNEL, conversation_id)))


def _drop_manifests(connection: Connection, ids: list[int]) -> None:
    links = manifest_blocks.c.manifest_id.in_(ids)
    named = list(
        connection.execute(select(manifest_blocks.c.block_id).where(links).distinct()).scalars()
    )
    connection.execute(delete(manifest_blocks).where(links))
    connection.execute(delete(bodies).where(bodies.c.id.in_(ids)))
    connection.execute(delete(manifests).where(manifests.c.id.in_(ids)))
    _drop_unnamed(connection, blocks.c.id.in_(named))


def _drop_unnamed(connection: Connection, which: ColumnElement[bool]) -> int:
    is_named = exists().where(manifest_blocks.c.block_id == blocks.c.id)
    gone = list(connection.execute(select(blocks.c.id).where(which, ~is_named)).scalars())
    connection.execute(delete(payloads).where(payloads.c.id.in_(gone)))
    connection.execute(delete(blocks).where(blocks.c.id.in_(gone)))
    return len(gone)


def _now() -> ColumnElement[int]:
    """Return microseconds since 1970 by the server's clock: those of the machines differ."""
    return cast(func.extract("epoch", func.clock_timestamp()) * 1_000_000, BigInteger)
