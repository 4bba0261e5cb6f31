"""Rotary position embedding: one table of angles per forward pass, applied in place.

Source: arXiv 2104.09864; scaling: arXiv 2309.00071 (YaRN) and ggml's ``ggml_rope_ext``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from engine.model_config import RopeConfig


class RopeStyle(Enum):
    """Which two numbers of a head make a pair.

    INTERLEAVED: 2i and 2i + 1. NEOX: i and i + dim / 2.
    """

    INTERLEAVED = "interleaved"
    NEOX = "neox"


@dataclass(frozen=True, slots=True)
class Rotation:
    """The rotation of T positions. cis: (T, 1, dim / 2) complex64."""

    cis: Tensor
    style: RopeStyle

    def on(self, device: torch.device) -> Rotation:
        """Return the same on a device."""
        return Rotation(self.cis.to(device), self.style)

    def apply_(self, x: Tensor) -> None:
        """Rotate the first dim numbers of every head in place. x: (T, heads, D) float32."""
        half = self.cis.shape[-1]
        rotated = x[..., : 2 * half]
        if self.style is RopeStyle.INTERLEAVED:
            torch.view_as_complex(torch.unflatten(rotated, -1, (half, 2))).mul_(self.cis)
            return
        pairs = torch.unflatten(rotated, -1, (2, half))
        first, second = pairs.unbind(-2)
        turned = torch.complex(first, second).mul_(self.cis)
        first.copy_(turned.real)
        second.copy_(turned.imag)


class RotaryEmbedding:
    """The angles of one configuration, computed on the CPU: not every device has float64.

    factors: (dim / 2,) divisors of the frequencies from the file (``rope_freqs``), or None.
    """

    def __init__(
        self,
        config: RopeConfig,
        style: RopeStyle,
        *,
        factors: Tensor | None = None,
    ) -> None:
        self.config = config
        self.style = style
        self.frequencies = frequencies(config, factors)
        self.magnitude = config.magnitude

    def __call__(self, positions: Tensor) -> Rotation:
        """Compute the rotation of positions (T,) integers."""
        return self._rotation(positions, self.magnitude)

    def move(self, distances: Tensor) -> Rotation:
        """Compute what moves keys, rotated already, by distances (T,) integers.

        The rotations of two positions differ by the rotation of their distance, whatever the
        frequencies; the magnitude is in the keys already.
        """
        return self._rotation(distances, 1.0)

    def _rotation(self, positions: Tensor, magnitude: float) -> Rotation:
        # float64: at position 100,000 a float32 angle is off by a hundredth.
        angles = positions.double()[:, None, None] * self.frequencies
        cis = torch.polar(torch.full_like(angles, magnitude), angles)
        return Rotation(cis.to(torch.complex64), self.style)


def frequencies(config: RopeConfig, factors: Tensor | None = None) -> Tensor:
    """Return radians per position of each pair: (dim / 2,) float64, scaling included.

    factors: (dim / 2,) divisors, or None.
    """
    exponents = torch.arange(0, config.dim, 2, dtype=torch.float64) / config.dim
    plain = config.theta**-exponents
    if factors is not None:
        plain = plain / factors.cpu().double()
    if config.factor == 1.0:
        return plain
    if config.scaling != "yarn":
        return plain / config.factor
    keep = _yarn_ramp(config)
    return plain / config.factor * (1 - keep) + plain * keep


def _yarn_ramp(config: RopeConfig) -> Tensor:
    """Return 1 for fast pairs, which stay as trained, falling to 0 for slow ones: (dim / 2,)."""
    low = max(0.0, math.floor(_pair_of(config, config.beta_fast)))
    high = min(config.dim - 1.0, math.ceil(_pair_of(config, config.beta_slow)))
    pairs = torch.arange(config.dim // 2, dtype=torch.float64)
    return 1 - ((pairs - low) / max(0.001, high - low)).clamp(0, 1)


def _pair_of(config: RopeConfig, num_turns: float) -> float:
    """Return the pair that turns num_turns times within the original context."""
    turns = config.original_context_length / (num_turns * 2 * math.pi)
    return config.dim * math.log(turns) / (2 * math.log(config.theta))
