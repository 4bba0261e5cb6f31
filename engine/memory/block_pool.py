"""Blocks of K/V memory: their owners, and the order in which they are given up.

Knows bytes and reference counts; what a block means is the business of its owner. One thread only.
"""

from __future__ import annotations

import heapq
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from engine.memory.arena import Arena, SlabPart
from engine.memory.prefix_index import ROOT, TOKEN_BYTES, PrefixIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from engine.memory.codec import BlockLayout

ARENA_BYTES = 64 << 20
ARENAS_PER_POOL = 16
_CPU = torch.device("cpu")


class ByteBudget:
    """Bytes of each device that several pools share.

    limits: by device; one number is the CPU's. used: of all arenas that exist.
    """

    def __init__(self, limits: int | Mapping[torch.device, int]) -> None:
        self.limits = {_CPU: limits} if isinstance(limits, int) else dict(limits)
        self.used = dict.fromkeys(self.limits, 0)
        self._pools: list[BlockPool] = []

    @property
    def limit_bytes(self) -> int:
        """Bytes of all devices together."""
        return sum(self.limits.values())

    @property
    def used_bytes(self) -> int:
        """Bytes of all arenas."""
        return sum(self.used.values())

    def num_slabs_left(self, parts: Sequence[SlabPart]) -> int:
        """Return how many slabs of these parts an arena may still take."""
        return min(
            max(0, self.limits[part.device] - self.used[part.device]) // part.layout.slab_bytes
            for part in parts
        )

    def num_slabs_of_arena(self, parts: Sequence[SlabPart]) -> int:
        """Return the slabs of one arena: so few that one pool's unused part starves no other."""
        num_parts = ARENAS_PER_POOL * len(self._pools)
        return min(
            min(ARENA_BYTES, self.limits[part.device] // num_parts) // part.layout.slab_bytes
            for part in parts
        )

    def take(self, parts: Sequence[SlabPart], num_slabs: int) -> None:
        """Count an arena that has come, or with a negative number gone."""
        for part in parts:
            self.used[part.device] += num_slabs * part.layout.slab_bytes

    def join(self, pool: BlockPool) -> None:
        """Let a pool draw from this budget."""
        self._pools.append(pool)

    def reclaim(self, taker: BlockPool) -> bool:
        """Make other pools give idle arenas back until a slab fits; False if they cannot."""
        while short := self._short_devices(taker):
            others = [pool for pool in self._pools if pool is not taker and pool.lies_on(short)]
            if not any(pool.give_arena() for pool in others):
                return False
        return True

    def _short_devices(self, taker: BlockPool) -> set[torch.device]:
        """Return where there is no room for one more slab of a pool."""
        return {part.device for part in taker.parts if not self.num_slabs_left((part,))}


@dataclass(slots=True, eq=False)
class Block:
    """One slab and what is known about it.

    addresses: of the slab's part on each device. ref_count: sequences that use it. num_readers:
    snapshots that still read its bytes. hash: None while open; parent and token_ids (int32
    little-endian) are set with it. A sealed one with fewer tokens than fit is the tail of sequences
    that rest.
    """

    pool: BlockPool
    arena: Arena
    slot: int
    addresses: tuple[int, ...]
    hash: bytes | None = None
    parent: bytes = ROOT
    token_ids: bytes = b""
    ref_count: int = 0
    num_readers: int = 0
    hits: int = 0
    last_use: float = 0.0
    is_pinned: bool = False

    @property
    def layout(self) -> BlockLayout:
        """Return how its bytes are laid out."""
        return self.arena.layout

    @property
    def is_idle(self) -> bool:
        """True when nobody uses or reads it."""
        return self.ref_count == 0 and self.num_readers == 0

    @property
    def is_full(self) -> bool:
        """True when it is sealed with as many tokens as fit."""
        return len(self.token_ids) == self.layout.block_size * TOKEN_BYTES

    def payload(self) -> memoryview:
        """Return the slab's bytes; without a copy where it lies on the CPU alone."""
        return self.arena.payload(self.slot)


@dataclass(slots=True)
class _Queues:
    """Idle sealed blocks in the order of giving up: unpinned, seldom hit, longest unused first."""

    by_class: list[OrderedDict[Block, None]] = field(
        default_factory=lambda: [OrderedDict() for _ in range(4)]
    )

    def __len__(self) -> int:
        return sum(map(len, self.by_class))

    def push(self, block: Block) -> None:
        self._queue(block)[block] = None

    def discard(self, block: Block) -> None:
        del self._queue(block)[block]

    def first(self) -> Block | None:
        return next((next(iter(queue)) for queue in self.by_class if queue), None)

    def _queue(self, block: Block) -> OrderedDict[Block, None]:
        return self.by_class[2 * block.is_pinned + (block.hits >= 2)]


class BlockPool:
    """The blocks of one layout within a byte budget.

    parts: which layers of a block lie where; all of them on the CPU unless they are given. index:
    sealed blocks by hash. on_evict is called with a sealed block just before it is freed.
    """

    def __init__(
        self,
        layout: BlockLayout,
        budget: ByteBudget,
        *,
        parts: Sequence[SlabPart] = (),
        on_evict: Callable[[Block], None] = lambda block: None,
    ) -> None:
        self.layout = layout
        self.parts = tuple(parts) or (SlabPart(_CPU, 0, layout),)
        self.slab_bytes = sum(part.layout.slab_bytes for part in self.parts)
        self.index = PrefixIndex()
        self._budget = budget
        self._on_evict = on_evict
        self._arenas: list[Arena] = []
        self._blocks: set[Block] = set()
        self._queues = _Queues()
        self._num_free = 0
        budget.join(self)

    @property
    def num_blocks(self) -> int:
        """Blocks that hold something: in use, being read, or kept for reuse."""
        return len(self._blocks)

    @property
    def reserved_bytes(self) -> int:
        """Bytes of all arenas."""
        return sum(arena.num_blocks for arena in self._arenas) * self.slab_bytes

    def lies_on(self, devices: Collection[torch.device]) -> bool:
        """Tell whether a part of its blocks lies on one of these devices."""
        return any(part.device in devices for part in self.parts)

    def blocks(self) -> Iterator[Block]:
        """Iterate over every block that holds something."""
        return iter(self._blocks)

    def give_arena(self) -> bool:
        """Free an arena nobody uses, evicting what it keeps; False when there is none."""
        busy = {block.arena for block in self._blocks if not block.is_idle}
        arena = next((arena for arena in self._arenas if arena not in busy), None)
        if arena is None:
            return False
        for block in [block for block in self._blocks if block.arena is arena]:
            self._evict(block)
        return self._drop_arenas() > 0

    def allocate(self, *, is_filled: bool = False) -> Block | None:
        """Return a zeroed, open block with one owner; None when everything is in use.

        is_filled: all its bytes are written next, and need not be zeroed before.
        """
        if self._num_free == 0 and not self._grow() and not self._make_room():
            return None
        arena = next(arena for arena in self._arenas if arena.free)
        slot = heapq.heappop(arena.free)
        self._num_free -= 1
        arena.take(slot, is_filled=is_filled)
        addresses = arena.addresses(slot)
        block = Block(self, arena, slot, addresses, ref_count=1, last_use=time.monotonic())
        self._blocks.add(block)
        return block

    def prepare(self, num_blocks: int) -> None:
        """Have memory for that many more blocks at hand, as far as the budget allows."""
        while self._num_free < num_blocks and self._grow():
            pass
        for arena in self._arenas:
            num_blocks -= arena.provide(num_blocks)

    def acquire(self, block: Block) -> None:
        """Add an owner."""
        assert block in self._blocks
        if block.is_idle:
            self._queues.discard(block)
        block.ref_count += 1
        block.last_use = time.monotonic()

    def release(self, block: Block) -> None:
        """Take an owner away; a sealed block stays for reuse, an open one is freed."""
        assert block.ref_count > 0
        block.ref_count -= 1
        self._settle(block)

    def start_reading(self, block: Block) -> None:
        """Keep a sealed block from being freed while somebody reads its bytes."""
        assert block in self._blocks
        if block.is_idle:
            self._queues.discard(block)
        block.num_readers += 1

    def stop_reading(self, block: Block) -> None:
        """End what start_reading began."""
        assert block.num_readers > 0
        block.num_readers -= 1
        self._settle(block)

    def touch(self, block: Block) -> None:
        """Count a hit: the block was found by its hash."""
        assert block.ref_count > 0
        block.hits += 1

    def pin(self, block: Block) -> None:
        """Give the block up last; for system prompts."""
        if block.is_idle:
            self._queues.discard(block)
        block.is_pinned = True
        if block.is_idle:
            self._queues.push(block)

    def seal(self, block: Block, *, block_hash: bytes, parent: bytes, token_ids: bytes) -> Block:
        """Make a block immutable and findable; return the block to use from now on.

        That is another one where the same content is here already: ours is given back for it.
        """
        assert block.hash is None
        assert block.ref_count == 1
        known = self.index.get(block_hash)
        if known is not None:
            self.acquire(known)
            self.touch(known)
            self.release(block)
            return known
        block.hash, block.parent, block.token_ids = block_hash, parent, token_ids
        block.arena.write_trailer(block.slot, block_hash)
        self.index.add(block)
        return block

    def reopen(self, block: Block) -> bool:
        """Let the only owner of a sealed block that is not full write on; False with others."""
        assert not block.is_full
        if block.ref_count > 1 or block.num_readers:
            return False
        self.index.remove(block)
        block.hash, block.parent, block.token_ids = None, ROOT, b""
        block.arena.write_trailer(block.slot, b"")
        return True

    def drop(self, block: Block) -> None:
        """Free a sealed block that has become worthless, when nobody uses or reads it."""
        if block.is_idle:
            self._forget(block)

    def clear(self) -> None:
        """Free every idle block and give whole free arenas back."""
        while (block := self._queues.first()) is not None:
            self._evict(block)
        self.trim()

    def trim(self) -> int:
        """Give all memory without a block back to the system; return its bytes."""
        num_bytes = self._drop_arenas()
        return num_bytes + sum(arena.give_back_free() for arena in self._arenas)

    def _drop_arenas(self) -> int:
        """Give up arenas without a single block; return their bytes."""
        idle = [arena for arena in self._arenas if len(arena.free) == arena.num_blocks]
        self._arenas = [arena for arena in self._arenas if arena not in idle]
        num_blocks = sum(arena.num_blocks for arena in idle)
        self._num_free -= num_blocks
        self._budget.take(self.parts, -num_blocks)
        return num_blocks * self.slab_bytes

    def _settle(self, block: Block) -> None:
        """Decide what becomes of a block that may have lost its last user."""
        if not block.is_idle:
            return
        if block.hash is None:
            self._free(block)
        else:
            self._queues.push(block)

    def _make_room(self) -> bool:
        """Evict the least valuable idle block, or take an arena from another pool."""
        block = self._queues.first()
        if block is not None:
            self._evict(block)
            return True
        return self._budget.reclaim(self) and self._grow()

    def _evict(self, block: Block) -> None:
        """Free an idle sealed block that is worth something."""
        if block.is_full:
            self._on_evict(block)
        self._forget(block)

    def _forget(self, block: Block) -> None:
        self._queues.discard(block)
        self.index.remove(block)
        self._free(block)

    def _free(self, block: Block) -> None:
        assert block.is_idle
        self._blocks.remove(block)
        block.hash = None
        heapq.heappush(block.arena.free, block.slot)
        self._num_free += 1

    def _grow(self) -> bool:
        """Add an arena within the budget."""
        wanted = max(1, self._budget.num_slabs_of_arena(self.parts))
        num_blocks = min(wanted, self._budget.num_slabs_left(self.parts))
        if num_blocks == 0:
            return False
        self._arenas.append(Arena(self.layout, self.parts, num_blocks))
        self._num_free += num_blocks
        self._budget.take(self.parts, num_blocks)
        return True


def share_blocks(blocks: Sequence[Block]) -> None:
    """Add an owner to each of some blocks that have owners already; what a fork does."""
    now = time.monotonic()
    for block in blocks:
        assert block.ref_count > 0
        block.ref_count += 1
        block.last_use = now
