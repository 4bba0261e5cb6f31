"""In what an attention architecture differs from Llama: plain flags, each one honest fact."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from engine.layers.mlp import Activation, silu
from engine.layers.rope import RopeStyle


class HeadNorm(Enum):
    """What of queries and keys is normalised before they are rotated."""

    NONE = "none"
    PER_HEAD = "per_head"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Traits:
    """The defaults are Llama.

    has_pre_norm, has_post_norm: around both branches. has_fused_qkv: one matrix for q, k and v.
    has_fused_gate_up: ``ffn_up`` holds the gate rows first. is_gated: False for a plain MLP.
    no_rope_period: every such layer, counted from one, does not rotate.
    """

    rope_style: RopeStyle = RopeStyle.INTERLEAVED
    head_norm: HeadNorm = HeadNorm.NONE
    activation: Activation = silu
    has_pre_norm: bool = True
    has_post_norm: bool = False
    has_fused_qkv: bool = False
    has_fused_gate_up: bool = False
    is_gated: bool = True
    no_rope_period: int | None = None
    attn_norm: str = "attn_norm"
    ffn_norm: str = "ffn_norm"
