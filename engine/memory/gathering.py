"""Keys and values of one layer brought together from scattered slabs, in as few copies as possible.

Knows arenas and layouts; nothing of sequences, positions or queries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from engine.config import KVCodec
from engine.memory.codec import is_quantised
from engine.memory.quantize import unpack_values

if TYPE_CHECKING:
    from collections.abc import Sequence as SequenceOf

    from torch import Tensor

    from engine.memory.arena import Section
    from engine.memory.block_pool import Block

KEYS, VALUES = 0, 1


class Scratch:
    """Two buffers that every layer of every step reuses, grown when a longer context comes.

    dtype: of the arithmetic.
    """

    def __init__(self, dtype: torch.dtype, device: torch.device) -> None:
        self.dtype = dtype
        self._device = device
        self._buffers = [torch.empty(0, dtype=dtype, device=device) for _ in (KEYS, VALUES)]

    def take(self, which: int, num_elements: int) -> Tensor:
        """Return at least what is asked for as a flat buffer; its content is arbitrary."""
        if self._buffers[which].numel() < num_elements:
            size = 1 << (num_elements - 1).bit_length()
            # Made under inference mode it could never be written outside of it again.
            with torch.inference_mode(False):
                self._buffers[which] = torch.empty(size, dtype=self.dtype, device=self._device)
        return self._buffers[which][:num_elements]


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring slabs start..start+count of a section; they go to places at.. of a table."""

    section: Section
    start: int
    count: int
    at: int

    def planes(self, slot: int) -> list[Tensor]:
        """Return one layer's planes, each (count, K, block_size, width)."""
        part = slice(self.start, self.start + self.count)
        return [plane[slot][part] for plane in self.section.planes]

    def put(self, target: Tensor, source: Tensor) -> None:
        """Copy what belongs to these slabs, (count, K, ...), into target (K, N, ...)."""
        target[:, self.at : self.at + self.count].copy_(source.transpose(0, 1))


@dataclass(frozen=True, slots=True)
class Scattered:
    """Slabs of a section in any order, and their places in a table."""

    section: Section
    slots: Tensor
    places: Tensor

    def planes(self, slot: int) -> list[Tensor]:
        """Return one layer's planes, each (count, K, block_size, width)."""
        return [plane[slot].index_select(0, self.slots) for plane in self.section.planes]

    def put(self, target: Tensor, source: Tensor) -> None:
        """Copy what belongs to these slabs, (count, K, ...), into target (K, N, ...)."""
        target.index_copy_(1, self.places, source.transpose(0, 1).to(target.dtype))


@dataclass(frozen=True, slots=True)
class Gathered:
    """What the queries of a slice see in one layer.

    keys, values: (K, S, D). key_scales, value_scales: (K, S), to be multiplied in; None is 1.
    """

    keys: Tensor
    values: Tensor
    key_scales: Tensor | None = None
    value_scales: Tensor | None = None

    def scaled(self) -> tuple[Tensor, Tensor]:
        """Return keys and values with their scales, multiplied in place."""
        if self.key_scales is not None:
            self.keys.mul_(self.key_scales[..., None])
        if self.value_scales is not None:
            self.values.mul_(self.value_scales[..., None])
        return self.keys, self.values


Piece = Run | Scattered


def pieces_of(blocks: SequenceOf[Block], part: int) -> SequenceOf[Piece]:
    """Describe one part of some blocks by as few copies as possible."""
    runs: list[Run] = []
    start = 0
    for end in range(1, len(blocks) + 1):
        first = blocks[start]
        if end < len(blocks) and _follows(first, blocks[end], end - start):
            continue
        runs.append(Run(first.arena.sections[part], first.slot, end - start, start))
        start = end
    return runs if len(runs) <= max(16, len(blocks) // 8) else _scattered(blocks, part)


def put_mixed(
    piece: Piece,
    slot: int,
    numbers: tuple[Tensor, Tensor],
    scales: tuple[Tensor, Tensor],
) -> None:
    """Copy one layer's numbers as stored, and their scales apart where they are one per token."""
    planes = piece.planes(slot)
    codec = piece.section.part.layout.codec
    piece.put(numbers[KEYS], planes[KEYS])
    if codec is KVCodec.K8V4:
        piece.put(scales[KEYS], planes[2].squeeze(-1))
        piece.put(numbers[VALUES], unpack_values(codec, planes[VALUES], planes[3]))
        return
    piece.put(numbers[VALUES], planes[VALUES])
    if is_quantised(codec):
        piece.put(scales[KEYS], planes[2].squeeze(-1))
        piece.put(scales[VALUES], planes[3].squeeze(-1))


def _follows(first: Block, block: Block, distance: int) -> bool:
    return block.arena is first.arena and block.slot == first.slot + distance


def _scattered(blocks: SequenceOf[Block], part: int) -> list[Scattered]:
    """Group one part of some blocks by arena."""
    places: dict[Section, list[int]] = {}
    for place, block in enumerate(blocks):
        places.setdefault(block.arena.sections[part], []).append(place)
    return [
        Scattered(
            section,
            torch.tensor([blocks[place].slot for place in at]).to(section.part.device),
            torch.tensor(at).to(section.part.device),
        )
        for section, at in places.items()
    ]
