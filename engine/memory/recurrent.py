"""Memory of recurrent layers: one cell per sequence, and checkpoints to go back to.

A step writes into a new cell, so the cell before it stays valid: it may be shared by forks, kept as
a checkpoint, or taken back when the step comes to nothing.
"""

from __future__ import annotations

import itertools
import math
import time
from array import array
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import torch

from engine.config import KVCodec
from engine.errors import SnapshotError
from engine.memory.checkpoints import (
    Checkpoint,
    CheckpointIndex,
    pack_states,
    spaced,
    unpack_states,
)
from engine.memory.interface import BatchSlice, Match, MemoryBreakdown, TierUse
from engine.memory.prefix_index import TOKEN_BYTES, chain_salt
from engine.memory.sequence import Sequence, from_bytes, to_bytes
from engine.memory.snapshot import ManifestBody, SnapshotWriter, unpack_body
from engine.memory.stored_states import StateBlock, StoredStates
from engine.placement import CPU, Placement

if TYPE_CHECKING:
    from torch import Tensor

    from engine.memory.interface import MemorySpec, RecurrentState, SequenceId
    from engine.memory.storage import ColdStore, Manifest, SnapshotJob

# States of at most this size are kept at every block border, bigger ones at every fourth.
SMALL_STATE_BYTES = 1 << 20
STORED_BYTES = 32 << 20
MAX_STORED = 256
# No attention group has this number, so states never share a chain with blocks.
_STATE_GROUP = 1 << 16


class CellLayout:
    """Where each layer's tensors lie in a flat cell. size: numbers of a cell."""

    def __init__(self, spec: RecurrentState) -> None:
        self._places: dict[tuple[int, str], tuple[int, tuple[int, ...]]] = {}
        self.size = 0
        for layer in spec.layers:
            for name, shape in spec.shapes:
                self._places[layer, name] = (self.size, shape)
                self.size += math.prod(shape)

    def part(self, cell: Tensor, layer: int, name: str) -> Tensor:
        """Return a view of one tensor of a cell."""
        start, shape = self._places[layer, name]
        return cell[start : start + math.prod(shape)].view(shape)

    def offset(self, layer: int, name: str) -> int:
        """Return where a tensor begins in a cell, in numbers."""
        return self._places[layer, name][0]


@dataclass(slots=True)
class _State:
    """One sequence. cell: after its last token. pending: being written by a step."""

    cell: Tensor
    pending: Tensor | None = None
    token_ids: array[int] = field(default_factory=lambda: array("i"))


class RecurrentView:
    """The cells of a batch during one forward pass."""

    def __init__(
        self,
        slices: tuple[BatchSlice, ...],
        cells: SequenceOf[Tensor],
        layout: CellLayout,
        placement: Placement | None,
    ) -> None:
        self.slices = slices
        self._placement = placement
        self._cells = cells
        self._layout = layout

    def read_state(self, layer: int, name: str) -> Tensor:
        """Return one cell per batch slice, (slices, *shape) float32; zeros before any token.

        On the layer's device.
        """
        state = torch.stack([self._layout.part(cell, layer, name) for cell in self._cells])
        return state if self._placement is None else state.to(self._placement.layers[layer])

    def write_state(self, layer: int, name: str, state: Tensor) -> None:
        """Replace the cells of all batch slices. state: (slices, *shape) float32, copied."""
        for cell, new in zip(self._cells, state, strict=True):
            self._layout.part(cell, layer, name).copy_(new)

    def cell_addresses(self) -> list[int]:
        """Return the address of each batch slice's cell, to be written in this step."""
        return [cell.data_ptr() for cell in self._cells]

    def cell_offset(self, layer: int, name: str) -> int:
        """Return where a tensor of a layer begins in a cell, in numbers."""
        return self._layout.offset(layer, name)

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
        """Refuse: there are no attention layers here."""
        raise AssertionError(f"layer {layer} has no attention memory")


class RecurrentMemory:
    """Memory for models whose layers are all recurrent; a part of the memory of hybrid ones.

    Every length is reached through a checkpoint: ``truncate`` tells which one it was.
    """

    def __init__(
        self,
        spec: MemorySpec,
        *,
        block_size: int,
        budget_bytes: int,
        placement: Placement | None = None,
        store: ColdStore | None = None,
    ) -> None:
        """Build an empty memory.

        placement: where the layers are; None is the CPU. Cells lie with them, and on the CPU where
        they are on several devices: then a layer elsewhere moves its state back and forth.
        """
        assert spec.recurrent is not None
        self._spec = spec
        self._block_size = block_size
        self._placement = placement
        devices = (CPU,) if placement is None else placement.devices
        self._device = devices[0] if len(devices) == 1 else CPU
        self._store = store
        self._layout = CellLayout(spec.recurrent)
        salt = chain_salt(spec.fingerprint, KVCodec.F32, block_size, _STATE_GROUP)
        self._index = CheckpointIndex(block_size, salt, budget_bytes)
        self._stored = StoredStates(
            store,
            spec.fingerprint,
            self._index,
            salt=salt,
            block_size=block_size,
            state_size=self._layout.size,
        )
        self._writer = SnapshotWriter(store, spec.fingerprint)
        self._states: dict[SequenceId, _State] = {}
        self._ids = itertools.count(1)

    @property
    def checkpoint_spacing(self) -> int:
        """Tokens between the states that are kept while text is read."""
        return self._block_size * (1 if self._cell_bytes <= SMALL_STATE_BYTES else 4)

    def create(self) -> SequenceId:
        """Return a new, empty sequence."""
        return self._register(_State(self._zeros()))

    def length(self, sequence: SequenceId) -> int:
        """Return the number of tokens in place."""
        return len(self._states[sequence].token_ids)

    def token_ids(self, sequence: SequenceId) -> SequenceOf[int]:
        """Return the tokens in place."""
        return self._states[sequence].token_ids

    def reach(self, token_ids: SequenceOf[int]) -> int:
        """Return the length that ``attach`` would reach on a new sequence.

        A stored state that leads further than those in memory becomes one of them.
        """
        data = to_bytes(token_ids[: max(0, len(token_ids) - 1)])
        found = next(self._index.path(data), None)
        position = 0 if found is None else found.position
        further = self._stored.longest(data, beyond=position)
        if further is None:
            return position
        self._keep(data, further)
        return further.position

    def attach(self, sequence: SequenceId, token_ids: SequenceOf[int]) -> Match:
        """Go on from the longest checkpoint along token_ids, unless the sequence is further."""
        state = self._states[sequence]
        data = to_bytes(token_ids[: max(0, len(token_ids) - 1)])
        assert data.startswith(to_bytes(state.token_ids)), "not a prefix of these tokens"
        before = self._index.find(data)
        self.reach(token_ids)
        found = self._index.find(data)
        if found is None or found.position <= len(state.token_ids):
            return Match(hot=len(state.token_ids))
        self._go_to(state, found, data)
        num_hot = 0 if before is None else before.position
        return Match(hot=num_hot, cold=found.position - num_hot)

    def allocate(self, batch: SequenceOf[tuple[SequenceId, int]]) -> bool:
        """Return True: a cell has room for any number of tokens."""
        return True

    def step(self, batch: SequenceOf[tuple[SequenceId, int]]) -> RecurrentView:
        """Return the view for a forward pass; what it writes counts once it is committed."""
        slices: list[BatchSlice] = []
        cells: list[Tensor] = []
        start = 0
        for sequence, num_tokens in batch:
            state = self._states[sequence]
            state.pending = state.cell.clone()
            cells.append(state.pending)
            position = len(state.token_ids)
            slices.append(BatchSlice(sequence, start, start + num_tokens, position))
            start += num_tokens
        return RecurrentView(tuple(slices), cells, self._layout, self._placement)

    def commit(self, sequence: SequenceId, token_ids: SequenceOf[int]) -> None:
        """Take over what the last step wrote, and keep a checkpoint where that is worth it."""
        state = self._states[sequence]
        assert state.pending is not None, "no step before this commit"
        state.cell, state.pending = state.pending, None
        state.token_ids.extend(token_ids)
        if len(token_ids) > 1 or len(state.token_ids) % self.checkpoint_spacing == 0:
            self._index.add(to_bytes(state.token_ids), state.cell)

    def checkpoint(self, sequence: SequenceId) -> None:
        """Keep the present state, to come back to; at message borders."""
        state = self._states[sequence]
        if state.token_ids:
            self._index.add(to_bytes(state.token_ids), state.cell, is_border=True)

    def rollback_limit(self, sequence: SequenceId, length: int) -> int:
        """Return the longest length, at most the one given, that can be reached."""
        state = self._states[sequence]
        if length >= len(state.token_ids):
            return len(state.token_ids)
        found = next(self._index.path(to_bytes(state.token_ids[:length])), None)
        return 0 if found is None else found.position

    def fork(self, source: SequenceId, length: int) -> SequenceId | None:
        """Return a new sequence of exactly length tokens; None when no state is kept there."""
        original = self._states[source]
        if length > len(original.token_ids):
            return None
        branch = _State(original.cell, None, original.token_ids[:])
        return self._register(branch) if self._rewind(branch, length) == length else None

    def truncate(self, sequence: SequenceId, length: int) -> int:
        """Go back to the last state kept at or before length; return its position."""
        return self._rewind(self._states[sequence], length)

    def rest(self, sequence: SequenceId) -> None:
        """Do nothing: a state has one form."""

    def release(self, sequence: SequenceId) -> None:
        """Give a sequence up; its state stays as a checkpoint until evicted."""
        self.checkpoint(sequence)
        del self._states[sequence]

    def pin(self, sequence: SequenceId, length: int) -> None:
        """Do nothing: states are always exact."""

    def pack(self, sequence: SequenceId) -> tuple[bytes, list[StateBlock]]:
        """Return the present state as bytes, and checkpoints on the way to it to be stored apart.

        The bytes tell the positions of those as well.
        """
        state = self._states[sequence]
        data = to_bytes(state.token_ids)
        path = [c for c in self._index.path(data) if c.position < len(state.token_ids)]
        num_kept = max(1, min(MAX_STORED, STORED_BYTES // self._cell_bytes))
        kept = spaced(path, self.checkpoint_spacing, num_kept)
        present = Checkpoint(len(state.token_ids), state.cell)
        return pack_states(present, kept), [self._stored.named(data, one) for one in kept]

    def unpack(self, token_ids: bytes, states: bytes) -> SequenceId:
        """Return a sequence that goes on from a packed state; its checkpoints are read as well.

        Raises: SnapshotError when the state cannot be read.
        """
        try:
            present, borders, others = unpack_states(states, self._layout.size)
        except ValueError as error:
            raise _unusable(str(error)) from error
        positions = [*borders, *others]
        if max(positions, default=0) * TOKEN_BYTES > len(token_ids):
            raise _unusable("a state lies beyond its text")
        if present.position * TOKEN_BYTES > len(token_ids):
            raise _unusable("a state lies beyond its text")
        for checkpoint in self._stored.read(token_ids, positions):
            is_border = checkpoint.position in borders
            self._keep(token_ids, replace(checkpoint, is_border=is_border))
        sequence = self.create()
        if present.position:
            self._go_to(self._states[sequence], self._keep(token_ids, present), token_ids)
        return sequence

    def snapshot(
        self,
        sequence: SequenceId,
        conversation_id: str,
        branch: str,
        log: bytes,
        *,
        borders: SequenceOf[int] = (),
    ) -> SnapshotJob | None:
        """Return what must be written so that the sequence can resume; None when all is stored.

        borders: not looked at, checkpoints lie there.
        """
        if self._store is None:
            return None
        states, blocks = self.pack(sequence)
        body = ManifestBody(
            codec=KVCodec.F32,
            block_size=self._block_size,
            token_ids=to_bytes(self._states[sequence].token_ids),
            hashes=(),
            tails=(),
            log=log,
            states=states,
        )
        return self._writer.job(Sequence([]), body, (), conversation_id, branch, states=blocks)

    def restore(self, manifest: Manifest) -> tuple[SequenceId, bytes, Match]:
        """Bring a stored branch back. Raises: SnapshotError when its manifest is unusable."""
        started = time.perf_counter()
        if manifest.fingerprint != self._spec.fingerprint:
            raise _unusable("it belongs to another model")
        body = unpack_body(manifest.body)
        if body.hashes or body.num_tokens != manifest.num_tokens:
            raise _unusable("its sizes contradict each other")
        sequence = self.unpack(body.token_ids, body.states)
        restore_ms = (time.perf_counter() - started) * 1e3
        return sequence, body.log, Match(cold=self.length(sequence), restore_ms=restore_ms)

    def breakdown(self) -> MemoryBreakdown:
        """Return the real bytes by tier; a state counts once however many share it."""
        hot = TierUse("hot", self.used_bytes, self._index.budget_bytes, len(self._index))
        tiers = [hot]
        if self._store is not None:
            store = self._store
            tiers.append(TierUse("cold", store.used_bytes(), store.budget_bytes(), 0))
        return MemoryBreakdown(tuple(tiers), 0, 0, 0, self._block_size)

    @property
    def used_bytes(self) -> int:
        """Bytes of all states that are kept, those of living sequences included."""
        return self._index.used_bytes + len(self._states) * self._cell_bytes

    def clear(self) -> None:
        """Drop every sequence and every checkpoint."""
        self._states.clear()
        self._index.clear()

    def trim(self) -> int:
        """Return 0: there is nothing held that is not used."""
        return 0

    @property
    def _cell_bytes(self) -> int:
        return max(1, self._layout.size * 4)

    def _zeros(self) -> Tensor:
        return torch.zeros(self._layout.size, device=self._device)

    def _register(self, state: _State) -> SequenceId:
        sequence = next(self._ids)
        self._states[sequence] = state
        return sequence

    def _rewind(self, state: _State, length: int) -> int:
        """Bring a state back to the last checkpoint at or before length; return its position."""
        state.pending = None
        if length >= len(state.token_ids):
            return len(state.token_ids)
        data = to_bytes(state.token_ids[:length])
        self._go_to(state, self._index.find(data) or Checkpoint(0, self._zeros()), data)
        return len(state.token_ids)

    def _keep(self, token_ids: bytes, checkpoint: Checkpoint) -> Checkpoint:
        """Make a state from outside a checkpoint on the device, which is returned."""
        text = token_ids[: checkpoint.position * TOKEN_BYTES]
        state = checkpoint.state.to(self._device)
        self._index.add(text, state, is_border=checkpoint.is_border)
        return replace(checkpoint, state=state)

    def _go_to(self, state: _State, checkpoint: Checkpoint, data: bytes) -> None:
        state.cell, state.pending = checkpoint.state, None
        state.token_ids = from_bytes(data[: checkpoint.position * TOKEN_BYTES])


def _unusable(why: str) -> SnapshotError:
    return SnapshotError("The stored state of this conversation cannot be used.", detail=why)
