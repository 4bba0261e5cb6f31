"""A damaged model file ends in a typed error, or in a model that still runs."""

from __future__ import annotations

import contextlib
import random

import pytest
import torch

from engine.errors import EngineError
from engine.gguf_file import GGUFFile
from engine.loader import fingerprint, load_model
from engine.model_config import ModelConfig
from engine.quant.linear import Compute
from tests.engine.naive_view import NaiveView
from tests.engine.tiny_models import TinyModel, write_tiny_model

HEADER_BYTES = 12_000


@pytest.fixture(scope="module", params=["llama", "gemma3"])
def intact(request, tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "m.gguf"
    return write_tiny_model(path, TinyModel(architecture=request.param)).read_bytes()


def damaged(content: bytes, seed: int) -> bytes:
    rng = random.Random(seed)
    if seed % 4 == 0:
        return content[: rng.randrange(len(content))]
    changed = bytearray(content)
    for _ in range(rng.choice([1, 1, 3])):
        changed[rng.randrange(HEADER_BYTES)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def run(path) -> None:
    file = GGUFFile.open(path)
    fingerprint(file)
    config = ModelConfig.from_gguf(file)
    model = load_model(file, config, Compute())
    tokens = torch.arange(5)
    with torch.inference_mode():
        model(tokens, tokens, NaiveView(config.memory_spec(b"")).begin(5), None)


@pytest.mark.parametrize("seed", range(60))
def test_damage_is_a_typed_error_or_harmless(intact, tmp_path, seed):
    path = tmp_path / "m.gguf"
    path.write_bytes(damaged(intact, seed))
    with contextlib.suppress(EngineError):
        run(path)
