"""What kv.db notes of its replica on a server: which manifests and texts are there, as of when.

Reads run on the caller's thread, writes on the KV writer's. A note that is lost, or one about
another server, costs a comparison, never a state.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select
from sqlalchemy.dialects.sqlite import insert as insert_or_replace

from app.store import kv_reads
from app.store.kv_database import KVDatabase
from app.store.kv_removal import drop_unnamed
from app.store.kv_tables import manifests, replicas, texts
from app.store.kv_writes import link, put_manifest
from engine.errors import StoreError
from engine.memory.storage import Manifest, StoredBlock

Key = tuple[bytes, str, str]
Reading = Callable[[], AbstractContextManager[KVDatabase]]
Write = Callable[[], Any]

_WAIT_S = 30.0


@dataclass(frozen=True, slots=True)
class Unreplicated:
    """A manifest that the server lacks in its present form. updated_at: which form that is."""

    manifest_id: int
    conversation_id: str
    updated_at: int


@dataclass(frozen=True, slots=True)
class TextNote:
    """A conversation's text as it was last sent or taken over. remote: its version then."""

    digest: bytes
    remote: int


class KVReplicas:
    """The notes of one kv.db. Raises: StoreError, from every method."""

    def __init__(
        self, database: KVDatabase, reading: Reading, run: Callable[[Write], Future[Any]]
    ) -> None:
        self._database = database
        self._reading = reading
        self._run = run

    @property
    def is_writable(self) -> bool:
        """Whether this process is the one that writes, and so the one that replicates."""
        return self._database.is_writable

    def unreplicated(self, server: str) -> list[Unreplicated]:
        """Return the manifests that were written after they were replicated, oldest first."""
        query = _unreplicated(server).order_by(manifests.c.updated_at)
        with self._reading() as database, database.reading() as connection:
            return [Unreplicated(*row) for row in connection.execute(query)]

    def remotes(self, server: str) -> dict[Key, int]:
        """Return (fingerprint, conversation, branch) -> version on the server, as noted."""
        query = (
            select(
                manifests.c.fingerprint,
                manifests.c.conversation_id,
                manifests.c.branch,
                replicas.c.remote,
            )
            .join(replicas, replicas.c.manifest_id == manifests.c.id)
            .where(replicas.c.server == server)
        )
        with self._reading() as database, database.reading() as connection:
            return {(row[0], row[1], row[2]): row[3] for row in connection.execute(query)}

    def manifest(self, manifest_id: int) -> Manifest | None:
        """Return a manifest; None when it is gone or damaged."""
        with self._reading() as database, database.reading() as connection:
            return kv_reads.read_manifest(connection, manifest_id)

    def blocks(self, fingerprint: bytes, hashes: list[bytes]) -> list[StoredBlock]:
        """Return those of the blocks that are stored here; does not count as a use of them."""
        with self._reading() as database, database.reading() as connection:
            return list(kv_reads.read_blocks(connection, fingerprint, hashes))

    def mark(self, done: Unreplicated, server: str, remote: int) -> None:
        """Note that a manifest lies on the server in the form it had when it was read."""
        values = {"server": server, "updated_at": done.updated_at, "remote": remote}
        self._write(lambda connection: _put(connection, done.manifest_id, values))

    def receive(self, manifest: Manifest, server: str, remote: int) -> bool:
        """Take a manifest over from the server; False where one of ours is still to be sent.

        Its blocks stay there until a conversation goes on.
        """
        return bool(self._write(lambda connection: _receive(connection, manifest, server, remote)))

    def text(self, conversation_id: str, server: str) -> TextNote | None:
        """Return the note about a conversation's text; None before it was first exchanged."""
        query = select(texts.c.digest, texts.c.remote).where(
            texts.c.conversation_id == conversation_id, texts.c.server == server
        )
        with self._reading() as database, database.reading() as connection:
            row = connection.execute(query).first()
        return None if row is None else TextNote(*row)

    def note_text(self, conversation_id: str, server: str, note: TextNote) -> None:
        """Replace the note about a conversation's text."""
        values = {"server": server, "digest": note.digest, "remote": note.remote}
        statement = insert_or_replace(texts).values(conversation_id=conversation_id, **values)
        statement = statement.on_conflict_do_update(index_elements=["conversation_id"], set_=values)
        self._write(lambda connection: connection.execute(statement))

    def forget(self, conversation_id: str) -> None:
        """Drop the notes about a conversation that was taken from the server."""
        self._write(lambda connection: _forget(connection, conversation_id))

    def _write(self, change: Callable[[Connection], Any]) -> Any:
        if not self._database.is_writable:
            raise StoreError("Another running Reprise keeps the stored states.")

        def run() -> Any:
            with self._database.writing() as connection:
                return change(connection)

        with self._reading():
            try:
                return self._run(run).result(_WAIT_S)
            except (CancelledError, TimeoutError) as error:
                raise StoreError("The stored states are being closed.") from error


def _unreplicated(server: str) -> Any:
    is_there = (
        select(replicas.c.manifest_id)
        .where(
            replicas.c.manifest_id == manifests.c.id,
            replicas.c.updated_at == manifests.c.updated_at,
            replicas.c.server == server,
        )
        .exists()
    )
    columns = (manifests.c.id, manifests.c.conversation_id, manifests.c.updated_at)
    return select(*columns).where(~is_there)


def _put(connection: Connection, manifest_id: int, values: dict[str, Any]) -> None:
    statement = insert_or_replace(replicas).values(manifest_id=manifest_id, **values)
    connection.execute(statement.on_conflict_do_update(index_elements=["manifest_id"], set_=values))


def _receive(connection: Connection, manifest: Manifest, server: str, remote: int) -> bool:
    row = _own_row(connection, manifest)
    if row is not None and not _is_replicated(connection, row, server):
        return False
    manifest_id = put_manifest(connection, manifest)
    hashes = manifest.block_hashes
    stored = kv_reads.existing(connection, manifest.fingerprint, hashes)
    drop_unnamed(connection, link(connection, manifest_id, hashes, stored))
    updated_at = connection.execute(
        select(manifests.c.updated_at).where(manifests.c.id == manifest_id)
    ).scalar_one()
    _put(connection, manifest_id, {"server": server, "updated_at": updated_at, "remote": remote})
    return True


def _own_row(connection: Connection, manifest: Manifest) -> Any:
    query = select(manifests.c.id, manifests.c.updated_at).where(
        manifests.c.conversation_id == manifest.conversation_id,
        manifests.c.branch == manifest.branch,
        manifests.c.fingerprint == manifest.fingerprint,
    )
    return connection.execute(query).first()


def _is_replicated(connection: Connection, row: Row[Any], server: str) -> bool:
    query = select(func.count()).where(
        replicas.c.manifest_id == row.id,
        replicas.c.updated_at == row.updated_at,
        replicas.c.server == server,
    )
    return bool(connection.execute(query).scalar())


def _forget(connection: Connection, conversation_id: str) -> None:
    ids = select(manifests.c.id).where(manifests.c.conversation_id == conversation_id)
    connection.execute(delete(replicas).where(replicas.c.manifest_id.in_(ids)))
    connection.execute(delete(texts).where(texts.c.conversation_id == conversation_id))
