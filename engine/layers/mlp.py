"""Activations of feed-forward layers."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor
from torch.nn import functional as F

Activation = Callable[[Tensor], Tensor]


def silu(x: Tensor) -> Tensor:
    """Return x * sigmoid(x), a new tensor. x: any shape, float32. Source: arXiv 1702.03118."""
    return F.silu(x)


def gelu(x: Tensor) -> Tensor:
    """GELU in the tanh form, which ggml uses for every GELU. Source: arXiv 1606.08415."""
    return F.gelu(x, approximate="tanh")


def gated(gate_up: Tensor, activation: Activation) -> Tensor:
    """Return activation(gate) * up. gate_up: (T, 2 I), gate first; returns (T, I)."""
    gate, up = gate_up.chunk(2, dim=-1)
    return activation(gate).mul_(up)
