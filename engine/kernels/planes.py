"""Quantising the planes of a block of keys and values; knows addresses, not pools."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

from engine.kernels.library import load_library

if TYPE_CHECKING:
    from engine.kernels.library import KernelInfo
    from engine.kernels.structs import PlanePack

# Widths are multiples of what shares a scale where values have 4 bits.
WIDTH_MULTIPLE = 32


def pack_plane(info: KernelInfo, plane: PlanePack) -> None:
    """Quantise one plane of every layer of a block, on this thread.

    The bytes are those of ``engine/memory/quantize.py``. The width must be a multiple of
    WIDTH_MULTIPLE.
    """
    library = load_library()
    assert library is not None
    assert plane.width % WIDTH_MULTIPLE == 0
    library.rp_pack_plane(info.index, ctypes.byref(plane))
