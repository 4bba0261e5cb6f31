"""Names of models, from the names of their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.model_name import model_name


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct"),
        ("gemma-3-270m-q4_k_m.gguf", "gemma-3-270m"),
        ("Qwen3-8B-IQ4_XS-00001-of-00003.gguf", "Qwen3-8B"),
        ("model-f16.gguf", "model"),
        ("tiny.gguf", "tiny"),
    ],
)
def test_part_and_quantisation_are_left_out(file, name):
    assert model_name(Path(file)) == name
