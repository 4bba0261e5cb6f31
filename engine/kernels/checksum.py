"""The checksum of stored blocks: zlib's crc32, natively where the processor multiplies for it.

Without numpy, because the window imports this before anything of weight is loaded.
"""

from __future__ import annotations

import ctypes
import zlib
from functools import lru_cache

from engine.kernels.library import load_library


def crc32(data: bytes | memoryview, start: int = 0) -> int:
    """Return zlib's crc32 of contiguous bytes from start on; other Python threads run meanwhile."""
    library = _native()
    if library is None or not _has_address(data):
        return zlib.crc32(memoryview(data)[start:])
    checksum: int = library.rp_crc32(_address(data) + start, len(data) - start)
    return checksum


class CheckedTarget:
    """Writable memory that bytes are copied into and checksummed on the way, in one pass.

    That leaves the processor's cache to others. memory: best on a multiple of 16.
    """

    def __init__(self, memory: memoryview) -> None:
        self._memory = memory
        # Asked for once: that takes as long as copying some pages.
        self._address = _address(memory)

    def write(self, start: int, data: bytes | memoryview) -> int:
        """Copy contiguous bytes to where start says; return their crc32."""
        end = start + len(data)
        assert 0 <= start <= end <= len(self._memory)
        library = _native()
        if library is None or not _has_address(data):
            self._memory[start:end] = data
            return zlib.crc32(data)
        # As it is, bytes need no address of their own.
        source = data if isinstance(data, bytes) else _address(data)
        checksum: int = library.rp_copy_crc32(self._address + start, source, len(data))
        return checksum


def _has_address(data: bytes | memoryview) -> bool:
    return isinstance(data, bytes) or not data.readonly


def _address(data: bytes | memoryview) -> int:
    """Return where contiguous bytes lie."""
    if not isinstance(data, bytes):
        return ctypes.addressof(ctypes.c_ubyte.from_buffer(data)) if data.nbytes else 0
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert address is not None
    return address


@lru_cache(maxsize=1)
def _native() -> ctypes.CDLL | None:
    """Return the library where it can do this on this machine."""
    library = load_library()
    return library if library is not None and library.rp_has_crc32() else None
