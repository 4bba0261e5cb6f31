"""Where the reference files lie: what llama.cpp computed, vocabularies, texts, tiny models.

They live beside the repository, not in it; a test that needs them is marked `needs_reference`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT.parent / "shared" / "reference"

needs_reference = pytest.mark.skipif(
    not REFERENCE.is_dir(), reason="the reference files are not beside this clone (../shared)"
)
