"""StableLM 2: LayerNorm, partly rotated heads; without ffn_norm both branches run at once."""

from __future__ import annotations

from torch import Tensor, nn

from engine.layers.rope import RopeStyle
from engine.models.llama import Block, Llama, Step
from engine.models.traits import Traits
from engine.weights import Weights


class ParallelBlock(Block):
    """One norm that both branches read; both are added to the input."""

    def forward(self, x: Tensor, step: Step) -> Tensor:
        """x: (T, C) float32. Returns (T, C) float32."""
        assert self.attn_norm is not None
        y = self.attn_norm(x)
        return x + self.attention(y, step) + self.feed_forward(y)

    def _take_norms(self, weights: Weights) -> None:
        self.attn_norm = weights.norm("attn_norm", self.config.hidden_size, self.config.norm_eps)
        self.ffn_norm = self.post_attention_norm = self.post_ffw_norm = None


class StableLM(Llama):
    """Source: arXiv 2402.17834."""

    traits = Traits(rope_style=RopeStyle.NEOX)

    def make_block(self, layer: int, weights: Weights) -> nn.Module:
        """Build the form of layer that the file's norms imply."""
        block = Block if weights.has("ffn_norm.weight") else ParallelBlock
        return block(self.config, self.traits, layer, weights)
