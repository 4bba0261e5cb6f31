"""What the memory of this machine can do, measured by copying."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

# Beyond any cache.
COPIED_BYTES = 256 << 20


def copy_bandwidth(threads: int, *, num_bytes: int = COPIED_BYTES, rounds: int = 5) -> float:
    """Return bytes per second of the fastest of some copies: those read and those written.

    threads: each copies its own num_bytes, all at once.
    """
    pairs = [(np.ones(num_bytes, np.uint8), np.ones(num_bytes, np.uint8)) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        seconds = min(_copy_all(pool, pairs) for _ in range(rounds))
    return 2.0 * threads * num_bytes / seconds


def _copy_all(pool: ThreadPoolExecutor, pairs: list[tuple[np.ndarray, np.ndarray]]) -> float:
    started = time.perf_counter()
    # numpy gives up the interpreter's lock while it copies.
    for done in [pool.submit(np.copyto, target, source) for source, target in pairs]:
        done.result()
    return time.perf_counter() - started
