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

    from engine.memory.block_pool import Block, BlockPool
    from engine.memory.codec import BlockLayout
    from engine.memory.sequence import GroupMemory
    from engine.memory.storage import BlockInfo, ColdStore, StoredBlock


@dataclass(frozen=True, slots=True)
class Wanted:
    """A block looked for: what must be in it, and the chain hash that was computed from that."""

    hash: bytes
    parent: bytes
    token_ids: bytes


def is_named(stored: StoredBlock | BlockInfo, wanted: Wanted) -> bool:
    """Tell whether a stored block is said to be the one that is wanted."""
    return (
        stored.hash == wanted.hash
        and stored.parent == wanted.parent
        and stored.token_ids == wanted.token_ids
    )


def names_itself(payload: bytes | memoryview, wanted: Wanted, layout: BlockLayout) -> bool:
    """Tell whether a payload says so too.

    It is the one that is wanted, byte for byte, where it has its checksum as well.
    """
    trailer = layout.trailer_offset
    return (
        len(payload) == layout.slab_bytes and payload[trailer : trailer + HASH_BYTES] == wanted.hash
    )


class _Loading:
    """A run of wanted blocks on its way from the store into the pools of its group.

    blocks: those that are sound. unsound: hash of the one that ended the run.
    """

    def __init__(self, pools: Mapping[str, BlockPool], wanted: Sequence[Wanted]) -> None:
        self.blocks: list[Block] = []
        self.unsound: bytes | None = None
        self._pools = pools
        self._wanted = wanted
        # Used again and again, it stays in the cache; from there on, bytes go past it.
        most_bytes = max(pool.layout.slab_bytes for pool in pools.values())
        self._memory = memoryview(bytearray(most_bytes))

    def accept(self, info: BlockInfo) -> memoryview | None:
        """Return where a payload is to be copied first; None where it is not the next one."""
        wanted = self._wanted[len(self.blocks)]
        if info.hash != wanted.hash:
            return None
        pool = self._pools.get(info.codec)
        if pool is None or not is_named(info, wanted) or info.num_bytes != pool.layout.slab_bytes:
            self.unsound = info.hash
            return None
        return self._memory[: info.num_bytes]

    def place(self, info: BlockInfo) -> bool:
        """Give the payload that was copied last to its pool; False where it is the end of the run.

        It is not sound, or there is no room.
        """
        wanted, pool = self._wanted[len(self.blocks)], self._pools[info.codec]
        payload = self._memory[: info.num_bytes]
        block = pool.allocate()
        if block is None:
            return False
        # Checked on the way into the slab: so every byte is read once.
        checksum = block.arena.fill(block.slot, payload)
        if checksum != info.crc32 or not names_itself(payload, wanted, pool.layout):
            self.unsound = info.hash
            pool.release(block)
            return False
        self.blocks.append(block)
        return True


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
        for is_warm, run in groupby(wanted, lambda one: self.is_warm(one.hash)):
            ahead = list(run)
            loaded = (self._load_warm if is_warm else self._load_stored)(pools, ahead)
            blocks += loaded
            if len(loaded) < len(ahead):
                break
        return blocks

    def _load_warm(self, pools: Mapping[str, BlockPool], wanted: Sequence[Wanted]) -> list[Block]:
        blocks: list[Block] = []
        found = self._warm_blocks([one.hash for one in wanted])
        for expected, stored in zip(wanted, found, strict=False):
            if stored.hash != expected.hash:
                break
            block = pools[stored.codec].allocate()
            if block is None:
                break
            block.arena.fill(block.slot, stored.payload)
            blocks.append(block)
        return blocks

    def _load_stored(self, pools: Mapping[str, BlockPool], wanted: Sequence[Wanted]) -> list[Block]:
        if self._store is None:
            return []
        loading = _Loading(pools, wanted)
        hashes = [one.hash for one in wanted]
        try:
            for info in self._store.copy_blocks(self._fingerprint, hashes, loading.accept):
                if not loading.place(info):
                    break
        except StoreError:
            self._num_damaged += 1
        if loading.unsound is not None:
            self._discard(loading.unsound)
        return loading.blocks

    def _named_blocks(
        self, wanted: Sequence[Wanted], layouts: Mapping[str, BlockLayout]
    ) -> Iterator[tuple[StoredBlock, bool]]:
        """Yield the wanted blocks in order, and whether they were warm, their bytes unchecked."""
        for expected, (stored, is_warm) in zip(wanted, self._read(wanted), strict=False):
            if stored.hash != expected.hash:
                return
            layout = layouts.get(stored.codec)
            is_wanted = (
                layout is not None
                and is_named(stored, expected)
                and names_itself(stored.payload, expected, layout)
            )
            if not is_warm and not is_wanted:
                self._discard(stored.hash)
                return
            yield stored, is_warm

    def _read(self, wanted: Sequence[Wanted]) -> Iterable[tuple[StoredBlock, bool]]:
        """Yield blocks from the warm tier and the store in order, and whether they were warm."""
        for is_warm, run in groupby(wanted, lambda one: self.is_warm(one.hash)):
            hashes = [one.hash for one in run]
            if is_warm:
                yield from ((block, True) for block in self._warm_blocks(hashes))
            else:
                yield from ((block, False) for block in self._read_stored(hashes))

    def _warm_blocks(self, hashes: Sequence[bytes]) -> list[StoredBlock]:
        # Taken at once: making room for the first may push others out of the tier.
        found = [self._warm.get(block_hash) for block_hash in hashes]
        return [block for block in found if block is not None]

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
