"""What this machine offers: cores and memory."""

from __future__ import annotations

import psutil


def choose_threads(wished: int | None) -> int:
    """Return how many threads to compute with: the wish, else one per physical core."""
    physical = psutil.cpu_count(logical=False) or psutil.cpu_count() or 1
    return max(1, physical if wished is None else wished)


def free_memory_bytes() -> int:
    """Return the bytes that can be taken without swapping."""
    return int(psutil.virtual_memory().available)
