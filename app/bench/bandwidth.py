"""What the memory of this machine can do, measured by copying and by reading."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

# Beyond any cache.
BUFFER_BYTES = 256 << 20

_Numbers = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bytes per second. copied: those read and those written count both. read: nothing else."""

    copied: float
    read: float


def measure_bandwidth(threads: int, *, num_bytes: int = BUFFER_BYTES, rounds: int = 5) -> Bandwidth:
    """Take the fastest of some rounds. threads: each has buffers of num_bytes of its own."""
    pairs = [_pair(num_bytes) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        copying = min(_seconds(pool, _copy, pairs) for _ in range(rounds))
        reading = min(_seconds(pool, _read, pairs) for _ in range(rounds))
    total = threads * num_bytes
    return Bandwidth(2.0 * total / copying, total / reading)


def _pair(num_bytes: int) -> tuple[_Numbers, _Numbers]:
    source, target = np.ones((2, num_bytes // 4), np.int32)
    return source, target


def _copy(pair: tuple[_Numbers, _Numbers]) -> None:
    np.copyto(pair[1], pair[0])


def _read(pair: tuple[_Numbers, _Numbers]) -> None:
    pair[0].max()


def _seconds(
    pool: ThreadPoolExecutor,
    work: Callable[[tuple[_Numbers, _Numbers]], None],
    pairs: list[tuple[_Numbers, _Numbers]],
) -> float:
    """Return how long all threads took; numpy gives up the interpreter's lock meanwhile."""
    started = time.perf_counter()
    for _ in pool.map(work, pairs):
        pass
    return time.perf_counter() - started
