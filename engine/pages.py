"""Memory from the system before it is needed. Knows mmap; nothing of what is kept in it."""

from __future__ import annotations

import contextlib
import mmap
import sys

_MADV_POPULATE_WRITE = 23
# Small steps, because no other Python thread runs meanwhile.
_STEP_BYTES = 8 << 20


def new_pages(num_bytes: int) -> mmap.mmap:
    """Return zeroed memory whose pages cost nothing until they are written.

    On huge pages where the system has them: weights and K/V are read from end to end for every
    token, and every small page would have to be looked up on the way.
    Raises: OSError, ValueError or OverflowError when the system refuses.
    """
    if sys.platform == "win32":
        return mmap.mmap(-1, num_bytes)
    # Shared pages, the default, would be kept by the system however often they are given back.
    pages = mmap.mmap(-1, num_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a kernel without huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def provide(pages: mmap.mmap, start: int, end: int) -> None:
    """Have the system provide the memory of bytes start..end now, not as each page is written.

    What the pages hold does not change. Does nothing where the system cannot.
    """
    if sys.platform != "linux":
        return
    start = start // mmap.PAGESIZE * mmap.PAGESIZE
    with contextlib.suppress(OSError):  # a kernel before 5.14, or no memory
        for at in range(start, end, _STEP_BYTES):
            pages.madvise(_MADV_POPULATE_WRITE, at, min(_STEP_BYTES, end - at))


def provide_heap(num_bytes: int) -> None:
    """Leave the allocator with so many bytes that the system has provided, to be given out next.

    For bytes objects that this thread makes later. An allocator may give it all back at once; then
    nothing is gained.
    """
    # glibc gives what is larger than anything it had back before straight to the system. So first
    # it is shown that such sizes are in use, by zeros that nobody has to write.
    held = bytes(2 * num_bytes)
    del held
    held = b"\xff" * num_bytes
    del held
