"""Phi 3: one matrix for q, k and v, one for gate and up; long contexts by tables."""

from __future__ import annotations

from torch import Tensor

from engine.layers.rope import RopeStyle
from engine.models.llama import Llama
from engine.models.traits import Traits
from engine.weights import Weights


class Phi3(Llama):
    """Source: arXiv 2404.14219; LongRoPE: arXiv 2402.13753."""

    traits = Traits(rope_style=RopeStyle.NEOX, has_fused_qkv=True, has_fused_gate_up=True)

    def _rope_factors(self, weights: Weights) -> Tensor | None:
        """Take both tables; the size of the context decides which one counts."""
        if not weights.has("rope_factors_long.weight"):
            return super()._rope_factors(weights)
        half = self.config.rope.dim // 2
        long = weights.vector("rope_factors_long.weight", half)
        short = weights.vector("rope_factors_short.weight", half)
        is_long = self.config.context_length > self.config.rope.original_context_length
        return long if is_long else short
