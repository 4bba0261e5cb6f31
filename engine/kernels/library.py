"""Finds and loads the native library. Knows ctypes; must not know torch, models or memory.

The library lies beside this file: the package's build puts it there. Where it is missing, of
another version or unloadable, there are no kernels and the torch path does the work. Its threads
do not survive ``fork``; a forked child must not use a context of its parent.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint32, c_void_p
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from engine.kernels.structs import ContextSizes, GroupShape, Op, PlanePack, Step

VERSION = 6
_SUFFIXES = {"win32": ".dll", "darwin": ".so"}


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """The chosen instruction set, its float lanes, and the library's path.

    index: of the instruction set in the library's list, best first.
    """

    isa: str
    lanes: int
    path: Path
    index: int = 0


def available() -> KernelInfo | None:
    """Return what native kernels run here, None without them.

    ``REPRISE_ISA`` names a weaker instruction set to use, for tests.
    """
    library = load_library()
    if library is None:
        return None
    wanted = os.environ.get("REPRISE_ISA")
    found = instruction_sets()
    return next((info for info in found if wanted in (None, info.isa)), None)


@lru_cache(maxsize=1)
def instruction_sets() -> tuple[KernelInfo, ...]:
    """Return every instruction set of the library that this machine runs, best first."""
    library = load_library()
    found: list[KernelInfo] = []
    while library is not None and (name := library.rp_isa_name(len(found))) is not None:
        lanes = library.rp_isa_lanes(len(found))
        found.append(KernelInfo(name.decode(), lanes, library_path(), len(found)))
    return tuple(found)


def library_path() -> Path:
    """Return where the library has to lie; ``REPRISE_KERNELS`` names another file."""
    override = os.environ.get("REPRISE_KERNELS")
    if override:
        return Path(override)
    prefix = "" if sys.platform == "win32" else "lib"
    name = f"{prefix}reprise_kernels{_SUFFIXES.get(sys.platform, '.so')}"
    return Path(__file__).parent / name


@lru_cache(maxsize=1)
def load_library() -> ctypes.CDLL | None:
    """Return the library with its functions typed, None where it cannot be used."""
    path = library_path()
    if not path.is_file():
        return None
    try:
        library = ctypes.CDLL(str(path))
    except OSError:
        return None
    library.rp_version.restype = c_int32
    if library.rp_version() != VERSION:
        return None
    _declare(library)
    return library


def _declare(library: ctypes.CDLL) -> None:
    signatures = {
        "rp_isa_name": (c_char_p, [c_int32]),
        "rp_isa_lanes": (c_int32, [c_int32]),
        "rp_create": (c_void_p, [c_int32, POINTER(ContextSizes), POINTER(GroupShape)]),
        "rp_destroy": (None, [c_void_p]),
        "rp_run": (c_int32, [c_void_p, POINTER(Op), c_int32, POINTER(Step)]),
        "rp_kind_of": (c_int32, [c_int32]),
        "rp_row_bytes": (c_int64, [c_int32, c_int64]),
        "rp_packed_bytes": (c_int64, [c_void_p, c_int32, c_int64, c_int64]),
        "rp_pack": (None, [c_void_p, c_int32, c_int32, c_void_p, c_int64, c_int64, c_void_p]),
        "rp_pack_plane": (None, [c_int32, POINTER(PlanePack)]),
        "rp_dequantize": (None, [c_int32, c_void_p, c_int64, c_int64, c_void_p]),
        "rp_crc32": (c_uint32, [c_void_p, c_int64]),
        "rp_copy_crc32": (c_uint32, [c_void_p, c_void_p, c_int64]),
        "rp_has_crc32": (c_int32, []),
        "rp_top_k": (c_int32, [c_int32, c_void_p, c_int64, c_int32, c_void_p, c_void_p]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
