"""Blocks and jobs for the tests of the cold store."""

from __future__ import annotations

import hashlib
import zlib

from engine.memory.storage import Manifest, NewBlock, SnapshotJob, StoredBlock

FINGERPRINT = b"f" * 32


def chain(name: str, num: int, *, size: int = 100_000, parent: bytes = b"") -> list[StoredBlock]:
    blocks = []
    for at in range(num):
        key = hashlib.blake2b(parent + f"{name}{at}".encode(), digest_size=16).digest()
        payload = (name.encode() + bytes([at % 256])) * (size // (len(name) + 1))
        blocks.append(StoredBlock(key, parent, key * 8, "f16", payload, zlib.crc32(payload)))
        parent = key
    return blocks


def hashes(blocks: list[StoredBlock]) -> tuple[bytes, ...]:
    return tuple(block.hash for block in blocks)


def job(conversation, blocks, *, new=None, branch="main", body=b"body", done=None) -> SnapshotJob:
    manifest = Manifest(conversation, branch, FINGERPRINT, 32 * len(blocks), hashes(blocks), body)
    outcome = done if done is not None else []
    offered = tuple(map(offered_of, blocks if new is None else new))
    return SnapshotJob(manifest, offered, outcome.append)


def offered_of(block: StoredBlock) -> NewBlock:
    return NewBlock(block.hash, block.parent, block.token_ids, block.codec, block.payload)
