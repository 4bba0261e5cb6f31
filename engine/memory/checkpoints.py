"""States of recurrent layers at some positions, found by the text that leads to them.

A recurrent state cannot be rewound, so past ones are kept: immutable tensors, shared by every
sequence with the same beginning. When the budget is full they thin out evenly.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import torch

from engine.memory.prefix_index import ROOT, TOKEN_BYTES, chain_hashes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

_COUNT = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after the first ``position`` tokens of some text.

    state: flat float32, never changed. is_border: kept on purpose, because a message ends here.
    """

    position: int
    state: Tensor
    is_border: bool = False

    @property
    def num_bytes(self) -> int:
        """Bytes of the state."""
        return self.state.numel() * self.state.element_size()


@dataclass(slots=True, eq=False)
class _Entry:
    """A checkpoint among those of the texts before and after it.

    parent: the last one before it. end: where the text that went on from here lately ends.
    last_use: by the index's clock.
    """

    key: tuple[bytes, bytes]
    checkpoint: Checkpoint
    last_use: int
    end: int
    parent: _Entry | None = None
    children: set[_Entry] = field(default_factory=set)

    def put_below(self, parent: _Entry | None) -> None:
        """Make another checkpoint the last one before this."""
        if self.parent is not None:
            self.parent.children.discard(self)
        self.parent = parent
        if parent is not None:
            parent.children.add(self)


class CheckpointIndex:
    """Checkpoints by the text before them, within a budget.

    A text is the hash of its full blocks and the tokens after them. When the budget is full, that
    one goes without which least has to be read again: ``_worth`` weighs it.
    """

    def __init__(self, block_size: int, salt: bytes, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self._block_size = block_size
        self._salt = salt
        self._kept: dict[tuple[bytes, bytes], _Entry] = {}
        self._tails: dict[bytes, set[bytes]] = {}
        self._clock = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, token_ids: bytes, state: Tensor, *, is_border: bool = False) -> None:
        """Keep the state after token_ids (int32 little-endian); the state must never change."""
        tips = self._tips(token_ids)
        key = self._key_of(token_ids, tips)
        entry = self._kept.get(key)
        if entry is None:
            entry = self._insert(key, Checkpoint(len(token_ids) // TOKEN_BYTES, state, is_border))
        elif is_border:
            entry.checkpoint = replace(entry.checkpoint, is_border=True)
        self._use(list(self._along(token_ids, tips)))
        while self.used_bytes > self.budget_bytes and len(self._kept) > 1:
            self._drop(self._least_worth(but=entry))

    def path(self, token_ids: bytes) -> Iterator[Checkpoint]:
        """Yield the checkpoints along token_ids, the longest first."""
        for entry in self._along(token_ids, self._tips(token_ids)):
            yield entry.checkpoint

    def find(self, token_ids: bytes) -> Checkpoint | None:
        """Return the checkpoint that covers most of token_ids."""
        found = list(self._along(token_ids, self._tips(token_ids)))
        self._use(found)
        return found[0].checkpoint if found else None

    def clear(self) -> None:
        """Drop all."""
        self._kept.clear()
        self._tails.clear()
        self.used_bytes = 0

    def key(self, token_ids: bytes) -> tuple[bytes, bytes]:
        """Return what names a text: the hash of its full blocks, and the tokens after them."""
        return self._key_of(token_ids, self._tips(token_ids))

    def _tips(self, token_ids: bytes) -> list[bytes]:
        """Return the hashes of the beginnings of a text at all block borders."""
        return [ROOT, *chain_hashes(token_ids, self._block_size, self._salt)]

    def _key_of(self, token_ids: bytes, tips: list[bytes]) -> tuple[bytes, bytes]:
        return tips[-1], token_ids[(len(tips) - 1) * self._block_size * TOKEN_BYTES :]

    def _along(self, token_ids: bytes, tips: list[bytes]) -> Iterator[_Entry]:
        step = self._block_size * TOKEN_BYTES
        for at in range(len(tips) - 1, -1, -1):
            rest = token_ids[at * step :]
            tails = self._tails.get(tips[at], ())
            for tail in sorted((t for t in tails if rest.startswith(t)), key=len, reverse=True):
                yield self._kept[tips[at], tail]

    def _insert(self, key: tuple[bytes, bytes], checkpoint: Checkpoint) -> _Entry:
        entry = _Entry(key, checkpoint, self._clock, checkpoint.position)
        self._kept[key] = entry
        self._tails.setdefault(key[0], set()).add(key[1])
        self.used_bytes += checkpoint.num_bytes
        self._clock += 1
        return entry

    def _use(self, path: Sequence[_Entry]) -> None:
        """Note that all of a path, the longest first, was of use, and where it leads."""
        for entry, parent in zip_longest(path, path[1:]):
            entry.last_use = self._clock
            entry.end = path[0].checkpoint.position
            if entry.parent is not parent:
                entry.put_below(parent)

    def _least_worth(self, *, but: _Entry) -> _Entry:
        others = (entry for entry in self._kept.values() if entry is not but)
        return min(others, key=lambda entry: (self._worth(entry), entry.last_use))

    def _worth(self, entry: _Entry) -> float:
        """Weigh what would be read again against how likely it is to be asked for.

        That are the tokens back to the checkpoint before. Message borders are where people go back
        to, however far; elsewhere text counts ever less the older it is. Half the worth is gone
        each time as many others came as there are.
        """
        position = entry.checkpoint.position
        gap = position - (entry.parent.checkpoint.position if entry.parent else 0)
        age = 0 if entry.checkpoint.is_border else entry.end - position
        num_rounds = (self._clock - entry.last_use) / len(self._kept)
        return gap / (age + self._block_size) * math.pow(0.5, num_rounds)

    def _drop(self, entry: _Entry) -> None:
        tip, tail = entry.key
        del self._kept[entry.key]
        self.used_bytes -= entry.checkpoint.num_bytes
        for child in list(entry.children):
            child.put_below(entry.parent)
        entry.put_below(None)
        self._tails[tip].discard(tail)
        if not self._tails[tip]:
            del self._tails[tip]


def spaced(path: Sequence[Checkpoint], spacing: int, num_kept: int) -> list[Checkpoint]:
    """Choose at most num_kept of a path that has the longest first.

    Message borders come first, the last ones before older ones. Of the others those stay that lie
    on a coarser grid the older they are; one that is left out never comes back, so that nothing is
    stored twice.
    """
    borders = [checkpoint for checkpoint in path if checkpoint.is_border][:num_kept]
    end = path[0].position if path else 0
    grid = [
        checkpoint
        for checkpoint in path
        if not checkpoint.is_border and _is_on_grid(checkpoint.position, end, spacing)
    ]
    chosen = [*borders, *grid[: num_kept - len(borders)]]
    return sorted(chosen, key=lambda checkpoint: checkpoint.position, reverse=True)


def _is_on_grid(position: int, end: int, spacing: int) -> bool:
    """Tell whether a position is fine enough for its age: 16 steps of each width are kept."""
    if position % spacing:
        return False
    step = position // spacing
    width = (step & -step) * spacing
    return end - position <= 16 * width


def pack_states(present: Checkpoint, others: Sequence[Checkpoint]) -> bytes:
    """Return a state, and where others lie that are stored apart.

    ``position u32 | state float32 | number of borders u32 | positions u32... | positions u32...``,
    little-endian: first the others that are message borders, then the rest.
    """
    borders = [checkpoint.position for checkpoint in others if checkpoint.is_border]
    rest = [checkpoint.position for checkpoint in others if not checkpoint.is_border]
    positions = [len(borders), *borders, *rest]
    return b"".join(
        (
            _COUNT.pack(present.position),
            present.state.cpu().numpy().astype("<f4").tobytes(),
            *(map(_COUNT.pack, positions)),
        )
    )


def unpack_states(data: bytes, state_size: int) -> tuple[Checkpoint, list[int], list[int]]:
    """Return the state of pack_states, and the positions of borders and of other states.

    state_size: numbers of one state. Raises: ValueError when the length does not fit.
    """
    end = _COUNT.size + 4 * state_size
    if len(data) < end + _COUNT.size or (len(data) - end) % _COUNT.size:
        raise ValueError("its states have the wrong size")
    state = torch.frombuffer(bytearray(data[_COUNT.size : end]), dtype=torch.float32)
    (num_borders, *positions) = [found for (found,) in _COUNT.iter_unpack(data[end:])]
    if num_borders > len(positions):
        raise ValueError("it names more borders than states")
    present = Checkpoint(_COUNT.unpack_from(data)[0], state)
    return present, positions[:num_borders], positions[num_borders:]
