"""The checksum of stored blocks: zlib's crc32, natively where the processor multiplies for it.

Without numpy, because the window imports this before anything of weight is loaded.
"""

from __future__ import annotations

import ctypes
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING

from engine.kernels.library import load_library

if TYPE_CHECKING:
    from collections.abc import Callable


def crc32(data: bytes | memoryview) -> int:
    """Return zlib's crc32 of contiguous bytes; other Python threads run meanwhile."""
    native = _native()
    if native is None or (isinstance(data, memoryview) and data.readonly):
        return zlib.crc32(data)
    num_bytes = len(data)
    if isinstance(data, bytes):
        return native(data, num_bytes)
    return native((ctypes.c_ubyte * num_bytes).from_buffer(data), num_bytes)


@lru_cache(maxsize=1)
def _native() -> Callable[[object, int], int] | None:
    """Return the library's function of address and length; None where there is none."""
    library = load_library()
    return library.rp_crc32 if library is not None and library.rp_has_crc32() else None
