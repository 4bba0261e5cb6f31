"""LFM2: gated short convolutions between layers of attention with normalised heads."""

from __future__ import annotations

from torch import Tensor, nn

from engine.layers.rope import RopeStyle
from engine.layers.short_conv import causal_conv
from engine.model_config import RECURRENT
from engine.models.llama import Block, Llama, Step
from engine.models.traits import HeadNorm, Traits
from engine.weights import Weights


class ShortConv(nn.Module):
    """The tensors below ``shortconv``."""

    def __init__(self, hidden_size: int, num_taps: int, weights: Weights) -> None:
        super().__init__()
        self.in_proj = weights.linear("in_proj", 3 * hidden_size, hidden_size)
        self.out_proj = weights.linear("out_proj", hidden_size, hidden_size)
        self.conv = weights.vector("conv.weight", hidden_size, num_taps)


class ConvBlock(Block):
    """A gated convolution in place of attention."""

    def attention(self, x: Tensor, step: Step) -> Tensor:
        """x: (T, C), normalised. Returns the convolution branch (T, C)."""
        b, c, value = self.shortconv.in_proj(x).chunk(3, dim=-1)
        mixed = causal_conv(b * value, self.shortconv.conv, self.layer, step.cells)
        out: Tensor = self.shortconv.out_proj(c * mixed)
        return out

    def _take_attention(self, weights: Weights) -> None:
        assert self.config.state is not None
        taps = self.config.state.conv_kernel
        self.shortconv = ShortConv(self.config.hidden_size, taps, weights.scope("shortconv."))


class Lfm2(Llama):
    """Source: arXiv 2511.23404. The final norm is called token_embd_norm."""

    traits = Traits(rope_style=RopeStyle.NEOX, head_norm=HeadNorm.PER_HEAD)
    output_norm_name = "token_embd_norm"

    def make_block(self, layer: int, weights: Weights) -> nn.Module:
        """Build a layer of convolution or of attention."""
        is_recurrent = self.config.layer_types[layer] == RECURRENT
        block = ConvBlock if is_recurrent else Block
        return block(self.config, self.traits, layer, weights)
