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


class TopK:
    """Finds the k largest numbers of rows; not to be used by two threads at once."""

    def __init__(self, k: int, info: KernelInfo | None = None) -> None:
        """Prepare for rows of at least k > 0 numbers. info: instruction set, None for the best."""
        self.k = k
        self._values, self._places = (ctypes.c_float * k)(), (ctypes.c_int64 * k)()
        self._library, self._info = load_library(), info or available()

    def of(self, row: npt.NDArray[np.float32]) -> tuple[list[float], list[int]] | None:
        """Return the k largest of a row (V,), largest first, and their places, of equals the first.

        None without kernels, and where a number is not finite.
        """
        if self._library is None or self._info is None:
            return None
        row = np.ascontiguousarray(row)
        values, places = self._values, self._places
        is_unusable = self._library.rp_top_k(
            self._info.index, pointer(row), row.shape[0], self.k, values, places
        )
        return None if is_unusable else (values[:], places[:])
