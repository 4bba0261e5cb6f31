"""Memory of models with attention and recurrent layers: both in step, at one length.

What can be reached is what both can reach.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence as SequenceOf
from dataclasses import replace
from typing import TYPE_CHECKING

from engine.memory.interface import Match, MemoryBreakdown
from engine.memory.sequence import to_bytes
from engine.memory.snapshot import unpack_body

if TYPE_CHECKING:
    from torch import Tensor

    from engine.memory.attention import PagedAttentionMemory
    from engine.memory.interface import NativeLayout, NativeTable, SequenceId
    from engine.memory.recurrent import RecurrentMemory, RecurrentView
    from engine.memory.step import PagedStepView
    from engine.memory.storage import Manifest, SnapshotJob


class HybridView:
    """Blocks and cells of a batch during one forward pass."""

    def __init__(self, attention: PagedStepView, recurrent: RecurrentView) -> None:
        self.slices = attention.slices
        self._attention = attention
        self._recurrent = recurrent

    def attend(
        self,
        layer: int,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        *,
        scale: float,
        soft_cap: float | None = None,
        sinks: Tensor | None = None,
    ) -> Tensor:
        """Write keys and values of the batch, then attend causally over everything visible."""
        return self._attention.attend(layer, q, k, v, scale=scale, soft_cap=soft_cap, sinks=sinks)

    def read_state(self, layer: int, name: str) -> Tensor:
        """Return one cell per batch slice, (slices, *shape) float32; zeros before any token."""
        return self._recurrent.read_state(layer, name)

    def write_state(self, layer: int, name: str, state: Tensor) -> None:
        """Replace the cells of all batch slices. state: (slices, *shape) float32, copied."""
        self._recurrent.write_state(layer, name, state)

    def cell_addresses(self) -> list[int]:
        """Return the address of each batch slice's cell, to be written in this step."""
        return self._recurrent.cell_addresses()

    def cell_offset(self, layer: int, name: str) -> int:
        """Return where a tensor of a layer begins in a cell, in numbers."""
        return self._recurrent.cell_offset(layer, name)

    def tables(self, layer: int) -> SequenceOf[NativeTable]:
        """Return one table per batch slice; the same objects for all layers of a group."""
        return self._attention.tables(layer)

    def exact_layout(self, layer: int) -> NativeLayout:
        """Return the layout of blocks that hold the numbers themselves."""
        return self._attention.exact_layout(layer)

    def packed_layout(self, layer: int) -> NativeLayout | None:
        """Return the layout of quantised blocks; None where the codec has none."""
        return self._attention.packed_layout(layer)

    def is_rotated(self, layer: int) -> tuple[bool, bool]:
        """Tell whether keys, and whether values, are stored times the Hadamard matrix."""
        return self._attention.is_rotated(layer)

    def window(self, layer: int) -> int | None:
        """Return the tokens a query of this layer sees, itself included; None is all."""
        return self._attention.window(layer)


class HybridMemory:
    """An attention memory and a recurrent one whose sequences advance together."""

    def __init__(self, attention: PagedAttentionMemory, recurrent: RecurrentMemory) -> None:
        self._attention = attention
        self._recurrent = recurrent
        self._pairs: dict[SequenceId, tuple[SequenceId, SequenceId]] = {}
        self._ids = itertools.count(1)

    def create(self) -> SequenceId:
        """Return a new, empty sequence."""
        return self._register(self._attention.create(), self._recurrent.create())

    def length(self, sequence: SequenceId) -> int:
        """Return the number of tokens in place."""
        return self._recurrent.length(self._pairs[sequence][1])

    def token_ids(self, sequence: SequenceId) -> SequenceOf[int]:
        """Return the tokens in place."""
        return self._recurrent.token_ids(self._pairs[sequence][1])

    def attach(self, sequence: SequenceId, token_ids: SequenceOf[int]) -> Match:
        """Extend a sequence to the longest prefix of token_ids that both kinds hold."""
        blocks, cells = self._pairs[sequence]
        reach = self._recurrent.reach(token_ids)
        if reach <= self.length(sequence):
            return Match(hot=self.length(sequence))
        # No further than a state is kept: more blocks would be brought back for nothing.
        match = self._attention.attach(blocks, token_ids[: reach + 1])
        self._recurrent.attach(cells, token_ids[: match.total + 1])
        return _within(match, self._align(sequence))

    def allocate(self, batch: SequenceOf[tuple[SequenceId, int]]) -> bool:
        """Reserve room for n more tokens of each sequence; False, and no change, when full."""
        return self._attention.allocate(self._of(batch, 0))

    def step(self, batch: SequenceOf[tuple[SequenceId, int]]) -> HybridView:
        """Return the view for a forward pass over the tokens just allocated."""
        return HybridView(
            self._attention.step(self._of(batch, 0)), self._recurrent.step(self._of(batch, 1))
        )

    def commit(self, sequence: SequenceId, token_ids: SequenceOf[int]) -> None:
        """Tell which tokens the last pass evaluated."""
        blocks, cells = self._pairs[sequence]
        self._attention.commit(blocks, token_ids)
        self._recurrent.commit(cells, token_ids)

    @property
    def checkpoint_spacing(self) -> int:
        """Tokens between the states that are kept while text is read."""
        return self._recurrent.checkpoint_spacing

    def checkpoint(self, sequence: SequenceId) -> None:
        """Keep the present state, to come back to; at message borders."""
        self._recurrent.checkpoint(self._pairs[sequence][1])

    def rollback_limit(self, sequence: SequenceId, length: int) -> int:
        """Return the longest length, at most the one given, that both kinds reach."""
        blocks, cells = self._pairs[sequence]
        while (reached := self._recurrent.rollback_limit(cells, length)) < length:
            length = self._attention.rollback_limit(blocks, reached)
        return self._attention.rollback_limit(blocks, reached)

    def fork(self, source: SequenceId, length: int) -> SequenceId | None:
        """Return a new sequence that shares the first length tokens; None when unreachable."""
        blocks, cells = self._pairs[source]
        branch_cells = self._recurrent.fork(cells, length)
        if branch_cells is None:
            return None
        branch_blocks = self._attention.fork(blocks, length)
        if branch_blocks is None:
            self._recurrent.release(branch_cells)
            return None
        return self._register(branch_blocks, branch_cells)

    def truncate(self, sequence: SequenceId, length: int) -> int:
        """Cut a sequence to at most length tokens; return the length both kinds reached."""
        self._recurrent.truncate(self._pairs[sequence][1], length)
        return self._align(sequence)

    def rest(self, sequence: SequenceId) -> None:
        """Bring the blocks into their final codec."""
        self._attention.rest(self._pairs[sequence][0])

    def release(self, sequence: SequenceId) -> None:
        """Give a sequence up; blocks and states stay reusable until evicted."""
        blocks, cells = self._pairs.pop(sequence)
        self._attention.release(blocks)
        self._recurrent.release(cells)

    def pin(self, sequence: SequenceId, length: int) -> None:
        """Keep the first length tokens exact and longest; for system prompts."""
        self._attention.pin(self._pairs[sequence][0], length)

    def snapshot(
        self,
        sequence: SequenceId,
        conversation_id: str,
        branch: str,
        log: bytes,
        *,
        borders: SequenceOf[int] = (),
    ) -> SnapshotJob | None:
        """Return what must be written so that the sequence can resume; None when all is stored."""
        blocks, cells = self._pairs[sequence]
        states, state_blocks = self._recurrent.pack(cells)
        return self._attention.snapshot(
            blocks,
            conversation_id,
            branch,
            log,
            borders=borders,
            states=states,
            state_blocks=state_blocks,
        )

    def restore(self, manifest: Manifest) -> tuple[SequenceId, bytes, Match]:
        """Bring a stored branch back, as far as both kinds could be verified.

        Raises: SnapshotError when the manifest itself is unusable.
        """
        body = unpack_body(manifest.body)
        blocks, log, match = self._attention.restore(manifest)
        sequence = self._register(blocks, self._recurrent.unpack(body.token_ids, body.states))
        return sequence, log, _within(match, self._align(sequence))

    def breakdown(self) -> MemoryBreakdown:
        """Return the real bytes by tier, states counted with the hot ones."""
        found = self._attention.breakdown()
        hot = found.tiers[0]
        states = self._recurrent.breakdown().tiers[0]
        both = replace(
            hot,
            used_bytes=hot.used_bytes + states.used_bytes,
            budget_bytes=hot.budget_bytes + states.budget_bytes,
        )
        return replace(found, tiers=(both, *found.tiers[1:]))

    def clear(self) -> None:
        """Drop every sequence and everything kept."""
        self._pairs.clear()
        self._attention.clear()
        self._recurrent.clear()

    def trim(self) -> int:
        """Give memory that holds nothing back to the system; return its bytes."""
        return self._attention.trim()

    def _register(self, blocks: SequenceId, cells: SequenceId) -> SequenceId:
        sequence = next(self._ids)
        self._pairs[sequence] = (blocks, cells)
        return sequence

    def _of(
        self, batch: SequenceOf[tuple[SequenceId, int]], kind: int
    ) -> list[tuple[SequenceId, int]]:
        return [(self._pairs[sequence][kind], num_tokens) for sequence, num_tokens in batch]

    def _align(self, sequence: SequenceId) -> int:
        """Cut both kinds to the longest length they share, which is returned."""
        blocks, cells = self._pairs[sequence]
        while (length := self._attention.length(blocks)) != self._recurrent.length(cells):
            shorter = min(length, self._recurrent.length(cells))
            self._attention.truncate(blocks, shorter)
            self._recurrent.truncate(cells, shorter)
        assert to_bytes(self._attention.token_ids(blocks)) == to_bytes(self.token_ids(sequence))
        return length


def _within(match: Match, length: int) -> Match:
    """Return a match cut to length, what came from the lowest tier counted first."""
    cold = min(match.cold, length)
    warm = min(match.warm, length - cold)
    return replace(match, hot=length - warm - cold, warm=warm, cold=cold)
