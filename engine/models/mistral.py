"""Mistral 3: Llama whose queries grow beyond the context it was trained on."""

from __future__ import annotations

from engine.models.llama import Llama


class Mistral3(Llama):
    """Source: the ``mistral3`` graph of llama.cpp."""
