"""The warm tier: copies of blocks that hot memory gave up, in host RAM, within a byte budget.

Blocks are kept byte for byte in the form they had, so what comes back is exact: where a codec
quantises, idle blocks were quantised before they left. On a CPU hot memory is host RAM as well, so
there the tier is off unless a budget is set by hand. Knows no sequences.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.memory.storage import StoredBlock

if TYPE_CHECKING:
    from engine.memory.block_pool import Block

MAX_DEFAULT_BYTES = 4 << 30


def default_warm_budget(device: str, free_bytes: int) -> int:
    """Return a quarter of free host memory, at most 4 GiB; 0 where hot memory is host memory."""
    return 0 if device == "cpu" else min(MAX_DEFAULT_BYTES, free_bytes // 4)


@dataclass(slots=True)
class _Entry:
    """A block and whether it belongs to a system prompt."""

    block: StoredBlock
    is_pinned: bool


class WarmTier:
    """Blocks by hash, the longest unused given up first, system prompts last."""

    def __init__(self, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._entries

    def put(self, block: Block) -> None:
        """Take a copy of a sealed block that hot memory is about to give up."""
        assert block.hash is not None
        num_bytes = block.layout.slab_bytes
        if num_bytes > self.budget_bytes:
            return
        if block.hash in self._entries:
            self._entries.move_to_end(block.hash)
            return
        while self.used_bytes + num_bytes > self.budget_bytes:
            self._drop(self._least_valuable())
        copy = StoredBlock(
            hash=block.hash,
            parent=block.parent,
            token_ids=block.token_ids,
            codec=block.layout.codec.value,
            payload=bytes(block.payload()),
            crc32=0,
        )
        self._entries[block.hash] = _Entry(copy, block.is_pinned)
        self.used_bytes += num_bytes

    def get(self, block_hash: bytes) -> StoredBlock | None:
        """Return a block, which counts as a use; it stays here."""
        entry = self._entries.get(block_hash)
        if entry is None:
            return None
        self._entries.move_to_end(block_hash)
        return entry.block

    def clear(self) -> None:
        """Drop all."""
        self._entries.clear()
        self.used_bytes = 0

    def _least_valuable(self) -> bytes:
        unpinned = (key for key, entry in self._entries.items() if not entry.is_pinned)
        return next(unpinned, next(iter(self._entries)))

    def _drop(self, block_hash: bytes) -> None:
        self.used_bytes -= len(self._entries.pop(block_hash).block.payload)
