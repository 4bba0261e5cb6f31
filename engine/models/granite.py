"""Granite: Llama with scale factors, all of which are in the configuration."""

from __future__ import annotations

from engine.models.llama import Llama


class Granite(Llama):
    """Source: arXiv 2412.17965 (Power scheduler), section 5."""
