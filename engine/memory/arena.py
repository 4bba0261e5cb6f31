"""Memory of blocks as it comes from the system: runs of slabs, zeroed before they are used again.

A slab may lie on several devices, with some of its layers on each; together its parts are one.
Knows bytes only: not who owns a slab, nor what it means. One thread only.
"""

from __future__ import annotations

import mmap
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from engine.kernels.checksum import CheckedTarget, crc32
from engine.memory.codec import BlockLayout
from engine.memory.prefix_index import HASH_BYTES
from engine.pages import new_pages, provide

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor


@dataclass(frozen=True, slots=True)
class SlabPart:
    """The layers of a slab that lie on one device.

    first_slot: how many layers of the slab come before them. layout: of these layers alone.
    """

    device: torch.device
    first_slot: int
    layout: BlockLayout

    @property
    def slots(self) -> slice:
        """Return which of the slab's layers they are."""
        return slice(self.first_slot, self.first_slot + self.layout.num_layers)

    def spans(self, whole: BlockLayout) -> Iterator[tuple[int, int, int]]:
        """Yield start in the whole slab, start in this part, and length in bytes of each run.

        whole: the layout of all layers.
        """
        for kind in range(0, len(whole.planes), 2):
            plane, own = whole.planes[kind], self.layout.planes[kind]
            start = plane.offset + self.first_slot * plane.layer_stride
            yield start, own.offset, self.layout.num_layers * own.layer_stride


class Section:
    """What an arena has on one device.

    planes: one list per plane of the part's layout; its entries, one per layer, are views of shape
    (N, K, block_size, width). whole_planes: the same of all its layers, (N, L, ...).
    """

    def __init__(self, part: SlabPart, num_blocks: int) -> None:
        self.part = part
        self.slab_bytes = part.layout.slab_bytes
        num_bytes = num_blocks * self.slab_bytes
        self._pages = new_pages(num_bytes) if part.device.type == "cpu" else None
        self.raw = _tensor_over(self._pages, num_bytes, part.device)
        self.whole_planes = [
            plane.view(self.raw, num_blocks, part.layout.num_layers, self.slab_bytes)
            for plane in part.layout.planes
        ]
        self.planes: list[list[Tensor]] = [list(view.unbind(1)) for view in self.whole_planes]
        self._bytes = None if self._pages is None else memoryview(self._pages)
        self._target = None if self._bytes is None else CheckedTarget(self._bytes)
        self._address = 0 if self._pages is None else self.raw.data_ptr()

    def address(self, slot: int) -> int:
        """Return where a slab begins in host memory; 0 on another device."""
        return self._address and self._address + slot * self.slab_bytes

    def slab(self, slot: int) -> Tensor:
        """Return the bytes of one slab."""
        return self.raw[slot * self.slab_bytes : (slot + 1) * self.slab_bytes]

    def write_trailer(self, slot: int, content: bytes) -> None:
        """Write what stands behind the numbers of a slab."""
        start = slot * self.slab_bytes + self.part.layout.trailer_offset
        if self._bytes is None:
            target = self.raw[start : start + len(content)]
            target.copy_(torch.frombuffer(bytearray(content), dtype=torch.uint8))
        else:
            # Directly: to come back, a conversation has hundreds of them written.
            self._bytes[start : start + len(content)] = content

    def fill(self, slot: int, payload: bytes | memoryview) -> int:
        """Copy the bytes of a slab into one; return their crc32."""
        assert len(payload) == self.slab_bytes
        if self._target is None:
            _write(self.slab(slot), payload)
            return crc32(payload)
        return self._target.write(slot * self.slab_bytes, payload)

    def provide(self, slots: Sequence[int]) -> None:
        """Have the system provide the memory of some slabs, ascending, now."""
        if self._pages is not None:
            for first, last in _runs(slots):
                provide(self._pages, first * self.slab_bytes, (last + 1) * self.slab_bytes)

    def give_back(self, first: int, end: int) -> int:
        """Let the system have whole pages of the slabs first..end, then zero; return their bytes.

        0, and nothing is zeroed, where there are none.
        """
        if self._pages is None or not _GIVES_BACK_PAGES:
            return 0
        start, stop = first * self.slab_bytes, end * self.slab_bytes
        page_start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        page_stop = stop // mmap.PAGESIZE * mmap.PAGESIZE
        if page_start >= page_stop:
            return 0
        self._pages.madvise(mmap.MADV_DONTNEED, page_start, page_stop - page_start)
        _clear(self.raw[start:page_start])
        _clear(self.raw[page_stop:stop])
        return page_stop - page_start


class Arena:
    """A run of slabs, one allocation on every device they lie on, zeroed and page-aligned.

    layout: of a whole slab. sections: by device, in the order of their layers.
    """

    def __init__(self, layout: BlockLayout, parts: Sequence[SlabPart], num_blocks: int) -> None:
        self.layout = layout
        self.num_blocks = num_blocks
        self.sections = [Section(part, num_blocks) for part in parts]
        self.free = list(range(num_blocks))
        self.dirty = bytearray(num_blocks)

    def take(self, slot: int, *, is_filled: bool) -> None:
        """Take a slab into use; zeroed, unless all its bytes are written next."""
        if self.dirty[slot] and not is_filled:
            for section in self.sections:
                _clear(section.slab(slot))
        self.dirty[slot] = 1

    def write_trailer(self, slot: int, block_hash: bytes) -> None:
        """Write the hash of a slab's block behind its numbers; b"" while it is open."""
        for section in self.sections:
            section.write_trailer(slot, block_hash.ljust(HASH_BYTES, b"\0"))

    def addresses(self, slot: int) -> tuple[int, ...]:
        """Return where a slab begins in host memory, for every device it lies on; else 0."""
        return tuple(section.address(slot) for section in self.sections)

    def payload(self, slot: int) -> memoryview:
        """Return the bytes of a whole slab; without a copy where it lies on the CPU alone."""
        if len(self.sections) == 1:
            return self.sections[0].slab(slot).cpu().numpy().data
        whole = bytearray(self.layout.slab_bytes)
        for section in self.sections:
            data = section.slab(slot).cpu().numpy()
            for start, own, length in section.part.spans(self.layout):
                whole[start : start + length] = data[own : own + length].data
            trailer, own = self.layout.trailer_offset, section.part.layout.trailer_offset
            whole[trailer : trailer + HASH_BYTES] = data[own : own + HASH_BYTES].data
        return memoryview(whole)

    def fill(self, slot: int, payload: bytes | memoryview) -> int:
        """Copy the bytes of a whole slab into one; return their crc32."""
        if len(self.sections) == 1:
            return self.sections[0].fill(slot, payload)
        for section in self.sections:
            slab = section.slab(slot)
            for start, own, length in section.part.spans(self.layout):
                _write(slab[own : own + length], payload[start : start + length])
        return crc32(payload)

    def provide(self, num_blocks: int) -> int:
        """Have the system provide the memory of free slabs now; return of how many, at most asked.

        The first ones, which are used first.
        """
        slots = sorted(self.free)[:num_blocks]
        for section in self.sections:
            section.provide(slots)
        return len(slots)

    def give_back_free(self) -> int:
        """Let the system have the pages of free slabs until they are used again; return bytes."""
        stale = sorted(slot for slot in self.free if self.dirty[slot])
        return sum(self._give_back(first, last + 1) for first, last in _runs(stale))

    def _give_back(self, first: int, end: int) -> int:
        given = [section.give_back(first, end) for section in self.sections]
        if all(given):
            self.dirty[first:end] = bytes(end - first)
        return sum(given)


# Elsewhere pages given back need not read as zeros afterwards.
_GIVES_BACK_PAGES = sys.platform == "linux"


def _clear(slab: Tensor) -> None:
    if slab.device.type == "cpu":
        # By numpy, on this thread alone: for so few bytes waking torch's threads costs more.
        slab.numpy().fill(0)
    else:
        slab.zero_()


def _write(target: Tensor, data: bytes | memoryview) -> None:
    if target.device.type == "cpu":
        # numpy lets other threads run meanwhile.
        np.copyto(target.numpy(), np.frombuffer(data, np.uint8))
    else:
        target.copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))


def _tensor_over(pages: mmap.mmap | None, num_bytes: int, device: torch.device) -> Tensor:
    if pages is None:
        return torch.zeros(num_bytes, dtype=torch.uint8, device=device)
    return torch.frombuffer(pages, dtype=torch.uint8)


def _runs(slots: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield first and last of each run of neighbours among ascending slots."""
    start = 0
    for at in range(1, len(slots) + 1):
        if at == len(slots) or slots[at] != slots[at - 1] + 1:
            yield slots[start], slots[at - 1]
            start = at
