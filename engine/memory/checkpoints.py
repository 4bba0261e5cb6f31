"""States of recurrent layers at some positions, found by the text that leads to them.

A recurrent state cannot be rewound, so past ones are kept: immutable tensors, shared by every
sequence with the same beginning, given up when the budget is full, longest unused first.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.memory.prefix_index import ROOT, TOKEN_BYTES, chain_hashes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

_COUNT = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state after the first ``position`` tokens of some text. state: flat float32."""

    position: int
    state: Tensor

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

    def add(self, token_ids: bytes, state: Tensor) -> None:
        """Keep the state after token_ids (int32 little-endian); the state must never change."""
        key = self._key(token_ids)
        if key in self._kept:
            self._kept.move_to_end(key)
            return
        checkpoint = Checkpoint(len(token_ids) // TOKEN_BYTES, state)
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
            self._kept.move_to_end(self._key(token_ids[: found.position * TOKEN_BYTES]))
        return found

    def clear(self) -> None:
        """Drop all."""
        self._kept.clear()
        self._tails.clear()
        self.used_bytes = 0

    def _key(self, token_ids: bytes) -> tuple[bytes, bytes]:
        tips = [ROOT, *chain_hashes(token_ids, self._block_size, self._salt)]
        step = self._block_size * TOKEN_BYTES
        return tips[-1], token_ids[len(token_ids) // step * step :]

    def _drop_oldest(self) -> None:
        (tip, tail), checkpoint = self._kept.popitem(last=False)
        self.used_bytes -= checkpoint.num_bytes
        self._tails[tip].discard(tail)
        if not self._tails[tip]:
            del self._tails[tip]


def spaced(path: Sequence[Checkpoint], num_kept: int) -> list[Checkpoint]:
    """Choose at most num_kept of a path: the last ones, then further and further apart."""
    num_recent = num_kept // 2
    chosen = list(path[:num_recent])
    at, stride = num_recent, 1
    while at < len(path) and len(chosen) < num_kept:
        chosen.append(path[at])
        at += stride
        stride *= 2
    return chosen


def pack_states(checkpoints: Sequence[Checkpoint]) -> bytes:
    """Return ``count u32 | (position u32, state float32)...``, little-endian."""
    parts = [_COUNT.pack(len(checkpoints))]
    for checkpoint in checkpoints:
        parts.append(_COUNT.pack(checkpoint.position))
        parts.append(checkpoint.state.cpu().numpy().astype("<f4").tobytes())
    return b"".join(parts)


def unpack_states(data: bytes, state_size: int) -> list[Checkpoint]:
    """Return the checkpoints of pack_states.

    state_size: numbers of one state. Raises: ValueError when the length does not fit.
    """
    num_bytes = _COUNT.size + 4 * state_size
    count = _COUNT.unpack_from(data)[0] if len(data) >= _COUNT.size else -1
    if len(data) != _COUNT.size + count * num_bytes:
        raise ValueError("its states have the wrong size")
    found: list[Checkpoint] = []
    for start in range(_COUNT.size, len(data), num_bytes):
        (position,) = _COUNT.unpack_from(data, start)
        numbers = bytearray(data[start + _COUNT.size : start + num_bytes])
        found.append(Checkpoint(position, torch.frombuffer(numbers, dtype=torch.float32)))
    return found
