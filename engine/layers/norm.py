"""Normalisation over the last dimension, in float32."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn
from torch.nn import functional as F


class Norm(Protocol):
    """RMSNorm or LayerNorm; x: (..., C) float32, returns the same shape.

    weight: (C,) float32. eps: added to the mean square or variance.
    """

    weight: Tensor
    eps: float

    def __call__(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        ...


class RMSNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight. Source: arXiv 1910.07467."""

    def __init__(self, weight: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., C) float32. Returns the same shape."""
        return F.rms_norm(x, self.weight.shape, self.weight, self.eps)


class LayerNorm(nn.Module):
    """(x - mean) / sqrt(var + eps) * weight + bias. Source: arXiv 1607.06450."""

    def __init__(self, weight: Tensor, bias: Tensor | None, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.bias = bias
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """x: (..., C) float32. Returns the same shape."""
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)
