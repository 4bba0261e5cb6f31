"""Real models score real texts as llama.cpp does, within half a percent.

Exact float32 arithmetic gives slightly lower values than llama.cpp, which rounds activations.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from engine.gguf_file import GGUFFile
from engine.loader import load_model
from engine.model_config import ModelConfig
from engine.models import Model
from engine.quant.linear import Compute
from tests.engine.naive_view import NaiveView
from tests.reference import REFERENCE, needs_reference

NLL = REFERENCE / "nll.json"
SCORES = json.loads(NLL.read_text(encoding="utf-8")) if NLL.exists() else {}
CHUNK = 250

pytestmark = [needs_reference, pytest.mark.slow]


def load(path: Path) -> tuple[ModelConfig, Model]:
    file = GGUFFile.open(path)
    config = ModelConfig.from_gguf(file)
    return config, load_model(file, config, Compute())


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> tuple[ModelConfig, Model]:
    return load(smollm2_path)


@pytest.fixture(scope="module")
def gemma3(gemma3_path: Path) -> tuple[ModelConfig, Model]:
    return load(gemma3_path)


@torch.inference_mode()
def score(config: ModelConfig, model: Model, token_ids: list[int]) -> tuple[float, float]:
    """Return the mean negative log-likelihood in nats and the share of top-1 hits."""
    tokens = torch.tensor(token_ids)
    view = NaiveView(config.memory_spec(b""))
    losses, hits = [], []
    for start in range(0, len(tokens) - 1, CHUNK):
        part, targets = tokens[start : start + CHUNK], tokens[start + 1 : start + 1 + CHUNK]
        positions = torch.arange(start, start + len(part))
        logits = model(part, positions, view.begin(len(part)), None)[: len(targets)]
        losses.append(F.cross_entropy(logits, targets, reduction="none"))
        hits.append(logits.argmax(-1) == targets)
    return float(torch.cat(losses).mean()), float(torch.cat(hits).float().mean())


def texts_of(model: str) -> list[str]:
    return sorted(SCORES.get(model, {}))


@pytest.mark.parametrize("text", texts_of("SmolLM2-135M-Instruct.Q4_1"))
def test_smollm2_scores_as_llama_cpp_does(smollm2, text):
    entry = SCORES["SmolLM2-135M-Instruct.Q4_1"][text]
    nll, top1 = score(*smollm2, entry["token_ids"])
    assert nll == pytest.approx(entry["f16"]["mean_nll"], rel=0.005)
    assert top1 == pytest.approx(entry["f16"]["top1"], abs=0.02)


@pytest.mark.parametrize("text", texts_of("gemma-3-270m-q4_k_m"))
def test_gemma3_scores_as_llama_cpp_does(gemma3, text):
    entry = SCORES["gemma-3-270m-q4_k_m"][text]
    nll, top1 = score(*gemma3, entry["token_ids"])
    assert nll == pytest.approx(entry["f16"]["mean_nll"], rel=0.005)
    assert top1 == pytest.approx(entry["f16"]["top1"], abs=0.02)
