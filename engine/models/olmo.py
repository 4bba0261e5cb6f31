"""OLMo 2: norms after both branches only, whole projections normalised."""

from __future__ import annotations

from engine.layers.rope import RopeStyle
from engine.models.llama import Llama
from engine.models.traits import HeadNorm, Traits


class Olmo2(Llama):
    """Source: arXiv 2501.00656."""

    traits = Traits(
        rope_style=RopeStyle.NEOX,
        head_norm=HeadNorm.WHOLE,
        has_pre_norm=False,
        has_post_norm=True,
    )
