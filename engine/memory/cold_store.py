"""A cold store in a dictionary: for tests, and for running without a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.memory.storage import StoredBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine.memory.storage import Manifest, SnapshotJob


class MemoryColdStore:
    """ColdStore whose writes are done when ``submit`` returns.

    blocks: by fingerprint and hash. manifests: by fingerprint, conversation and branch, the newest
    last. Both are public, so that a test can damage them.
    """

    def __init__(self, budget_bytes: int = 1 << 40) -> None:
        self.blocks: dict[tuple[bytes, bytes], StoredBlock] = {}
        self.manifests: dict[tuple[bytes, str, str], Manifest] = {}
        self.num_written_bytes = 0
        self._budget_bytes = budget_bytes

    def submit(self, job: SnapshotJob) -> None:
        """Write a job and report."""
        manifest = job.manifest
        for block in job.blocks:
            self.blocks[manifest.fingerprint, block.hash] = _own(block.stored())
            self.num_written_bytes += len(block.payload)
        key = (manifest.fingerprint, manifest.conversation_id, manifest.branch)
        self.manifests.pop(key, None)
        self.manifests[key] = manifest
        self.num_written_bytes += len(manifest.body)
        job.on_done(True)

    def existing(self, fingerprint: bytes, hashes: Sequence[bytes]) -> frozenset[bytes]:
        """Return those of the hashes that are stored."""
        return frozenset(h for h in hashes if (fingerprint, h) in self.blocks)

    def kept(self, fingerprint: bytes, hashes: Sequence[bytes]) -> frozenset[bytes]:
        """Return the same: nobody else keeps any."""
        return self.existing(fingerprint, hashes)

    def read_blocks(self, fingerprint: bytes, hashes: Sequence[bytes]) -> Iterator[StoredBlock]:
        """Yield the stored blocks in the order asked for; missing ones are left out."""
        for block_hash in hashes:
            block = self.blocks.get((fingerprint, block_hash))
            if block is not None:
                yield block

    def read_manifests(
        self, fingerprint: bytes, conversation_id: str, branch: str | None = None
    ) -> Sequence[Manifest]:
        """Return all branches of a conversation for this model, newest first, or the one named."""
        return [
            manifest
            for (model, conversation, name), manifest in reversed(self.manifests.items())
            if (model, conversation) == (fingerprint, conversation_id) and branch in (None, name)
        ]

    def forget(self, conversation_id: str) -> None:
        """Drop a conversation's manifests and the blocks that nothing names any more."""
        self.manifests = {k: m for k, m in self.manifests.items() if k[1] != conversation_id}
        named = {(m.fingerprint, h) for m in self.manifests.values() for h in m.block_hashes}
        self.blocks = {key: block for key, block in self.blocks.items() if key in named}

    def discard_blocks(self, fingerprint: bytes, hashes: Sequence[bytes]) -> None:
        """Drop damaged blocks."""
        for block_hash in hashes:
            self.blocks.pop((fingerprint, block_hash), None)

    def used_bytes(self) -> int:
        """Bytes of all payloads and bodies."""
        bodies = sum(len(manifest.body) for manifest in self.manifests.values())
        return bodies + sum(len(block.payload) for block in self.blocks.values())

    def budget_bytes(self) -> int:
        """Bytes the store may take."""
        return self._budget_bytes


def _own(block: StoredBlock) -> StoredBlock:
    """Return the block with a payload of its own: the one of a job dies with the job."""
    return StoredBlock(
        block.hash, block.parent, block.token_ids, block.codec, bytes(block.payload), block.crc32
    )
