"""StarCoder 2: LayerNorm and biases everywhere, a plain MLP."""

from __future__ import annotations

from engine.layers.mlp import gelu
from engine.layers.rope import RopeStyle
from engine.models.llama import Llama
from engine.models.traits import Traits


class StarCoder2(Llama):
    """Source: arXiv 2402.19173."""

    traits = Traits(rope_style=RopeStyle.NEOX, activation=gelu, is_gated=False)
