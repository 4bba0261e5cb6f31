"""One file per family of models; ``ARCHITECTURES`` names what can be run."""

from __future__ import annotations

from engine.models.llama import Llama

Model = Llama

ARCHITECTURES: dict[str, type[Llama]] = {"llama": Llama}
