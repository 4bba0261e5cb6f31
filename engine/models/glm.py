"""GLM-4: norms before and after both branches, gate and up in one matrix."""

from __future__ import annotations

from engine.models.llama import Llama
from engine.models.traits import Traits


class Glm4(Llama):
    """Source: arXiv 2406.12793."""

    traits = Traits(has_post_norm=True, has_fused_gate_up=True)
