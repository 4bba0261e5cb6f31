"""Brings stored blocks back: read, verified, and only then given to the pool.

What the warm tier holds never left this process and is taken as it is, before the store is asked.
Whatever fails to verify is dropped from the store and ends the prefix; nothing fails harder.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from engine.errors import StoreError
from engine.kernels.checksum import crc32
from engine.memory.prefix_index import HASH_BYTES
from engine.memory.warm_tier import WarmTier

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from engine.memory.block_pool import Block
    from engine.memory.codec import BlockLayout
    from engine.memory.sequence import GroupMemory
    from engine.memory.storage import ColdStore, StoredBlock


@dataclass(frozen=True, slots=True)
class Wanted:
    """A block looked for: what must be in it, and the chain hash that was computed from that."""

    hash: bytes
    parent: bytes
    token_ids: bytes


def is_named(stored: StoredBlock, wanted: Wanted, layout: BlockLayout) -> bool:
    """Tell whether a stored block says in every place that it is the one that is wanted.

    It is, byte for byte, where its payload has its checksum too.
    """
    trailer = layout.trailer_offset
    return (
        stored.hash == wanted.hash
        and stored.parent == wanted.parent
        and stored.token_ids == wanted.token_ids
        and len(stored.payload) == layout.slab_bytes
        and stored.payload[trailer : trailer + HASH_BYTES] == wanted.hash
    )


class ColdReader:
    """Reads runs of blocks of one model from the store.

    num_damaged: blocks that failed verification since ``take_damaged`` was last called.
    """

    def __init__(
        self, store: ColdStore | None, fingerprint: bytes, warm: WarmTier | None = None
    ) -> None:
        self._store = store
        self._warm = WarmTier(0) if warm is None else warm
        self._fingerprint = fingerprint
        self._num_damaged = 0

    def take_damaged(self) -> int:
        """Return how many blocks failed verification, and start counting anew."""
        count, self._num_damaged = self._num_damaged, 0
        return count

    def existing(self, hashes: Sequence[bytes]) -> frozenset[bytes]:
        """Return those that are warm or stored; none of the latter when the store cannot tell."""
        warm = frozenset(filter(self.is_warm, hashes))
        others = [block_hash for block_hash in hashes if block_hash not in warm]
        if self._store is None or not others:
            return warm
        try:
            return warm | self._store.existing(self._fingerprint, others)
        except StoreError:
            return warm

    def is_warm(self, block_hash: bytes) -> bool:
        """Tell whether a block is in the warm tier."""
        return block_hash in self._warm

    def sound_blocks(
        self, wanted: Sequence[Wanted], layouts: Mapping[str, BlockLayout]
    ) -> Iterator[StoredBlock]:
        """Yield the wanted blocks in order, verified; end at the first that is not sound.

        layouts: those a block may have, by codec.
        """
        for stored, is_warm in self._named_blocks(wanted, layouts):
            if not is_warm and crc32(stored.payload) != stored.crc32:
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
        for stored, is_warm in self._named_blocks(wanted, layouts):
            block = pools[stored.codec].allocate(is_filled=True)
            if block is None:
                break
            # Checked on the way into the slab: so every byte is read once.
            checksum = block.arena.fill(block.slot, stored.payload)
            if not is_warm and checksum != stored.crc32:
                block.pool.release(block)
                self._discard(stored.hash)
                break
            blocks.append(block)
        return blocks

    def _named_blocks(
        self, wanted: Sequence[Wanted], layouts: Mapping[str, BlockLayout]
    ) -> Iterator[tuple[StoredBlock, bool]]:
        """Yield the wanted blocks in order, and whether they were warm, their bytes unchecked."""
        for expected, (stored, is_warm) in zip(wanted, self._read(wanted), strict=False):
            if stored.hash != expected.hash:
                return
            layout = layouts.get(stored.codec)
            if not is_warm and (layout is None or not is_named(stored, expected, layout)):
                self._discard(stored.hash)
                return
            yield stored, is_warm

    def _read(self, wanted: Sequence[Wanted]) -> Iterable[tuple[StoredBlock, bool]]:
        """Yield blocks from the warm tier and the store in order, and whether they were warm."""
        for is_warm, run in groupby(wanted, lambda one: self.is_warm(one.hash)):
            hashes = [one.hash for one in run]
            if is_warm:
                # Taken at once: making room for the first may push others out of the tier.
                found = [self._warm.get(block_hash) for block_hash in hashes]
                yield from ((block, True) for block in found if block is not None)
            else:
                yield from ((block, False) for block in self._read_stored(hashes))

    def _read_stored(self, hashes: Sequence[bytes]) -> Iterable[StoredBlock]:
        """Read from the store; a store that breaks down just ends the run."""
        if self._store is None:
            return
        try:
            yield from self._store.read_blocks(self._fingerprint, hashes)
        except StoreError:
            self._num_damaged += 1

    def _discard(self, block_hash: bytes) -> None:
        assert self._store is not None
        self._num_damaged += 1
        try:
            self._store.discard_blocks(self._fingerprint, [block_hash])
        except StoreError:
            return
