"""Gemma 2 and 3: norms before and after both branches, GELU, sliding windows.

The norm weights in the file already contain the "+ 1" of the original code.
"""

from __future__ import annotations

from dataclasses import replace

from engine.layers.mlp import gelu
from engine.layers.rope import RopeStyle
from engine.models.llama import Llama
from engine.models.traits import HeadNorm, Traits


class Gemma2(Llama):
    """Soft caps on attention and output. Source: arXiv 2408.00118."""

    traits = Traits(rope_style=RopeStyle.NEOX, activation=gelu, has_post_norm=True)


class Gemma3(Llama):
    """Normalised heads and two rotary bases. Source: arXiv 2503.19786."""

    traits = replace(Gemma2.traits, head_norm=HeadNorm.PER_HEAD)
