"""The selective scan of Mamba: a state per channel that each token decays and feeds.

Source: arXiv 2312.00752, algorithm 2.
"""

from __future__ import annotations

import torch
from torch import Tensor


def selective_scan(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Run one sequence through its state.

    x, dt: (T, channels), dt after softplus. a: (channels, N), negative. b, c: (T, N). state:
    (channels, N) before the first token, not changed. Returns outputs (T, channels) and the state
    after the last token. float32.
    """
    decay = torch.exp(dt[:, :, None] * a)
    fed = (dt * x)[:, :, None] * b[:, None, :]
    outputs = []
    for t in range(len(x)):
        state = state * decay[t] + fed[t]
        outputs.append(state @ c[t])
    return torch.stack(outputs), state
