"""States of recurrent layers at some positions, found by the text that leads to them.

A recurrent state cannot be rewound, so past ones are kept: immutable tensors, shared by every
sequence with the same beginning, given up when the budget is full, longest unused first.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from dataclasses import dataclass, replace
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


class CheckpointIndex:
    """Checkpoints by the text before them, within a budget.

    A text is the hash of its full blocks and the tokens after them.
    """

    def __init__(self, block_size: int, salt: bytes, budget_bytes: int) -> None:
        self.budget_bytes = budget_bytes
        self.used_bytes = 0
        self._block_size = block_size
        self._salt = salt
        self._kept: OrderedDict[tuple[bytes, bytes], Checkpoint] = OrderedDict()
        self._tails: dict[bytes, set[bytes]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, token_ids: bytes, state: Tensor, *, is_border: bool = False) -> None:
        """Keep the state after token_ids (int32 little-endian); the state must never change."""
        key = self.key(token_ids)
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            self._kept[key] = replace(known, is_border=known.is_border or is_border)
            return
        checkpoint = Checkpoint(len(token_ids) // TOKEN_BYTES, state, is_border)
        self._kept[key] = checkpoint
        self._tails.setdefault(key[0], set()).add(key[1])
        self.used_bytes += checkpoint.num_bytes
        while self.used_bytes > self.budget_bytes and len(self._kept) > 1:
            self._drop_oldest()

    def path(self, token_ids: bytes) -> Iterator[Checkpoint]:
        """Yield the checkpoints along token_ids, the longest first."""
        step = self._block_size * TOKEN_BYTES
        tips = [ROOT, *chain_hashes(token_ids, self._block_size, self._salt)]
        for at in range(len(tips) - 1, -1, -1):
            rest = token_ids[at * step :]
            tails = self._tails.get(tips[at], ())
            for tail in sorted((t for t in tails if rest.startswith(t)), key=len, reverse=True):
                yield self._kept[tips[at], tail]

    def find(self, token_ids: bytes) -> Checkpoint | None:
        """Return the checkpoint that covers most of token_ids."""
        found = next(self.path(token_ids), None)
        if found is not None:
            self._kept.move_to_end(self.key(token_ids[: found.position * TOKEN_BYTES]))
        return found

    def clear(self) -> None:
        """Drop all."""
        self._kept.clear()
        self._tails.clear()
        self.used_bytes = 0

    def key(self, token_ids: bytes) -> tuple[bytes, bytes]:
        """Return what names a text: the hash of its full blocks, and the tokens after them."""
        tips = [ROOT, *chain_hashes(token_ids, self._block_size, self._salt)]
        step = self._block_size * TOKEN_BYTES
        return tips[-1], token_ids[len(token_ids) // step * step :]

    def _drop_oldest(self) -> None:
        (tip, tail), checkpoint = self._kept.popitem(last=False)
        self.used_bytes -= checkpoint.num_bytes
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
