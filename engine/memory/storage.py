"""The contract between the engine and what keeps its memory beyond the process: the cold stores.

What lies in a store, what is written to it, and what every store can do. No SQL, no tensors here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from engine.kernels.checksum import crc32


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """One sealed block as the cold store keeps it.

    hash: 16 bytes, chain hash. parent: hash of the block before, b"" at the start. token_ids: int32
    little-endian, block_size of them. crc32: of payload. codec: a KVCodec value.
    """

    hash: bytes
    parent: bytes
    token_ids: bytes
    codec: str
    payload: bytes | memoryview
    crc32: int


@dataclass(frozen=True, slots=True)
class NewBlock:
    """One sealed block on its way into the cold store: a stored one without its checksum."""

    hash: bytes
    parent: bytes
    token_ids: bytes
    codec: str
    payload: bytes | memoryview

    def stored(self) -> StoredBlock:
        """Return the block with its checksum, which takes its time: for the writer thread."""
        return StoredBlock(
            self.hash,
            self.parent,
            self.token_ids,
            self.codec,
            self.payload,
            crc32(self.payload),
        )


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a conversation branch needs to resume; written in one transaction with its blocks.

    body is opaque to the store (format of engine/memory/snapshot.py, self-verifying).
    block_hashes: of the blocks it wants kept, in order, for the store's reference counting.
    """

    conversation_id: str
    branch: str
    fingerprint: bytes
    num_tokens: int
    block_hashes: tuple[bytes, ...]
    body: bytes


@dataclass(slots=True)
class SnapshotJob:
    """A manifest with the blocks not stored yet; payloads stay pinned until ``on_done`` is called.

    The KV writer thread calls ``on_done(written)`` exactly once, also after a failure (False).
    """

    manifest: Manifest
    blocks: tuple[NewBlock, ...]
    on_done: Callable[[bool], None] = field(default=lambda written: None)


class ColdStore(Protocol):
    """The cold tier: content-addressed blocks and the manifests that name them.

    Reads may come from the engine thread while the writer thread writes. Implementations raise
    StoreError; they never return a row they could not read in full.
    """

    def submit(self, job: SnapshotJob) -> None:
        """Queue a job for the writer thread; returns at once."""
        ...

    def existing(self, fingerprint: bytes, hashes: Sequence[bytes]) -> frozenset[bytes]:
        """Return those of the hashes that can be read."""
        ...

    def kept(self, fingerprint: bytes, hashes: Sequence[bytes]) -> frozenset[bytes]:
        """Return those of the hashes that a job need not bring: they are stored here for good.

        A store may read others as well, which somebody else keeps.
        """
        ...

    def read_blocks(self, fingerprint: bytes, hashes: Sequence[bytes]) -> Iterable[StoredBlock]:
        """Yield the stored blocks in the order asked for; missing ones are left out."""
        ...

    def read_manifests(
        self, fingerprint: bytes, conversation_id: str, branch: str | None = None
    ) -> Sequence[Manifest]:
        """Return all branches of a conversation for this model, newest first, or the one named."""
        ...

    def forget(self, conversation_id: str) -> None:
        """Drop a conversation's manifests; blocks that nothing names go with them."""
        ...

    def discard_blocks(self, fingerprint: bytes, hashes: Sequence[bytes]) -> None:
        """Drop damaged blocks."""
        ...

    def used_bytes(self) -> int:
        """Bytes really on disk."""
        ...

    def budget_bytes(self) -> int:
        """Bytes the store may take."""
        ...
