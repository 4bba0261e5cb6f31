"""Operations on a sequence that must happen in every attention group at once, or in none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.memory.packing import EXACT_RECENT_TOKENS, copy_tokens, settle
from engine.memory.prefix_index import ROOT
from engine.memory.sequence import BlockTable, Sequence

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Sequence as SequenceOf

    from engine.memory.block_pool import Block
    from engine.memory.sequence import GroupMemory, Prefix


# Beside what is brought back: the open tail, a copy of it in a fork, and what the next turn fills.
_BLOCKS_AHEAD = 6


class Groups:
    """The attention groups of a model, advancing in step.

    block_size: tokens per block, the same in all groups.
    """

    def __init__(self, memories: SequenceOf[GroupMemory], block_size: int) -> None:
        self.memories = memories
        self.block_size = block_size
        self._is_plain = all(
            memory.packed is None and memory.group.window is None for memory in memories
        )

    def new_sequence(self, prefix: Prefix | None = None) -> Sequence:
        """Return an empty sequence; one with a prefix must be filled with it next."""
        root = ROOT if prefix is None else prefix.root
        tables = [BlockTable(memory, root=root) for memory in self.memories]
        return Sequence(tables, prefix=prefix)

    def num_blocks(self, num_tokens: int) -> int:
        """Return how many blocks hold that many tokens."""
        return -(-num_tokens // self.block_size)

    def prepare(self, num_bytes: int) -> None:
        """Have memory at hand for a sequence of so many bytes that is to be brought back."""
        settled = [memory.packed or memory.pool for memory in self.memories]
        num_blocks = self._num_blocks_within(num_bytes, [pool.slab_bytes for pool in settled])
        for memory, pool in zip(self.memories, settled, strict=True):
            num_held = num_blocks - memory.first_held(num_blocks * self.block_size)
            num_exact = num_held
            if pool is not memory.pool:
                pool.prepare(num_held)
                num_exact = min(num_held, self.num_blocks(EXACT_RECENT_TOKENS))
            memory.pool.prepare(num_exact + _BLOCKS_AHEAD if num_held else 0)

    def _num_blocks_within(self, num_bytes: int, slab_bytes: SequenceOf[int]) -> int:
        """Return how many blocks of text so many bytes hold; of windows the last is there alone."""
        num_window_bytes = num_whole_bytes = 0
        for memory, size in zip(self.memories, slab_bytes, strict=True):
            window = memory.group.window
            if window is None:
                num_whole_bytes += size
            else:
                num_window_bytes += size * self.num_blocks(window)
        if not num_whole_bytes:
            return num_bytes // sum(slab_bytes)
        return max(0, num_bytes - num_window_bytes) // num_whole_bytes

    def reserve(self, wanted: SequenceOf[tuple[Sequence, int]]) -> bool:
        """Make room for (sequence, total tokens); all of it, or nothing changes but evictions."""
        before = [(table, table.num_blocks) for found, _ in wanted for table in found.tables]
        for found, num_tokens in wanted:
            num_blocks = self.num_blocks(num_tokens)
            has_tail = num_tokens <= found.length or self._open_tail(found)
            if not has_tail or not all(table.reserve(num_blocks) for table in found.tables):
                _undo(before)
                return False
        for found, num_tokens in wanted:
            room = self.num_blocks(num_tokens) * self.block_size
            found.num_reserved = max(found.num_reserved, room)
        return True

    def seal_full(self, found: Sequence) -> None:
        """Seal every full block that is still open."""
        size = self.block_size
        num_full = found.length // size
        if self._is_plain and all([table.num_settled == num_full for table in found.tables]):
            return
        for table in found.tables:
            for at in range(len(table.hashes), num_full):
                table.seal_next(found.token_bytes(at * size, (at + 1) * size))
        settle(found)
        self.leave_window(found)

    def leave_window(self, found: Sequence) -> None:
        """Let blocks go that have left the window of their group, once all groups can spare them.

        They stay findable by content, first in hot memory and then where a snapshot put them.
        """
        num_settled = min(table.num_settled for table in found.tables)
        for table in found.tables:
            table.give_up(min(num_settled, table.memory.first_held(found.length)))

    def is_reachable(self, found: Sequence, length: int) -> bool:
        """Tell whether a sequence can go back to length with the blocks it holds."""
        return length <= found.length and all(table.is_reachable(length) for table in found.tables)

    def cut(self, found: Sequence, length: int) -> None:
        """Drop everything behind length, which lies at a block border or in the open tail."""
        for table in found.tables:
            table.cut(self.num_blocks(length))
        del found.token_ids[length:]
        found.num_reserved = length

    def drop_part_of_prefix(self, found: Sequence) -> None:
        """Empty a sequence whose thinned-out beginning is not whole: a part of it means nothing."""
        if found.prefix is None or found.length >= found.prefix.num_cells:
            return
        self.cut(found, 0)
        found.prefix = None
        for table in found.tables:
            table.root = ROOT

    def append_tail(self, found: Sequence, token_ids: Iterable[int], tails: list[Block]) -> None:
        """Append tokens and the open blocks, one per group or none at all, that hold the last."""
        assert len(tails) in (0, len(found.tables))
        for table, block in zip(found.tables, tails, strict=False):
            table.append_open(block)
        found.token_ids.extend(token_ids)
        found.num_reserved = found.length

    def copies(self, blocks: SequenceOf[Block], num_tokens: int) -> list[Block] | None:
        """Return open copies of one block per group; None, and no change, when there is no room."""
        return _copies(list(zip(self.memories, blocks, strict=True)), num_tokens)

    def share_tail(self, found: Sequence) -> None:
        """Let a sequence that rests have its tail together with others of equal text."""
        self.cut(found, found.length)
        start = len(found.tables[0].hashes) * self.block_size
        if start < found.length:
            for table in found.tables:
                table.share_tail(found.token_bytes(start, found.length))

    def _open_tail(self, found: Sequence) -> bool:
        """Make the tail of a sequence its own again, with a copy where others have it as well.

        False when there is no room for one.
        """
        shared = [(table, tail) for table in found.tables if (tail := table.shared_tail())]
        if not shared:
            return True
        others = [(table, tail) for table, tail in shared if not tail.pool.reopen(tail)]
        copies = _copies(
            [(table.memory, tail) for table, tail in others], found.length % self.block_size
        )
        if copies is None:
            return False
        for (table, tail), copy in zip(others, copies, strict=True):
            table.replace(len(table.hashes), copy)
            tail.pool.release(tail)
        return True


def _copies(wanted: SequenceOf[tuple[GroupMemory, Block]], num_tokens: int) -> list[Block] | None:
    """Return open copies of blocks; None, and no change, when there is no room."""
    made: list[Block] = []
    for memory, block in wanted:
        # Held, so that making room for the copy cannot evict what is to be copied.
        block.pool.acquire(block)
        copy = memory.pool.allocate()
        if copy is not None:
            copy_tokens(block, copy, num_tokens)
            made.append(copy)
        block.pool.release(block)
    if len(made) == len(wanted):
        return made
    for copy in made:
        copy.pool.release(copy)
    return None


def _undo(before: SequenceOf[tuple[BlockTable, int]]) -> None:
    for table, num_blocks in before:
        while table.num_blocks > num_blocks:
            block = table.blocks.pop()
            block.pool.release(block)
