"""Recurrent states in the cold store: named by the text before them, so that none is stored twice.

A state is stored like a block: ``parent`` is the hash of the full blocks before it, ``token_ids``
what follows them, and the payload is the state (float32 little-endian) and then its own hash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.errors import StoreError
from engine.kernels.checksum import crc32
from engine.memory.checkpoints import Checkpoint
from engine.memory.prefix_index import HASH_BYTES, TOKEN_BYTES, chain_hash, chain_hashes
from engine.memory.storage import NewBlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from engine.memory.checkpoints import CheckpointIndex
    from engine.memory.storage import ColdStore, StoredBlock

STATE_CODEC = "state"


@dataclass(frozen=True, slots=True)
class StateBlock:
    """A state and the names it is stored under."""

    hash: bytes
    parent: bytes
    token_ids: bytes
    state: Tensor

    def offered(self) -> NewBlock:
        """Return what the store is given."""
        payload = self.state.cpu().numpy().astype("<f4").tobytes() + self.hash
        return NewBlock(self.hash, self.parent, self.token_ids, STATE_CODEC, payload)


class StoredStates:
    """Names states and reads them back, verified; a store that breaks down has none.

    state_size: numbers of one state. num_damaged: states that failed verification so far.
    """

    def __init__(
        self,
        store: ColdStore | None,
        fingerprint: bytes,
        index: CheckpointIndex,
        *,
        salt: bytes,
        block_size: int,
        state_size: int,
    ) -> None:
        self.num_damaged = 0
        self._store = store
        self._fingerprint = fingerprint
        self._index = index
        self._salt = salt
        self._block_size = block_size
        self._state_size = state_size

    def named(self, token_ids: bytes, checkpoint: Checkpoint) -> StateBlock:
        """Return a checkpoint on the way along token_ids under its name."""
        text = token_ids[: checkpoint.position * TOKEN_BYTES]
        parent, rest = self._index.key(text)
        return StateBlock(chain_hash(parent, rest, self._salt), parent, rest, checkpoint.state)

    def read(self, token_ids: bytes, positions: Sequence[int]) -> Iterator[Checkpoint]:
        """Yield those of the states at some positions along token_ids that are stored and sound."""
        nothing = torch.empty(0)
        wanted = {
            named.hash: (position, named)
            for position in positions
            for named in (self.named(token_ids, Checkpoint(position, nothing)),)
        }
        for stored in self._read(list(wanted)):
            position, named = wanted[stored.hash]
            if not self._is_sound(stored, named):
                self._discard(stored.hash)
                continue
            numbers = bytearray(stored.payload[:-HASH_BYTES])
            yield Checkpoint(position, torch.frombuffer(numbers, dtype=torch.float32))

    def longest(self, token_ids: bytes, *, beyond: int) -> Checkpoint | None:
        """Return the stored state at the last block border along token_ids beyond a position."""
        tips = list(chain_hashes(token_ids, self._block_size, self._salt))
        first = beyond // self._block_size
        hashes = [chain_hash(tip, b"", self._salt) for tip in tips[first:]]
        stored = self._existing(hashes)
        for at in range(len(hashes) - 1, -1, -1):
            if hashes[at] in stored:
                position = (first + at + 1) * self._block_size
                found = next(self.read(token_ids, [position]), None)
                if found is not None:
                    return found
        return None

    def _is_sound(self, stored: StoredBlock, named: StateBlock) -> bool:
        return (
            stored.parent == named.parent
            and stored.token_ids == named.token_ids
            and len(stored.payload) == 4 * self._state_size + HASH_BYTES
            and stored.payload[-HASH_BYTES:] == named.hash
            and crc32(stored.payload) == stored.crc32
        )

    def _existing(self, hashes: Sequence[bytes]) -> frozenset[bytes]:
        if self._store is None or not hashes:
            return frozenset()
        try:
            return self._store.existing(self._fingerprint, hashes)
        except StoreError:
            return frozenset()

    def _read(self, hashes: Sequence[bytes]) -> Iterator[StoredBlock]:
        if self._store is None or not hashes:
            return
        try:
            yield from self._store.read_blocks(self._fingerprint, hashes)
        except StoreError:
            self.num_damaged += 1

    def _discard(self, block_hash: bytes) -> None:
        assert self._store is not None
        self.num_damaged += 1
        try:
            self._store.discard_blocks(self._fingerprint, [block_hash])
        except StoreError:
            return
