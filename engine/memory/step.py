"""The memory as a model sees it during one forward pass, for attention held in blocks.

Everything that does not change from layer to layer is worked out once per step, so a layer costs
two writes, two gathers and one attention; native kernels need none of that but the addresses.
"""

from __future__ import annotations

from functools import cache, cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.memory.attend import attend_fused, attend_plain, causal_bias
from engine.memory.gathering import KEYS, VALUES, Gathered, pieces_of, put_mixed
from engine.memory.interface import NativeLayout, NativeTable
from engine.memory.quantize import rotate
from engine.memory.sequence import BlockAddresses

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Sequence as SequenceOf

    from torch import Tensor

    from engine.memory.arena import Section
    from engine.memory.codec import BlockLayout
    from engine.memory.gathering import Piece, Scratch
    from engine.memory.interface import BatchSlice
    from engine.memory.sequence import BlockTable, GroupMemory


class _SliceStep:
    """One batch slice in one part of a group: where its tokens are written, what they may read."""

    def __init__(self, piece: BatchSlice, table: BlockTable, part: int, scratch: Scratch) -> None:
        pool = table.memory.pool
        self._table = table
        self._part = part
        self._exact = pool.layout
        self._layout = pool.parts[part].layout
        self._scratch = scratch
        self.rows = slice(piece.start, piece.end)
        self.num_queries = piece.end - piece.start
        self.first_position = piece.first_position
        self.end = piece.first_position + self.num_queries
        window = table.memory.group.window
        self._first_key = 0 if window is None else max(0, self.first_position - window + 1)
        size = self._layout.block_size
        self._first_block = self._first_key // size
        self._device = pool.parts[part].device
        self._blocks = table.span(self._first_block, -(-self.end // size))
        self._window = window
        self._check_ownership()

    def write(self, slot: int, k: Tensor, v: Tensor) -> None:
        """Store keys and values (T, K, D) of this slice."""
        for section, rows, slots, offsets in self._write_targets:
            for plane, source in ((KEYS, k), (VALUES, v)):
                target = section.planes[plane][slot]
                target[slots, :, offsets] = source[rows].to(target.dtype)

    def gather(self, slot: int) -> Gathered:
        """Return what is visible in a layer, in scratch memory."""
        keys, values = self._buffer(KEYS), self._buffer(VALUES)
        if not self._is_mixed:
            for piece in self._pieces:
                key_plane, value_plane = piece.planes(slot)
                piece.put(keys, key_plane)
                piece.put(values, value_plane)
            return Gathered(self._visible(keys), self._visible(values))
        key_scales, value_scales = keys.new_ones(keys.shape[:3]), keys.new_ones(keys.shape[:3])
        for piece in self._pieces:
            put_mixed(piece, slot, (keys, values), (key_scales, value_scales))
        parts = (keys, values, key_scales, value_scales)
        return Gathered(*(self._visible(part) for part in parts))

    def native_table(self) -> NativeTable:
        """Return the addresses of the slabs; those before the window are not looked at."""
        known = self._table.addresses.get(self._part)
        if known is None or known.first != self._first_block or known.blocks != self._blocks:
            known = self._table.addresses[self._part] = self._addresses()
        return NativeTable(known.pointers, known.is_packed, self.first_position, self.end)

    def _addresses(self) -> BlockAddresses:
        exact, part, before = self._exact, self._part, [0] * self._first_block
        pointers = [*before, *(block.addresses[part] for block in self._blocks)]
        is_packed = [*before, *(block.layout is not exact for block in self._blocks)]
        return BlockAddresses(
            self._first_block,
            self._blocks,
            np.array(pointers, np.int64),
            np.array(is_packed, np.uint8),
        )

    @cached_property
    def bias(self) -> Tensor | None:
        """Return the mask (T, S); None for one query, and where torch's own causal one does."""
        is_whole = self.first_position == 0 and (self._window is None or self.end <= self._window)
        return None if self.num_queries == 1 or is_whole else self._bias()

    @cached_property
    def _pieces(self) -> SequenceOf[Piece]:
        return pieces_of(self._blocks, self._part)

    @cached_property
    def _is_mixed(self) -> bool:
        return any(piece.section.part.layout is not self._layout for piece in self._pieces)

    def _check_ownership(self) -> None:
        """Assert that the blocks to be written belong to this sequence alone and are exact."""
        first = self.first_position // self._layout.block_size - self._first_block
        for block in self._blocks[first:]:
            assert block.hash is None
            assert block.ref_count == 1
            assert block.layout is self._exact

    def _buffer(self, plane: int) -> Tensor:
        """Return scratch (K, N, block_size, D) for the visible blocks."""
        heads, size, width = self._layout.planes[plane].shape
        num_blocks = len(self._blocks)
        flat = self._scratch.take(plane, heads * num_blocks * size * width)
        return flat.view(heads, num_blocks, size, width)

    def _visible(self, part: Tensor) -> Tensor:
        """Return (K, S, ...) of (K, N, block_size, ...): without what no query sees."""
        start = self._first_block * self._layout.block_size
        return part.flatten(1, 2)[:, self._first_key - start : self.end - start]

    def explicit_bias(self) -> Tensor | None:
        """Return the mask (T, S) even where torch's own would do; None for one query."""
        return self._bias() if self.bias is None and self.num_queries > 1 else self.bias

    def _bias(self) -> Tensor:
        return causal_bias(
            self.first_position, self.num_queries, self._first_key, self._window, self._device
        )

    @cached_property
    def _write_targets(self) -> list[tuple[Section, Tensor | slice, Tensor, Tensor]]:
        """Return per arena the batch rows that go there, and their slots and offsets."""
        size = self._layout.block_size
        rows: dict[Section, list[tuple[int, int, int]]] = {}
        for row, position in enumerate(range(self.first_position, self.end)):
            block = self._blocks[position // size - self._first_block]
            section = block.arena.sections[self._part]
            rows.setdefault(section, []).append((row, block.slot, position % size))
        return [_target(section, entries, self.num_queries) for section, entries in rows.items()]


def _target(
    section: Section, entries: list[tuple[int, int, int]], num_queries: int
) -> tuple[Section, Tensor | slice, Tensor, Tensor]:
    """Turn (row, slot, offset) entries into index tensors."""
    rows, slots, offsets = torch.tensor(entries).to(section.part.device).unbind(1)
    every = len(entries) == num_queries
    return section, slice(None) if every else rows, slots, offsets


class _GroupStep:
    """All slices of a batch in those layers of a group that lie on one device."""

    def __init__(
        self,
        memory: GroupMemory,
        part: int,
        slices: SequenceOf[BatchSlice],
        tables: SequenceOf[BlockTable],
        scratch: Scratch,
    ) -> None:
        self.memory = memory
        self.scratch = scratch
        self.rotation = memory.rotations[part]
        self.layout = memory.pool.parts[part].layout
        self.packed = None if memory.packed is None else memory.packed.parts[part].layout
        self.slices = [
            _SliceStep(piece, table, part, scratch)
            for piece, table in zip(slices, tables, strict=True)
        ]
        layers = memory.group.layers[memory.pool.parts[part].slots]
        self.slots = {layer: slot for slot, layer in enumerate(layers)}
        self.native: list[NativeTable] | None = None


class PagedStepView:
    """StepView and NativeStepView over block tables.

    tables: per group, then per slice. scratches: by device.
    """

    def __init__(
        self,
        slices: tuple[BatchSlice, ...],
        memories: SequenceOf[GroupMemory],
        tables: SequenceOf[SequenceOf[BlockTable]],
        scratches: Mapping[torch.device, Scratch],
    ) -> None:
        self.slices = slices
        self._groups: dict[int, _GroupStep] = {}
        for memory, of_group in zip(memories, tables, strict=True):
            for at, part in enumerate(memory.pool.parts):
                step = _GroupStep(memory, at, slices, of_group, scratches[part.device])
                self._groups.update(dict.fromkeys(step.slots, step))

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
        """Write keys and values of the batch, then attend causally over everything visible.

        q: (T, H, D); k, v: (T, K, D). Returns (T, H, D), dtype of q.
        """
        group = self._groups[layer]
        slot = group.slots[layer]
        rotation = group.rotation
        queries = rotate(q.to(group.scratch.dtype), rotation.keys)
        k, v = rotate(k, rotation.keys), rotate(v, rotation.values)
        out = torch.empty_like(queries)
        for step in group.slices:
            step.write(slot, k[step.rows], v[step.rows])
            seen = step.gather(slot)
            out[step.rows] = _attend(step, queries[step.rows], seen, scale, soft_cap, sinks)
        return rotate(out, rotation.values).to(q.dtype)

    def keys(self, layer: int, at: int) -> Tensor:
        """Return the keys (K, S, D) that batch slice ``at`` sees, in scratch memory."""
        group = self._groups[layer]
        keys, _ = group.slices[at].gather(group.slots[layer]).scaled()
        return rotate(keys, group.rotation.keys)

    def tables(self, layer: int) -> SequenceOf[NativeTable]:
        """Return one table per batch slice; the same objects for all layers of a group."""
        group = self._groups[layer]
        if group.native is None:
            group.native = [step.native_table() for step in group.slices]
        return group.native

    def exact_layout(self, layer: int) -> NativeLayout:
        """Return the layout of blocks that hold the numbers themselves."""
        group = self._groups[layer]
        return _native_layout(group.layout, group.slots[layer])

    def packed_layout(self, layer: int) -> NativeLayout | None:
        """Return the layout of quantised blocks; None where the codec has none."""
        group = self._groups[layer]
        return None if group.packed is None else _native_layout(group.packed, group.slots[layer])

    def is_rotated(self, layer: int) -> tuple[bool, bool]:
        """Tell whether keys, and whether values, are stored times the Hadamard matrix."""
        rotation = self._groups[layer].memory.rotation
        return rotation.keys is not None, rotation.values is not None

    def window(self, layer: int) -> int | None:
        """Return the tokens a query of this layer sees, itself included; None is all."""
        return self._groups[layer].memory.group.window


def _attend(
    step: _SliceStep,
    q: Tensor,
    seen: Gathered,
    scale: float,
    soft_cap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Choose the product for one slice."""
    if step.num_queries > 1 and soft_cap is None and sinks is None:
        keys, values = seen.scaled()
        return attend_fused(q, keys, values, scale=scale, bias=step.bias)
    return attend_plain(
        q,
        seen.keys,
        seen.values,
        scale=scale,
        bias=step.explicit_bias(),
        soft_cap=soft_cap,
        sinks=sinks,
        key_scales=seen.key_scales,
        value_scales=seen.value_scales,
    )


@cache
def _native_layout(layout: BlockLayout, slot: int) -> NativeLayout:
    """Return byte offsets of one layer; the same object every time."""
    keys, values = layout.planes[KEYS], layout.planes[VALUES]
    token_strides = [plane.shape[2] * plane.dtype.itemsize for plane in (keys, values)]
    scales = [plane.offset + slot * plane.layer_stride for plane in layout.planes[2:]]
    key_scale, value_scale = scales or (0, 0)
    return NativeLayout(
        codec=layout.codec.value,
        block_size=layout.block_size,
        key=keys.offset + slot * keys.layer_stride,
        value=values.offset + slot * values.layer_stride,
        key_head_stride=token_strides[0] * layout.block_size,
        key_token_stride=token_strides[0],
        value_head_stride=token_strides[1] * layout.block_size,
        value_token_stride=token_strides[1],
        key_scale=key_scale,
        value_scale=value_scale,
    )
