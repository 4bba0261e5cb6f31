"""The largest logits of a row, found natively where the library is there."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np

from engine.kernels.context import pointer
from engine.kernels.library import available, load_library

if TYPE_CHECKING:
    import numpy.typing as npt

    from engine.kernels.library import KernelInfo


def top_k(
    row: npt.NDArray[np.float32], k: int, info: KernelInfo | None = None
) -> tuple[list[float], list[int]] | None:
    """Return the k largest numbers of a row, largest first, and their places, of equals the first.

    row: (V,). 0 < k <= V. info: instruction set, None for the best. None without
    kernels, and where a number is not finite.
    """
    library, info = load_library(), info or available()
    if library is None or info is None:
        return None
    row = np.ascontiguousarray(row)
    values, places = (ctypes.c_float * k)(), (ctypes.c_int64 * k)()
    size = row.shape[0]
    is_unusable = library.rp_top_k(info.index, pointer(row), size, k, values, places)
    return None if is_unusable else (list(values), list(places))
