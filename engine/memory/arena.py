"""Memory of blocks as it comes from the system: runs of slabs, zeroed before they are used again.

Knows bytes only: not who owns a slab, nor what it means. One thread only.
"""

from __future__ import annotations

import mmap
import sys
from typing import TYPE_CHECKING

import torch

from engine.memory.prefix_index import HASH_BYTES
from engine.pages import new_pages, provide

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor

    from engine.memory.codec import BlockLayout


class Arena:
    """A run of slabs in one allocation, zeroed and page-aligned.

    planes: one list per plane of the layout; its entries, one per layer, are views of shape
    (N, K, block_size, width).
    """

    def __init__(self, layout: BlockLayout, num_blocks: int, device: torch.device) -> None:
        self.layout = layout
        self.num_blocks = num_blocks
        self.slab_bytes = layout.slab_bytes
        num_bytes = num_blocks * layout.slab_bytes
        self._pages = new_pages(num_bytes) if device.type == "cpu" else None
        self.raw = _tensor_over(self._pages, num_bytes, device)
        views = [
            plane.view(self.raw, num_blocks, layout.num_layers, layout.slab_bytes)
            for plane in layout.planes
        ]
        self.whole_planes = views
        self.planes: list[list[Tensor]] = [list(view.unbind(1)) for view in views]
        self.free = list(range(num_blocks))
        self.dirty = bytearray(num_blocks)

    def clean(self, slot: int) -> None:
        """Zero a slab that was used before; it is in use from now on."""
        if self.dirty[slot]:
            _clear(self.slab(slot))
        self.dirty[slot] = 1

    def write_trailer(self, slot: int, block_hash: bytes) -> None:
        """Write the hash of a slab's block behind its numbers; b"" while it is open."""
        content = bytearray(block_hash.ljust(HASH_BYTES, b"\0"))
        start = self.layout.trailer_offset
        trailer = torch.frombuffer(content, dtype=torch.uint8)
        self.slab(slot)[start : start + HASH_BYTES] = trailer

    def slab(self, slot: int) -> Tensor:
        """Return the bytes of one slab."""
        return self.raw[slot * self.slab_bytes : (slot + 1) * self.slab_bytes]

    def provide(self, num_blocks: int) -> int:
        """Have the system provide the memory of free slabs now; return of how many, at most asked.

        The first ones, which are used first.
        """
        slots = sorted(self.free)[:num_blocks]
        if self._pages is not None:
            for first, last in _runs(slots):
                provide(self._pages, first * self.slab_bytes, (last + 1) * self.slab_bytes)
        return len(slots)

    def give_back_free(self) -> int:
        """Let the system have the pages of free slabs until they are used again; return bytes."""
        if self._pages is None or not _GIVES_BACK_PAGES:
            return 0
        stale = sorted(slot for slot in self.free if self.dirty[slot])
        return sum(self._give_back(first, last + 1) for first, last in _runs(stale))

    def _give_back(self, first: int, end: int) -> int:
        """Zero the slabs first..end; their whole pages are zeroed by giving them back."""
        assert self._pages is not None
        start, stop = first * self.slab_bytes, end * self.slab_bytes
        page_start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        page_stop = stop // mmap.PAGESIZE * mmap.PAGESIZE
        if page_start >= page_stop:
            return 0
        self._pages.madvise(mmap.MADV_DONTNEED, page_start, page_stop - page_start)
        _clear(self.raw[start:page_start])
        _clear(self.raw[page_stop:stop])
        self.dirty[first:end] = bytes(end - first)
        return page_stop - page_start


def _clear(slab: Tensor) -> None:
    if slab.device.type == "cpu":
        # By numpy, on this thread alone: for so few bytes waking torch's threads costs more.
        slab.numpy().fill(0)
    else:
        slab.zero_()


# Elsewhere pages given back need not read as zeros afterwards.
_GIVES_BACK_PAGES = sys.platform == "linux"


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
