"""Causal depthwise convolution of a few taps, carried over from one forward pass to the next."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.memory.interface import RecurrentStepView


def causal_conv(x: Tensor, weight: Tensor, layer: int, memory: RecurrentStepView) -> Tensor:
    """Convolve every channel over time; the cell "conv" holds the inputs before the batch.

    x: (T, channels) float32, rows as in memory.slices. weight: (channels, K), the last tap meets
    the current token. The cell (channels, K - 1) is read and rewritten. Returns (T, channels).
    """
    cells = memory.read_state(layer, "conv")
    kept, outputs = [], []
    for row, part in enumerate(memory.slices):
        history = torch.cat([cells[row], x[part.start : part.end].T], dim=1)
        kept.append(history[:, 1 - weight.shape[1] :])
        outputs.append(F.conv1d(history[None], weight[:, None], groups=len(weight))[0].T)
    memory.write_state(layer, "conv", torch.stack(kept))
    return torch.cat(outputs)
