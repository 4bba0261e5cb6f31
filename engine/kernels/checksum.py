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
    if library is None:
        return None
    try:
        function, is_supported = library.rp_crc32, library.rp_has_crc32
    except AttributeError:  # built from older sources; everything else of it is of use
        return None
    function.restype = ctypes.c_uint32
    function.argtypes = [ctypes.c_void_p, ctypes.c_int64]
    return function if is_supported() else None
