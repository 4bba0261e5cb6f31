"""Loading: every tensor accounted for, progress, cancel, fingerprints."""

from __future__ import annotations

import contextlib
import gc

import gguf
import numpy as np
import pytest
import torch

from engine import loading
from engine.config import EngineConfig
from engine.engine import Engine
from engine.errors import LoadCancelledError, ModelFileError, UnsupportedModelError
from engine.gguf_file import GGUFFile
from engine.kernels import available
from engine.loader import fingerprint, load_model
from engine.model_config import ModelConfig
from engine.quant.linear import Compute, QuantLinear
from tests.engine import tiny_models
from tests.engine.naive_view import NaiveView
from tests.engine.tiny_models import TinyModel, write_tiny_model


def opened(path, model=None, **changes):
    return GGUFFile.open(write_tiny_model(path / "m.gguf", model or TinyModel(**changes)))


def load(file: GGUFFile, **options):
    return load_model(file, ModelConfig.from_gguf(file), Compute(), **options)


@pytest.mark.skipif(available() is None, reason="the native kernels are not built")
@pytest.mark.parametrize(
    ("kind", "num_releases"),
    [(gguf.GGMLQuantizationType.Q8_0, 2), (gguf.GGMLQuantizationType.F16, 0)],
)
def test_pages_of_an_embedding_that_is_only_looked_up_are_released(
    tmp_path, monkeypatch, kind, num_releases
):
    released = []
    monkeypatch.setattr(GGUFFile, "release_pages", lambda file, name=None: released.append(name))
    path = write_tiny_model(tmp_path / "m.gguf", TinyModel(kind=kind))
    engine = Engine.load(path, EngineConfig(prefill_chunk=100, num_threads=1))
    engine.probe().read([7] * 500)
    engine.unload()
    assert released == [None] + ["token_embd.weight"] * num_releases


@pytest.mark.parametrize("is_sound", [True, False])
def test_garbage_is_collected_again_after_loading(tmp_path, monkeypatch, is_sound):
    path = write_tiny_model(tmp_path / "m.gguf", TinyModel())
    seen = []

    def looked(file, *arguments):
        seen.append(gc.isenabled())
        if not is_sound:
            raise ModelFileError("no")
        return fingerprint(file)

    monkeypatch.setattr(loading, "fingerprint", looked)
    with contextlib.nullcontext() if is_sound else pytest.raises(ModelFileError):
        Engine.load(path, EngineConfig(num_threads=1)).unload()
    assert seen == [False]
    assert gc.isenabled()


def with_tensors(monkeypatch, change):
    """Let the next tiny model be written with other tensors."""
    draw = tiny_models.tensors

    def changed(model):
        found = draw(model)
        change(found)
        return found

    monkeypatch.setattr(tiny_models, "tensors", changed)


@pytest.mark.parametrize(
    "model",
    [
        TinyModel(),
        TinyModel(is_tied=False),
        TinyModel(architecture="gemma3", num_layers=4),
        TinyModel(kind=gguf.GGMLQuantizationType.Q8_0),
    ],
)
def test_tiny_models_run(tmp_path, model):
    file = opened(tmp_path, model)
    config = ModelConfig.from_gguf(file)
    tokens = torch.arange(40) % config.vocab_size
    view = NaiveView(config.memory_spec(b"")).begin(40)
    with torch.inference_mode():
        logits = load(file)(tokens, torch.arange(40), view, torch.tensor([39]))
    assert logits.shape == (1, config.vocab_size)
    assert torch.isfinite(logits).all()


def test_missing_tensor_is_named(tmp_path, monkeypatch):
    with_tensors(monkeypatch, lambda found: found.pop("blk.1.ffn_up.weight"))
    with pytest.raises(ModelFileError) as caught:
        load(opened(tmp_path))
    assert "blk.1.ffn_up.weight" in caught.value.detail


def test_wrong_shape_is_named(tmp_path, monkeypatch):
    short = np.zeros((48, 64), np.float32)
    with_tensors(monkeypatch, lambda found: found.update({"blk.0.attn_q.weight": short}))
    with pytest.raises(ModelFileError) as caught:
        load(opened(tmp_path))
    assert "blk.0.attn_q.weight" in caught.value.detail


def test_tensor_nobody_uses_is_named(tmp_path, monkeypatch):
    extra = np.zeros(8, np.float32)
    with_tensors(monkeypatch, lambda found: found.update({"blk.0.magic.weight": extra}))
    with pytest.raises(UnsupportedModelError) as caught:
        load(opened(tmp_path))
    assert "blk.0.magic.weight" in caught.value.detail


def test_unknown_architecture_lists_the_known_ones(tmp_path):
    file = opened(tmp_path, architecture="rwkv6")
    with pytest.raises(UnsupportedModelError, match="rwkv6") as caught:
        load(file)
    assert "llama" in caught.value.detail


def test_progress_ends_at_one_and_never_falls(tmp_path):
    seen = []
    load(opened(tmp_path), on_progress=lambda progress: seen.append(progress.fraction))
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_cancel_between_tensors(tmp_path):
    answers = iter([False, False, True])
    with pytest.raises(LoadCancelledError):
        load(opened(tmp_path), is_cancelled=lambda: next(answers))


def test_lazy_load_dequantises_nothing(tmp_path):
    model = load(opened(tmp_path), is_lazy=True)
    linears = [module for module in model.modules() if isinstance(module, QuantLinear)]
    assert linears
    assert not any(linear.is_materialized for linear in linears)


def test_fingerprint_is_that_of_the_content(tmp_path):
    first = fingerprint(opened(tmp_path))
    (tmp_path / "copy").mkdir()
    assert fingerprint(opened(tmp_path / "copy")) == first
    assert len(first) == 16


@pytest.mark.parametrize(
    "changes", [{"seed": 1}, {"context_length": 2048}, {"kind": gguf.GGMLQuantizationType.F16}]
)
def test_fingerprint_changes_with_the_model(tmp_path, changes):
    first = fingerprint(opened(tmp_path))
    assert fingerprint(opened(tmp_path, **changes)) != first


def test_fingerprint_changes_with_the_vocabulary(tmp_path, monkeypatch):
    first = fingerprint(opened(tmp_path))
    words = tiny_models.vocabulary()
    monkeypatch.setattr(tiny_models, "vocabulary", lambda: (*words[:-1], "other"))
    assert fingerprint(opened(tmp_path)) != first
