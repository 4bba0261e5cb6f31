"""gpt-oss: attention sinks, alternating windows, clamped experts chosen before the softmax."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from engine.layers.moe import SparseMLP
from engine.layers.rope import RopeStyle
from engine.models.llama import Block, Llama
from engine.models.traits import Traits
from engine.weights import Weights

_LIMIT, _SLOPE = 7.0, 1.702


class ClampedMLP(SparseMLP):
    """The best few by raw logits, softmax over those; gate and up are clamped."""

    def route(self, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Choose experts. logits: (T, experts). Returns shares and indices, both (T, chosen)."""
        best, chosen = logits.topk(self.config.num_experts_per_tok, dim=-1)
        return F.softmax(best, dim=-1), chosen

    def activate(self, gate: Tensor, up: Tensor) -> Tensor:
        """Combine the two projections of an expert, both (T, I)."""
        gate = gate.clamp(max=_LIMIT)
        return gate * torch.sigmoid(_SLOPE * gate) * (up.clamp(-_LIMIT, _LIMIT) + 1)


class SinkBlock(Block):
    """A block with one learned sink logit per query head."""

    def _take_attention(self, weights: Weights) -> None:
        super()._take_attention(weights)
        self.attn_sinks = weights.vector("attn_sinks.weight", self.config.num_attention_heads)

    def _make_experts(self, weights: Weights) -> SparseMLP | None:
        if self.config.experts is None:
            return None
        return ClampedMLP(self.config.experts, self.config.hidden_size, weights)


class GptOss(Llama):
    """Source: arXiv 2508.10925. The norm before the experts is called post_attention_norm."""

    traits = Traits(rope_style=RopeStyle.NEOX, ffn_norm="post_attention_norm")

    def make_block(self, layer: int, weights: Weights) -> nn.Module:
        """Build one layer."""
        return SinkBlock(self.config, self.traits, layer, weights)
