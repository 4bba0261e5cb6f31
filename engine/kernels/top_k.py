"""The largest logits of a row, found natively where the library is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.kernels.library import available, load_library

if TYPE_CHECKING:
    from torch import Tensor

    from engine.kernels.library import KernelInfo


def top_k(row: Tensor, k: int, info: KernelInfo | None = None) -> tuple[Tensor, Tensor] | None:
    """Return the k largest numbers of a row, largest first, and their places, of equals the first.

    row: (V,) float32 on the CPU. 0 < k <= V. info: instruction set, None for the best. Returns (k,)
    float32 and (k,) int64; None without kernels, and where a number is not finite.
    """
    library, info = load_library(), info or available()
    if library is None or info is None:
        return None
    row = row.contiguous()
    values, ids = torch.empty(k), torch.empty(k, dtype=torch.long)
    is_unusable = library.rp_top_k(
        info.index, row.data_ptr(), len(row), k, values.data_ptr(), ids.data_ptr()
    )
    return None if is_unusable else (values, ids)
