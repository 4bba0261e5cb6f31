"""Every architecture gives the logits that llama.cpp gives for the same tiny file."""

from __future__ import annotations

import json
from functools import cache

import numpy as np
import pytest
import torch

from engine.gguf_file import GGUFFile
from engine.loader import load_model
from engine.model_config import ModelConfig
from engine.models import ARCHITECTURES, Model
from engine.quant.linear import Compute
from tests.engine.naive_view import NaiveView
from tests.reference import REFERENCE, needs_reference

MODELS = REFERENCE / "models"
MANIFEST = MODELS / "manifest.json"
ENTRIES = json.loads(MANIFEST.read_text(encoding="utf-8")) if MANIFEST.exists() else []
SUPPORTED = [entry for entry in ENTRIES if entry["architecture"] in ARCHITECTURES]
CASES = [
    pytest.param(entry, case["npz"], id=case["npz"].removesuffix(".npz"))
    for entry in SUPPORTED
    for case in entry["cases"]
]

pytestmark = needs_reference


@cache
def loaded(name: str) -> tuple[ModelConfig, Model]:
    file = GGUFFile.open(MODELS / name)
    config = ModelConfig.from_gguf(file)
    return config, load_model(file, config, Compute())


def read_case(name: str) -> tuple[torch.Tensor, torch.Tensor, list[int]]:
    """Tokens, logits of exact weights, and the greedy continuation."""
    with np.load(MODELS / name) as arrays:
        suffix = "_dequant" if "logits_dequant" in arrays else ""
        logits = torch.from_numpy(arrays[f"logits{suffix}"])
        return (
            torch.from_numpy(arrays["tokens"]).long(),
            logits,
            arrays[f"greedy{suffix}"].tolist() if f"greedy{suffix}" in arrays else [],
        )


@torch.inference_mode()
def evaluate(model: Model, view: NaiveView, tokens: torch.Tensor, chunk: int) -> torch.Tensor:
    logits = []
    for part in tokens.split(chunk):
        positions = torch.arange(view.length, view.length + len(part))
        logits.append(model(part, positions, view.begin(len(part)), None))
    return torch.cat(logits)


@pytest.mark.parametrize(("entry", "npz"), CASES)
def test_logits_equal_those_of_llama_cpp(entry, npz):
    config, model = loaded(entry["file"])
    tokens, expected, _ = read_case(npz)
    found = evaluate(model, NaiveView(config.memory_spec(b"")), tokens, len(tokens))
    assert (found - expected).abs().max() <= entry["suggested_tolerance"]


@pytest.mark.parametrize("entry", SUPPORTED, ids=lambda entry: entry["name"])
def test_greedy_continuation_equals_that_of_llama_cpp(entry):
    config, model = loaded(entry["file"])
    tokens, _, expected = read_case(entry["cases"][0]["npz"])
    view = NaiveView(config.memory_spec(b""))
    logits = evaluate(model, view, tokens, len(tokens))
    found = [int(logits[-1].argmax())]
    while len(found) < len(expected):
        logits = evaluate(model, view, torch.tensor(found[-1:]), 1)
        found.append(int(logits[-1].argmax()))
    assert found == expected


@pytest.mark.parametrize("entry", SUPPORTED, ids=lambda entry: entry["name"])
def test_chunks_do_not_change_logits(entry):
    config, model = loaded(entry["file"])
    tokens, _, _ = read_case(entry["cases"][-1]["npz"])
    tokens = tokens[:60]
    whole = evaluate(model, NaiveView(config.memory_spec(b"")), tokens, len(tokens))
    parts = evaluate(model, NaiveView(config.memory_spec(b"")), tokens, 7)
    torch.testing.assert_close(parts, whole, rtol=0, atol=2e-3)


def test_logit_rows_select_rows():
    config, model = loaded("llama.gguf")
    tokens, expected, _ = read_case("llama.npz")
    view = NaiveView(config.memory_spec(b""))
    rows = torch.tensor([3, 47])
    with torch.inference_mode():
        found = model(tokens, torch.arange(len(tokens)), view.begin(len(tokens)), rows)
    torch.testing.assert_close(found, expected[rows], rtol=0, atol=2e-4)


def test_bfloat16_weights_stay_close():
    file = GGUFFile.open(MODELS / "llama.gguf")
    config = ModelConfig.from_gguf(file)
    model = load_model(file, config, Compute(torch.bfloat16, torch.bfloat16))
    tokens, expected, _ = read_case("llama.npz")
    found = evaluate(model, NaiveView(config.memory_spec(b"")), tokens, len(tokens))
    error = (found - expected).square().mean().sqrt() / expected.square().mean().sqrt()
    assert error < 0.05
