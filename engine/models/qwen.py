"""Qwen 2, 2.5 and 3; the mixture-of-experts form of Qwen 3 differs by its tensors only."""

from __future__ import annotations

from engine.layers.rope import RopeStyle
from engine.models.llama import Llama
from engine.models.traits import HeadNorm, Traits


class Qwen2(Llama):
    """Biases on q, k and v. Source: arXiv 2407.10671."""

    traits = Traits(rope_style=RopeStyle.NEOX)


class Qwen3(Llama):
    """Normalised heads, no biases. Source: arXiv 2505.09388."""

    traits = Traits(rope_style=RopeStyle.NEOX, head_norm=HeadNorm.PER_HEAD)
