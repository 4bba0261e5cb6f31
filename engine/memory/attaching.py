"""Extends a sequence by text that is already held: hot blocks, stored ones, then shared tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.memory.cold_reader import Wanted
from engine.memory.packing import settle
from engine.memory.prefix_index import TOKEN_BYTES, chain_hash, chain_hashes
from engine.memory.sequence import from_bytes

if TYPE_CHECKING:
    from engine.memory.block_pool import Block
    from engine.memory.cold_reader import ColdReader
    from engine.memory.groups import Groups
    from engine.memory.sequence import BlockTable, Sequence


class Attacher:
    """Finds the longest reusable prefix of some tokens and puts it in place."""

    def __init__(self, groups: Groups, reader: ColdReader) -> None:
        self._groups = groups
        self._reader = reader
        self._step_bytes = groups.block_size * TOKEN_BYTES

    def extend(self, found: Sequence, data: bytes) -> int:
        """Extend a sequence along data, token ids of which it holds a prefix; whole blocks only.

        Returns how many tokens came from the cold store.
        """
        start = found.length // self._groups.block_size
        runs = [self._run(table, data, start) for table in found.tables]
        num_blocks = min(len(blocks) for blocks, _ in runs)
        for blocks, _ in runs:
            _give_back(blocks[num_blocks:])
        if num_blocks == 0:
            return 0
        self._groups.cut(found, start * self._groups.block_size)
        for (blocks, _), table in zip(runs, found.tables, strict=True):
            self._publish(table, blocks[:num_blocks], data, start)
        end = start + num_blocks
        found.token_ids.extend(from_bytes(data[start * self._step_bytes : end * self._step_bytes]))
        found.num_reserved = found.length
        settle(found)
        num_cold = max(sum(cold[:num_blocks]) for _, cold in runs)
        return num_cold * self._groups.block_size

    def extend_partly(self, found: Sequence, data: bytes) -> None:
        """Copy the tokens that the next hot block shares with data, when that is a gain."""
        full, rest = divmod(found.length, self._groups.block_size)
        first = found.tables[0]
        ahead = data[full * self._step_bytes : (full + 1) * self._step_bytes]
        child, num_shared = max(
            (pool.index.best_child(first.tip(full), ahead) for pool in first.memory.pools),
            key=lambda best: best[1],
        )
        if child is None or num_shared <= rest:
            return
        blocks = _same_text(found, full, child.token_ids)
        copies = self._groups.copies(blocks, num_shared) if blocks else None
        if copies is None:
            return
        self._groups.cut(found, full * self._groups.block_size)
        tokens = from_bytes(ahead[: num_shared * TOKEN_BYTES])
        self._groups.append_tail(found, tokens, copies)

    def _run(self, table: BlockTable, data: bytes, start: int) -> tuple[list[Block], list[bool]]:
        """Return owned blocks that continue a table along data, and which of them were cold."""
        memory = table.memory
        hashes = list(
            chain_hashes(
                data,
                self._groups.block_size,
                memory.salt,
                start=start,
                parent=table.tip(start),
            )
        )
        blocks: list[Block] = []
        is_cold: list[bool] = []
        while len(blocks) < len(hashes):
            num_before = len(blocks)
            for block_hash in hashes[num_before:]:
                block = memory.find(block_hash)
                if block is None:
                    break
                block.pool.acquire(block)
                blocks.append(block)
            is_cold.extend([False] * (len(blocks) - num_before))
            loaded = self._load(table, hashes, data, start, len(blocks))
            blocks.extend(loaded)
            is_cold.extend([True] * len(loaded))
            if not loaded:
                break
        return blocks, is_cold

    def _load(
        self, table: BlockTable, hashes: list[bytes], data: bytes, start: int, at: int
    ) -> list[Block]:
        """Load the stored blocks from hashes[at] on, up to the next hot one."""
        find = table.memory.find
        end = next((i for i in range(at, len(hashes)) if find(hashes[i])), len(hashes))
        stored = self._reader.existing(hashes[at:end])
        wanted: list[Wanted] = []
        for i in range(at, end):
            if hashes[i] not in stored:
                break
            parent = hashes[i - 1] if i else table.tip(start)
            wanted.append(Wanted(hashes[i], parent, self._tokens(data, start + i)))
        return self._reader.load(table.memory, wanted)

    def _publish(self, table: BlockTable, blocks: list[Block], data: bytes, start: int) -> None:
        """Append owned blocks to a table; those that are still open are sealed."""
        for at, block in enumerate(blocks, start):
            if block.hash is None:
                table.append_open(block)
                table.seal_next(self._tokens(data, at))
            else:
                table.append_shared(block)
                block.pool.touch(block)
                block.pool.release(block)

    def _tokens(self, data: bytes, at: int) -> bytes:
        return data[at * self._step_bytes : (at + 1) * self._step_bytes]


def _give_back(blocks: list[Block]) -> None:
    for block in reversed(blocks):
        block.pool.release(block)


def _same_text(found: Sequence, at: int, token_ids: bytes) -> list[Block] | None:
    """Return the hot block of every group that follows block ``at`` with these tokens."""
    blocks = [
        table.memory.find(chain_hash(table.tip(at), token_ids, table.memory.salt))
        for table in found.tables
    ]
    complete = [block for block in blocks if block is not None]
    return complete if len(complete) == len(blocks) else None
