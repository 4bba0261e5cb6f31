"""Extends a sequence by text that is already held: hot blocks, stored ones, then shared tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.memory.cold_reader import Wanted
from engine.memory.packing import settle
from engine.memory.prefix_index import TOKEN_BYTES, chain_hash, chain_hashes
from engine.memory.sequence import from_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence as SequenceOf

    from engine.memory.block_pool import Block
    from engine.memory.cold_reader import ColdReader
    from engine.memory.groups import Groups
    from engine.memory.sequence import BlockTable, Prefix, Sequence


@dataclass(slots=True)
class _Chain:
    """The blocks that may continue one table, from block ``start`` on.

    hashes: of the blocks from start on. data: all token ids, int32 little-endian. lost: blocks that
    can be had nowhere. owned: blocks that are ours already. cold, warm: those that were brought
    back from there.
    """

    table: BlockTable
    start: int
    hashes: list[bytes]
    data: bytes
    lost: set[int] = field(default_factory=set)
    owned: dict[int, Block] = field(default_factory=dict)
    cold: set[int] = field(default_factory=set)
    warm: set[int] = field(default_factory=set)

    @property
    def end(self) -> int:
        """Block after the last one."""
        return self.start + len(self.hashes)

    @property
    def block_size(self) -> int:
        """Tokens per block."""
        return self.table.memory.pool.layout.block_size

    def needed(self, end: int) -> range:
        """Return the blocks that a sequence of ``end`` full blocks holds of these."""
        first = self.table.memory.first_needed(end * self.block_size)
        return range(max(self.start, first), end)

    def hash(self, at: int) -> bytes:
        """Return the hash of a block; its parent's is that of the block before."""
        return self.hashes[at - self.start] if at >= self.start else self.table.tip(at + 1)

    def wanted(self, at: int) -> Wanted:
        """Return what must be in a stored block."""
        parent = self.hash(at - 1) if at else self.table.tip(0)
        return Wanted(self.hash(at), parent, self.tokens(at))

    def tokens(self, at: int) -> bytes:
        """Return the token ids of a block."""
        step = self.block_size * TOKEN_BYTES
        return self.data[at * step : (at + 1) * step]

    def missing(self) -> list[tuple[int, bytes]]:
        """Return place and hash of the blocks that are neither ours nor hot."""
        return [
            (at, key)
            for at, key in enumerate(self.hashes, self.start)
            if at not in self.owned and self.table.memory.find(key) is None
        ]

    def give_back(self, keep: range) -> None:
        """Give up the owned blocks outside a range, the last one first."""
        for at in sorted(set(self.owned) - set(keep), reverse=True):
            block = self.owned.pop(at)
            block.pool.release(block)
            self.cold.discard(at)
            self.warm.discard(at)


@dataclass(frozen=True, slots=True)
class Brought:
    """Tokens that came from the lower tiers."""

    warm: int = 0
    cold: int = 0


class Attacher:
    """Finds the longest reusable prefix of some tokens and puts it in place."""

    def __init__(self, groups: Groups, reader: ColdReader) -> None:
        self._groups = groups
        self._reader = reader
        self._step_bytes = groups.block_size * TOKEN_BYTES

    def reach(self, data: bytes, prefix: Prefix | None = None) -> int:
        """Return how many leading tokens of data a new sequence would get; loads nothing.

        prefix: the beginning that the blocks derive from, where they are derived.
        """
        chains = self._chains(self._groups.new_sequence(prefix), data)
        self._look(chains)
        full = len(data) // self._step_bytes
        end = _reach(chains)
        if end < full:
            return end * self._groups.block_size
        tail = self._groups.new_sequence(prefix)
        for table, chain in zip(tail.tables, chains, strict=True):
            table.hashes = chain.hashes
        _, num_shared = self._partly(tail, full, data[full * self._step_bytes :])
        return end * self._groups.block_size + num_shared

    def extend(
        self, found: Sequence, data: bytes, known: SequenceOf[SequenceOf[bytes]] | None = None
    ) -> Brought:
        """Extend a sequence along data, token ids of which it holds a prefix; whole blocks only.

        known: per group, the hashes of all blocks of data, where they are those of a stored branch.
        Returns how many tokens came from where.
        """
        chains = self._chains(found, data, known)
        is_whole = known is not None
        if not is_whole:
            self._look(chains)
        while not all([self._own(chain, _reach(chains)) for chain in chains]):
            if is_whole:
                self._look(chains)
                is_whole = False
        start, end = chains[0].start, _reach(chains)
        for chain in chains:
            chain.give_back(chain.needed(end))
        if end == start:
            return Brought()
        self._groups.cut(found, start * self._groups.block_size)
        for chain in chains:
            _publish(chain, end)
        found.token_ids.extend(from_bytes(data[start * self._step_bytes : end * self._step_bytes]))
        found.num_reserved = found.length
        settle(found)
        self._groups.leave_window(found)
        # A group with a window needs fewer blocks, so the one that needed most tells.
        most = max(chains, key=lambda chain: len(chain.owned))
        size = self._groups.block_size
        return Brought(len(most.warm) * size, len(most.cold) * size)

    def extend_partly(self, found: Sequence, data: bytes) -> None:
        """Copy the tokens that the next hot block shares with data, when that is a gain."""
        full, rest = divmod(found.length, self._groups.block_size)
        ahead = data[full * self._step_bytes : (full + 1) * self._step_bytes]
        blocks, num_shared = self._partly(found, full, ahead)
        if num_shared <= rest:
            return
        copies = self._groups.copies(blocks, num_shared)
        if copies is None:
            return
        self._groups.cut(found, full * self._groups.block_size)
        tokens = from_bytes(ahead[: num_shared * TOKEN_BYTES])
        self._groups.append_tail(found, tokens, copies)

    def _partly(self, found: Sequence, full: int, ahead: bytes) -> tuple[list[Block], int]:
        """Return the hot blocks, one per group, that share most tokens with ahead; how many."""
        first = found.tables[0]
        child, num_shared = max(
            (pool.index.best_child(first.tip(full), ahead) for pool in first.memory.pools),
            key=lambda best: best[1],
        )
        blocks = _same_text(found, full, child.token_ids) if child is not None else None
        return (blocks, num_shared) if blocks else ([], 0)

    def _chains(
        self, found: Sequence, data: bytes, known: SequenceOf[SequenceOf[bytes]] | None = None
    ) -> list[_Chain]:
        """Return a chain per group, of which nothing is lost yet."""
        start = found.length // self._groups.block_size
        if known is None:
            hashes = [self._hashes(table, data, start) for table in found.tables]
        else:
            hashes = [list(of_group[start:]) for of_group in known]
        return [
            _Chain(table, start, of_group, data)
            for table, of_group in zip(found.tables, hashes, strict=True)
        ]

    def _look(self, chains: SequenceOf[_Chain]) -> None:
        """Tell some chains which of their blocks can be had nowhere."""
        missing = [(chain, at, key) for chain in chains for at, key in chain.missing()]
        stored = self._reader.existing([key for _, _, key in missing])
        for chain, at, key in missing:
            if key not in stored:
                chain.lost.add(at)

    def _hashes(self, table: BlockTable, data: bytes, start: int) -> list[bytes]:
        """Return the hashes of the full blocks of data from block start on."""
        size, salt, parent = self._groups.block_size, table.memory.salt, table.tip(start)
        return list(chain_hashes(data, size, salt, start=start, parent=parent))

    def _own(self, chain: _Chain, end: int) -> bool:
        """Become an owner of all that is needed up to ``end``; False when some of it is lost."""
        missing: list[int] = []
        for at in chain.needed(end):
            if at in chain.owned:
                continue
            block = chain.table.memory.find(chain.hash(at))
            if block is None:
                missing.append(at)
            else:
                block.pool.acquire(block)
                chain.owned[at] = block
        return all([self._load(chain, run) for run in _runs(missing)])

    def _load(self, chain: _Chain, run: SequenceOf[int]) -> bool:
        """Load neighbouring blocks; False, and the first that is not there is lost."""
        warm = {at for at in run if self._reader.is_warm(chain.hash(at))}
        loaded = self._reader.load(chain.table.memory, [chain.wanted(at) for at in run])
        chain.owned.update(zip(run, loaded, strict=False))
        chain.cold.update(set(run[: len(loaded)]) - warm)
        chain.warm.update(warm.intersection(run[: len(loaded)]))
        if len(loaded) == len(run):
            return True
        chain.lost.add(run[len(loaded)])
        return False


def _reach(chains: SequenceOf[_Chain]) -> int:
    """Return the most full blocks for which every group has, or can have, what it needs."""
    start, most = chains[0].start, chains[0].end
    if all(chain.lost.isdisjoint(chain.needed(most)) for chain in chains):
        return most
    last_lost: list[list[int]] = []
    for chain in chains:
        # last_lost[i][k]: the last lost block before block start + k.
        before = [-1]
        for at in range(chain.start, chain.end):
            before.append(at if at in chain.lost else before[-1])
        last_lost.append(before)
    for end in range(most, start, -1):
        if all(
            before[end - start] < chain.needed(end).start
            for chain, before in zip(chains, last_lost, strict=True)
        ):
            return end
    return start


def _runs(places: SequenceOf[int]) -> list[list[int]]:
    """Cut ascending places into runs of neighbours."""
    runs: list[list[int]] = []
    for at in places:
        if runs and runs[-1][-1] == at - 1:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs


def _publish(chain: _Chain, end: int) -> None:
    """Append owned blocks to a table; those that are still open are sealed."""
    table = chain.table
    for at in range(chain.start, end):
        block = chain.owned.get(at)
        if block is None:
            table.append_given_up(chain.hash(at))
        elif block.hash is None:
            table.append_sealing(block, chain.hash(at), chain.tokens(at))
        else:
            table.append_shared(block)
            block.pool.touch(block)
            block.pool.release(block)


def _same_text(found: Sequence, at: int, token_ids: bytes) -> list[Block] | None:
    """Return the hot block of every group that follows block ``at`` with these tokens."""
    blocks = [
        table.memory.find(chain_hash(table.tip(at), token_ids, table.memory.salt))
        for table in found.tables
    ]
    complete = [block for block in blocks if block is not None]
    return complete if len(complete) == len(blocks) else None
