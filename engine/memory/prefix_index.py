"""Which blocks hold which text: chain hashes and the hot blocks they lead to.

A block's hash covers every token from position 0 to its end, so equal hashes mean equal keys and
values. Knows no tensors and no sequences.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine.config import KVCodec
    from engine.memory.block_pool import Block

HASH_BYTES = 16
TOKEN_BYTES = 4
ROOT = b""


def chain_salt(fingerprint: bytes, codec: KVCodec, block_size: int, group: int) -> bytes:
    """Return what separates chains of other models, K/V formats, block sizes and groups."""
    text = f"kv1|{codec.value}|{block_size}|{group}|".encode()
    return hashlib.blake2b(text + fingerprint, digest_size=HASH_BYTES).digest()


def chain_hash(parent: bytes, token_ids: bytes, salt: bytes) -> bytes:
    """Return the hash of a block. token_ids: int32 little-endian; parent: ROOT at the start."""
    return hashlib.blake2b(parent + token_ids, digest_size=HASH_BYTES, key=salt).digest()


def chain_hashes(
    token_ids: bytes, block_size: int, salt: bytes, *, start: int = 0, parent: bytes = ROOT
) -> Iterator[bytes]:
    """Yield the hashes of the full blocks of token_ids, from block ``start`` with this parent."""
    step = block_size * TOKEN_BYTES
    for at in range(start * step, len(token_ids) - step + 1, step):
        parent = chain_hash(parent, token_ids[at : at + step], salt)
        yield parent


class PrefixIndex:
    """The sealed blocks in hot memory, by chain hash and by parent."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, Block] = {}
        self._children: dict[bytes, dict[bytes, Block]] = {}

    def __len__(self) -> int:
        return len(self._blocks)

    def get(self, block_hash: bytes) -> Block | None:
        """Return the block of this hash, when it is hot."""
        return self._blocks.get(block_hash)

    def add(self, block: Block) -> None:
        """Publish a sealed block."""
        assert block.hash is not None
        assert block.hash not in self._blocks
        self._blocks[block.hash] = block
        self._children.setdefault(block.parent, {})[block.hash] = block

    def remove(self, block: Block) -> None:
        """Forget a block that is about to be freed."""
        assert block.hash is not None
        del self._blocks[block.hash]
        siblings = self._children[block.parent]
        del siblings[block.hash]
        if not siblings:
            del self._children[block.parent]

    def best_child(self, parent: bytes, token_ids: bytes) -> tuple[Block | None, int]:
        """Return the child of parent that shares most leading tokens with token_ids, and how many.

        token_ids: int32 little-endian; the count is in tokens.
        """
        best: Block | None = None
        best_tokens = 0
        for block in self._children.get(parent, {}).values():
            shared = _shared_tokens(block.token_ids, token_ids)
            if shared > best_tokens:
                best, best_tokens = block, shared
        return best, best_tokens


def _shared_tokens(left: bytes, right: bytes) -> int:
    """Count equal leading tokens of two int32 arrays."""
    limit = min(len(left), len(right))
    for at in range(0, limit, TOKEN_BYTES):
        if left[at : at + TOKEN_BYTES] != right[at : at + TOKEN_BYTES]:
            return at // TOKEN_BYTES
    return limit // TOKEN_BYTES
