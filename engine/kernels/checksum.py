"""The checksum of stored blocks: zlib's crc32, natively where the processor multiplies for it.

Without numpy, because the window imports this before anything of weight is loaded.
"""

from __future__ import annotations

import ctypes
import zlib
from functools import lru_cache

from engine.kernels.library import load_library


def crc32(data: bytes | memoryview) -> int:
    """Return zlib's crc32 of contiguous bytes; other Python threads run meanwhile."""
    library = _native()
    if library is None or not _has_address(data):
        return zlib.crc32(data)
    checksum: int = library.rp_crc32(_address(data), len(data))
    return checksum


def copy_crc32(target: memoryview, data: bytes | memoryview) -> int:
    """Copy contiguous bytes into a target of the same length; return their crc32.

    In one pass, which leaves the processor's cache to others. target: best on a multiple of 16.
    """
    assert len(target) == len(data)
    library = _native()
    if library is None or not _has_address(data):
        target[:] = data
        return zlib.crc32(data)
    checksum: int = library.rp_copy_crc32(_address(target), _address(data), len(data))
    return checksum


def _has_address(data: bytes | memoryview) -> bool:
    return isinstance(data, bytes) or not data.readonly


def _address(data: bytes | memoryview) -> object:
    """Return what ctypes takes for a pointer to some bytes."""
    return data if isinstance(data, bytes) else (ctypes.c_ubyte * len(data)).from_buffer(data)


@lru_cache(maxsize=1)
def _native() -> ctypes.CDLL | None:
    """Return the library where it can do this on this machine."""
    library = load_library()
    return library if library is not None and library.rp_has_crc32() else None
