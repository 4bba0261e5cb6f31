"""SmolLM 3: Llama in which every fourth layer knows no positions."""

from __future__ import annotations

from engine.models.llama import Llama
from engine.models.traits import Traits


class SmolLM3(Llama):
    """Source: arXiv 2501.18795 (NoPE in every fourth layer)."""

    traits = Traits(no_rope_period=4)
