"""Memory of attention layers: sequences of shared blocks, exact at every length.

Full blocks are sealed, immutable and found by their content; the open tail belongs to one sequence.
So a fork costs reference counts and a copy of the tail, and text is read once however many
conversations contain it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING

from engine.memory.attaching import Attacher
from engine.memory.building import MemoryOptions, build_budget, build_groups, build_scratches
from engine.memory.cold_reader import ColdReader
from engine.memory.distill import distilled
from engine.memory.groups import Groups
from engine.memory.interface import BatchSlice, Match
from engine.memory.packing import settle
from engine.memory.restoring import Restorer
from engine.memory.rolling import MoveKeys, hold, rolled
from engine.memory.sequence import to_bytes
from engine.memory.snapshot import ManifestBody, SnapshotWriter, read_tail
from engine.memory.step import PagedStepView
from engine.memory.usage import breakdown_of
from engine.memory.warm_tier import WarmTier

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from engine.memory.block_pool import Block
    from engine.memory.interface import MemoryBreakdown, MemorySpec, SequenceId
    from engine.memory.sequence import BlockTable, Sequence
    from engine.memory.storage import ColdStore, Manifest, SnapshotJob
    from engine.memory.stored_states import StateBlock


class PagedAttentionMemory:
    """Memory for models whose layers all attend."""

    def __init__(
        self, spec: MemorySpec, options: MemoryOptions, *, store: ColdStore | None = None
    ) -> None:
        self._spec = spec
        self._options = options
        self._store = store
        self._budget = build_budget(spec, options)
        self._warm = WarmTier(options.warm_budget_bytes)
        memories = build_groups(spec, options, self._budget, self._warm)
        self._groups = Groups(memories, options.block_size)
        self._reader = ColdReader(store, spec.fingerprint, self._warm)
        self._writer = SnapshotWriter(store, spec.fingerprint)
        self._attacher = Attacher(self._groups, self._reader)
        self._scratches = build_scratches(spec, options)
        self._sequences: dict[SequenceId, Sequence] = {}
        self._ids = itertools.count(1)

    def create(self) -> SequenceId:
        """Return a new, empty sequence."""
        return self._register(self._groups.new_sequence())

    def prepare(self, num_bytes: int) -> None:
        """Have the system provide so much hot memory now, as far as the budget allows.

        Whoever brings a conversation back does not wait for it then.
        """
        self._groups.prepare(num_bytes)

    def length(self, sequence: SequenceId) -> int:
        """Return the number of tokens in place, those thinned out included."""
        return self._sequences[sequence].num_tokens

    def token_ids(self, sequence: SequenceId) -> SequenceOf[int]:
        """Return the tokens in place."""
        return self._sequences[sequence].all_token_ids()

    def num_places(self, sequence: SequenceId) -> int:
        """Return how many places its tokens take: fewer than there are, once it is thinned out."""
        return self._sequences[sequence].length

    def num_pinned(self, sequence: SequenceId) -> int:
        """Return how many leading tokens are pinned."""
        return self._sequences[sequence].num_pinned

    def attach(self, sequence: SequenceId, token_ids: SequenceOf[int]) -> Match:
        """Extend a sequence with the longest stored prefix of token_ids, from any tier.

        The sequence may already hold a prefix of token_ids. The last token is never placed. Beyond
        full blocks, tokens shared with the start of a hot block are copied.
        """
        found = self._sequences[sequence]
        self._writer.collect()
        started = time.perf_counter()
        data = to_bytes(found.placed(token_ids[: max(0, len(token_ids) - 1)]))
        assert data.startswith(found.token_bytes(0, found.length)), "not a prefix of these tokens"
        brought = self._attacher.extend(found, data)
        self._attacher.extend_partly(found, data)
        return Match(
            hot=found.num_tokens - brought.warm - brought.cold,
            warm=brought.warm,
            cold=brought.cold,
            restore_ms=(time.perf_counter() - started) * 1e3,
            damaged=self._reader.take_damaged(),
        )

    def allocate(self, batch: SequenceOf[tuple[SequenceId, int]]) -> bool:
        """Reserve room for n more tokens of each sequence; False, and no change, when full."""
        self._writer.collect()
        assert len({sequence for sequence, _ in batch}) == len(batch), "a sequence twice"
        wanted = [
            (found := self._sequences[sequence], found.length + num_tokens)
            for sequence, num_tokens in batch
        ]
        if all([num_tokens <= found.num_reserved for found, num_tokens in wanted]):
            return True
        return self._groups.reserve(wanted)

    def step(self, batch: SequenceOf[tuple[SequenceId, int]]) -> PagedStepView:
        """Return the view for a forward pass over the tokens just allocated."""
        sequences = [self._sequences[sequence] for sequence, _ in batch]
        slices: list[BatchSlice] = []
        start = 0
        for (sequence, num_tokens), found in zip(batch, sequences, strict=True):
            assert found.length + num_tokens <= found.num_reserved, "not allocated"
            slices.append(BatchSlice(sequence, start, start + num_tokens, found.length))
            start += num_tokens
        tables = list(zip(*(found.tables for found in sequences), strict=True))
        return PagedStepView(tuple(slices), self._groups.memories, tables, self._scratches)

    def commit(self, sequence: SequenceId, token_ids: SequenceOf[int]) -> None:
        """Tell which tokens the last pass evaluated; full blocks are sealed and shareable."""
        found = self._sequences[sequence]
        found.token_ids.extend(token_ids)
        assert found.length <= found.num_reserved, "more tokens than were allocated"
        self._groups.seal_full(found)

    def fork(self, source: SequenceId, length: int) -> SequenceId | None:
        """Return a new sequence that shares the first length tokens; None when unreachable.

        Costs reference counts and at most one block copy per group; where the window of that length
        is gone, what finding or loading it costs.
        """
        original = self._sequences[source]
        place = original.place_of(length)
        if length > original.num_tokens or place is None:
            return None
        length = place
        if not self._groups.is_reachable(original, length):
            again = self._found_again(original, length)
            if again.length == length:
                return self._register(again)
            self._groups.cut(again, 0)
            return None
        full, rest = divmod(length, self._groups.block_size)
        tails = self._tail_copies(original, full, rest)
        if tails is None:
            return None
        branch = self._groups.new_sequence(original.prefix if length else None)
        for table, of_original in zip(branch.tables, original.tables, strict=True):
            of_original.share_with(table, full)
        self._groups.append_tail(branch, original.token_ids[:length], tails)
        return self._register(branch)

    def truncate(self, sequence: SequenceId, length: int) -> int:
        """Cut a sequence to at most length tokens; return the length reached.

        Smaller than asked for when a sealed block must be copied and there is no room, or when the
        window of that length is neither hot nor stored any more.
        """
        found = self._sequences[sequence]
        place = found.place_of(min(length, found.num_tokens)) or 0
        if self._groups.is_reachable(found, place):
            self._cut(found, place)
        else:
            self._sequences[sequence] = self._found_again(found, place)
            self._groups.cut(found, 0)
            found = self._sequences[sequence]
        self._groups.drop_part_of_prefix(found)
        return found.num_tokens

    @property
    def checkpoint_spacing(self) -> int:
        """Return 0: every length is reachable, or can be brought back."""
        return 0

    def checkpoint(self, sequence: SequenceId) -> None:
        """Do nothing: every length is reachable."""

    def rollback_limit(self, sequence: SequenceId, length: int) -> int:
        """Return the longest length, at most the one given, that can be reached."""
        found = self._sequences[sequence]
        length = min(length, found.num_tokens)
        place = found.place_of(length)
        if place is None:
            return 0
        if self._groups.is_reachable(found, place):
            return length
        return self._attacher.reach(found.token_bytes(0, place), found.prefix)

    def rest(self, sequence: SequenceId) -> None:
        """Bring every full block but the first and pinned ones into its final codec.

        The tail, which stays exact, is shared with resting sequences of equal text.
        """
        self._writer.collect()
        found = self._sequences[sequence]
        settle(found, exact_recent=0)
        self._groups.leave_window(found)
        self._groups.share_tail(found)

    def release(self, sequence: SequenceId) -> None:
        """Give a sequence up; its sealed blocks stay reusable until evicted."""
        self._writer.collect()
        self._groups.cut(self._sequences.pop(sequence), 0)

    def pin(self, sequence: SequenceId, length: int) -> None:
        """Keep the first length tokens exact and longest; for system prompts.

        They need not be in place yet. Blocks that are quantised already stay so.
        """
        found = self._sequences[sequence]
        found.num_pinned = max(found.num_pinned, length)
        for table in found.tables:
            for block_hash in table.hashes[: length // self._groups.block_size]:
                block = table.memory.find(block_hash)
                if block is not None:
                    block.pool.pin(block)

    def snapshot(
        self,
        sequence: SequenceId,
        conversation_id: str,
        branch: str,
        log: bytes,
        *,
        borders: SequenceOf[int] = (),
        states: bytes = b"",
        state_blocks: SequenceOf[StateBlock] = (),
    ) -> SnapshotJob | None:
        """Return what must be written so that the sequence can resume; None when all is stored.

        borders: lengths somebody may go back to; of windows, only what is seen from there and from
        the end is stored. states, state_blocks: recurrent ones, kept in the manifest and beside the
        blocks.
        """
        found = self._sequences[sequence]
        if self._store is None:
            return None
        num_settled = min(table.num_settled for table in found.tables)
        num_tail = found.length - num_settled * self._groups.block_size
        body = ManifestBody(
            codec=self._options.codec,
            block_size=self._groups.block_size,
            token_ids=found.token_bytes(0, found.length),
            hashes=tuple(tuple(table.hashes[:num_settled]) for table in found.tables),
            tails=tuple(
                read_tail(_tail_blocks(table, num_settled, num_tail), num_tail)
                for table in found.tables
            ),
            log=log,
            num_pinned=found.num_pinned,
            states=states,
            prefix=found.prefix,
        )
        places = [found.place_of(length) for length in borders if length <= found.num_tokens]
        ends = [*(place for place in places if place is not None), found.length]
        kept = [table.memory.worth_storing(num_settled, ends) for table in found.tables]
        return self._writer.job(found, body, kept, conversation_id, branch, states=state_blocks)

    def distill(self, sequence: SequenceId, kept: SequenceOf[Tensor]) -> SequenceId | None:
        """Return a copy of a sequence that keeps only some places; None when there is no room.

        kept: per group, (L, K, M) places in ascending order; for every layer and kv head the first
        ones and the last ones must be the same. The copy goes on at the position where the
        original ends.
        """
        copy = distilled(self._groups, self._sequences[sequence], kept)
        return None if copy is None else self._register(copy)

    def can_roll(self, sequence: SequenceId, places: SequenceOf[int]) -> bool:
        """Tell whether ``roll`` finds all it needs; brings back what left a window."""
        return hold(self._sequences[sequence], places, self._reader)

    def roll(
        self,
        sequence: SequenceId,
        places: SequenceOf[int],
        *,
        move_keys: MoveKeys,
        make_room: Callable[[], bool],
    ) -> SequenceId | None:
        """Return a sequence of some places of another at positions 0, 1, 2...; that one is gone.

        places: ascending, at least one, of a sequence that was not thinned out; see ``can_roll``.
        make_room is asked while memory is full; None when there is no room at all.
        """
        self._writer.collect()
        found = self._sequences.pop(sequence)
        copy = rolled(self._groups, found, places, move_keys, make_room)
        return None if copy is None else self._register(copy)

    def restore(self, manifest: Manifest) -> tuple[SequenceId, bytes, Match]:
        """Bring a stored branch back: a sequence as long as could be verified, its log, the match.

        Raises: SnapshotError when the manifest itself is unusable.
        """
        self._writer.collect()
        restorer = Restorer(self._spec, self._options.codec, self._groups, self._reader)
        found, log, match = restorer.run(manifest)
        return self._register(found), log, match

    def breakdown(self) -> MemoryBreakdown:
        """Return the real bytes by tier."""
        return breakdown_of(self._groups, self._budget, self._warm, self._store)

    def clear(self) -> None:
        """Drop every sequence and every cached block; blocks being written stay until they are."""
        for sequence in list(self._sequences):
            self.release(sequence)
        for memory in self._groups.memories:
            for pool in memory.pools:
                pool.clear()
        self._warm.clear()

    def trim(self) -> int:
        """Give memory that holds nothing back to the system; return its bytes."""
        return sum(pool.trim() for memory in self._groups.memories for pool in memory.pools)

    def _register(self, found: Sequence) -> SequenceId:
        sequence = next(self._ids)
        self._sequences[sequence] = found
        return sequence

    def _cut(self, found: Sequence, length: int) -> None:
        """Cut a sequence to length; to the block border before it without room for a copy."""
        full, rest = divmod(length, self._groups.block_size)
        if rest == 0 or full == found.length // self._groups.block_size:
            self._groups.cut(found, length)
            return
        tails = self._tail_copies(found, full, rest)
        border = full * self._groups.block_size
        tokens = found.token_ids[border:length]
        self._groups.cut(found, border)
        if tails is not None:
            self._groups.append_tail(found, tokens, tails)

    def _found_again(self, original: Sequence, length: int) -> Sequence:
        """Return a sequence of at most length of its tokens, put together from what is kept."""
        assert original.num_dropped == 0, "thinned-out sequences have no windows"
        found = self._groups.new_sequence(original.prefix)
        data = original.token_bytes(0, length)
        self._attacher.extend(found, data)
        self._attacher.extend_partly(found, data)
        found.num_pinned = min(original.num_pinned, found.length)
        self._groups.drop_part_of_prefix(found)
        return found

    def _tail_copies(self, source: Sequence, full: int, rest: int) -> list[Block] | None:
        """Return copies of the first rest tokens of block ``full``, one per group; none for 0."""
        if rest == 0:
            return []
        return self._groups.copies([table.block(full) for table in source.tables], rest)


def _tail_blocks(table: BlockTable, num_settled: int, num_tokens: int) -> list[Block]:
    """Return the blocks that hold num_tokens tokens after the settled ones."""
    size = table.memory.pool.layout.block_size
    return table.span(num_settled, num_settled - (-num_tokens // size))
