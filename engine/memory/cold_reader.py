"""Brings stored blocks back: read, verified, and only then given to the pool.

Whatever fails to verify is dropped from the store and ends the prefix; nothing fails harder.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.errors import StoreError
from engine.memory.prefix_index import HASH_BYTES, chain_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from engine.memory.block_pool import Block
    from engine.memory.codec import BlockLayout
    from engine.memory.interface import ColdStore, StoredBlock
    from engine.memory.sequence import GroupMemory


@dataclass(frozen=True, slots=True)
class Wanted:
    """A block looked for: its chain hash and what must be in it."""

    hash: bytes
    parent: bytes
    token_ids: bytes


def is_sound(stored: StoredBlock, wanted: Wanted, layout: BlockLayout, salt: bytes) -> bool:
    """Tell whether a stored block is, byte for byte, the one that is wanted."""
    trailer = layout.trailer_offset
    return (
        stored.hash == wanted.hash
        and stored.parent == wanted.parent
        and stored.token_ids == wanted.token_ids
        and len(stored.payload) == layout.slab_bytes
        and stored.payload[trailer : trailer + HASH_BYTES] == wanted.hash
        and chain_hash(wanted.parent, wanted.token_ids, salt) == wanted.hash
        and zlib.crc32(stored.payload) == stored.crc32
    )


class ColdReader:
    """Reads runs of blocks of one model from the store.

    num_damaged: blocks that failed verification since ``take_damaged`` was last called.
    """

    def __init__(self, store: ColdStore | None, fingerprint: bytes) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._num_damaged = 0

    def take_damaged(self) -> int:
        """Return how many blocks failed verification, and start counting anew."""
        count, self._num_damaged = self._num_damaged, 0
        return count

    def existing(self, hashes: Sequence[bytes]) -> frozenset[bytes]:
        """Return those that are stored; none when the store cannot tell."""
        if self._store is None or not hashes:
            return frozenset()
        try:
            return self._store.existing(self._fingerprint, hashes)
        except StoreError:
            return frozenset()

    def sound_blocks(
        self, wanted: Sequence[Wanted], layouts: Mapping[str, BlockLayout], salt: bytes
    ) -> Iterator[StoredBlock]:
        """Yield the wanted blocks in order, verified; end at the first that is not sound.

        layouts: those a block may have, by codec.
        """
        for expected, stored in zip(wanted, self._read(wanted), strict=False):
            if stored.hash != expected.hash:
                return
            layout = layouts.get(stored.codec)
            if layout is None or not is_sound(stored, expected, layout, salt):
                self._discard(stored.hash)
                return
            yield stored

    def load(self, memory: GroupMemory, wanted: Sequence[Wanted]) -> list[Block]:
        """Return open blocks that hold the longest sound run of the wanted ones; each is ours.

        Ends early where the pool is full. Nothing is published.
        """
        blocks: list[Block] = []
        pools = {pool.layout.codec.value: pool for pool in memory.pools}
        layouts = {codec: pool.layout for codec, pool in pools.items()}
        for stored in self.sound_blocks(wanted, layouts, memory.salt):
            block = pools[stored.codec].allocate()
            if block is None:
                break
            fill(block, stored.payload)
            blocks.append(block)
        return blocks

    def _read(self, wanted: Sequence[Wanted]) -> Iterable[StoredBlock]:
        """Read from the store; a store that breaks down just ends the run."""
        if self._store is None or not wanted:
            return
        try:
            yield from self._store.read_blocks(self._fingerprint, [w.hash for w in wanted])
        except StoreError:
            self._num_damaged += 1

    def _discard(self, block_hash: bytes) -> None:
        assert self._store is not None
        self._num_damaged += 1
        try:
            self._store.discard_blocks(self._fingerprint, [block_hash])
        except StoreError:
            return


def fill(block: Block, payload: bytes | memoryview) -> None:
    """Copy a slab's bytes into a block."""
    slab = block.arena.slab(block.slot)
    if slab.device.type == "cpu":
        slab.numpy().data[:] = payload
    else:
        slab.copy_(torch.frombuffer(bytearray(payload), dtype=torch.uint8))
