"""Sends what kv.db holds to the shared store, so that stopping at any moment loses nothing.

Blocks go first, a few in a transaction, the manifest that names them last. What is there already
is not sent again, whoever sent it.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator

from app.store.kv_replicas import KVReplicas, Unreplicated
from app.store.shared.database import SharedDatabase
from app.store.shared.errors import SharedConflictError
from app.store.shared.reads import MAX_BLOCK_BYTES
from app.store.shared.writes import lacking, put_blocks, put_manifest
from engine.memory.storage import Manifest, StoredBlock

log = logging.getLogger(__name__)

_BATCH_BYTES = 4 << 20
_READ_AT_ONCE = 16
_MAX_CONFLICTS = 5


class Sender:
    """Sends manifests of one kv.db to one server. is_stopped is asked between transactions."""

    def __init__(
        self,
        database: SharedDatabase,
        replicas: KVReplicas,
        *,
        server: str,
        is_stopped: Callable[[], bool],
    ) -> None:
        self.num_bytes = 0
        self._database = database
        self._replicas = replicas
        self._server = server
        self._is_stopped = is_stopped

    def waiting(self) -> list[Unreplicated]:
        """Return what is to be sent, the longest waiting first. Raises: StoreError."""
        return self._replicas.unreplicated(self._server)

    def send(self, one: Unreplicated) -> bool:
        """Send one manifest with its blocks; False when stopped before the end.

        Raises: SharedStoreError kinds, StoreError.
        """
        for _ in range(_MAX_CONFLICTS):
            try:
                return self._send(one)
            except SharedConflictError as error:
                log.info("shared store: %s", error.detail)
        return self._send(one)

    def _send(self, one: Unreplicated) -> bool:
        manifest = self._replicas.manifest(one.manifest_id)
        if manifest is None:
            return True
        with self._database.writing() as connection:
            missing = lacking(connection, manifest.fingerprint, manifest.block_hashes)
        for batch in _batches(self._sound(manifest, missing)):
            if self._is_stopped():
                return False
            with self._database.writing() as connection:
                put_blocks(connection, manifest.fingerprint, batch)
            self.num_bytes += sum(len(block.payload) for block in batch)
        if self._is_stopped():
            return False
        with self._database.writing() as connection:
            version = put_manifest(connection, manifest)
        self._replicas.mark(one, self._server, version)
        return True

    def _sound(self, manifest: Manifest, hashes: list[bytes]) -> Iterator[StoredBlock]:
        """Yield those of the blocks that are here and not damaged."""
        for at in range(0, len(hashes), _READ_AT_ONCE):
            found = self._replicas.blocks(manifest.fingerprint, hashes[at : at + _READ_AT_ONCE])
            for block in found:
                is_sound = zlib.crc32(block.payload) == block.crc32
                if is_sound and len(block.payload) <= MAX_BLOCK_BYTES:
                    yield block


def _batches(blocks: Iterator[StoredBlock]) -> Iterator[list[StoredBlock]]:
    batch: list[StoredBlock] = []
    for block in blocks:
        batch.append(block)
        if sum(len(one.payload) for one in batch) >= _BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch
