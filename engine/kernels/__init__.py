"""Native kernels: C++ through ctypes, optional. ``available()`` says whether they run here."""

from __future__ import annotations

from engine.kernels.library import KernelInfo, available, instruction_sets

__all__ = ["KernelInfo", "available", "instruction_sets"]
