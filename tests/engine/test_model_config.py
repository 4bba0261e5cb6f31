"""The configuration is read from a file's metadata and believed only within bounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf_file import GGMLType, GGUFFile, TensorInfo
from engine.model_config import FULL, RECURRENT, SLIDING, ModelConfig
from tests.engine.tiny_models import TinyModel, write_tiny_model

LLAMA = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.context_length": 128,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


@dataclass
class FakeFile:
    metadata: dict[str, Any]
    paths: tuple[Path, ...] = (Path("tiny.gguf"),)
    tensors: dict[str, TensorInfo] = field(
        default_factory=lambda: {
            "token_embd.weight": TensorInfo("token_embd.weight", (320, 64), GGMLType.F32, 0, 81920)
        }
    )
    get = GGUFFile.get
    require = GGUFFile.require


def read(**changes) -> ModelConfig:
    """Read LLAMA with changes; keys in the form attention__head_count."""
    metadata = dict(LLAMA)
    for name, value in changes.items():
        key = f"llama.{name.replace('__', '.')}"
        if value is None:
            del metadata[key]
        else:
            metadata[key] = value
    return ModelConfig.from_gguf(FakeFile(metadata))


def renamed(architecture: str, **changes) -> ModelConfig:
    metadata = {key.replace("llama.", f"{architecture}."): value for key, value in LLAMA.items()}
    metadata["general.architecture"] = architecture
    metadata |= {f"{architecture}.{k.replace('__', '.')}": v for k, v in changes.items()}
    return ModelConfig.from_gguf(FakeFile(metadata))


def test_defaults_follow_from_the_sizes():
    config = read()
    assert config.head_dim == 16
    assert config.attention_scale == 0.25
    assert config.rope.dim == 16
    assert config.rope.theta == 10000.0
    assert config.layer_types == (FULL, FULL)
    assert config.vocab_size == 320


@pytest.mark.parametrize("name", ["block_count", "embedding_length", "context_length"])
def test_missing_key_is_named(name):
    with pytest.raises(ModelFileError) as caught:
        read(**{name: None})
    assert f"llama.{name}" in caught.value.detail


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("block_count", 1 << 30),
        ("block_count", 0),
        ("embedding_length", -1),
        ("attention__head_count_kv", 3),
        ("attention__head_count_kv", [2]),
        ("attention__key_length", 1 << 20),
        ("attention__layer_norm_rms_epsilon", float("nan")),
        ("attention__head_count", "four"),
        ("attention__head_count", 128),
        ("rope__dimension_count", 15),
        ("rope__dimension_count", 32),
        ("rope__freq_base", -1.0),
        ("rope__freq_base", 1.0),
        ("expert_count", 1 << 20),
    ],
)
def test_senseless_value_is_named(name, value):
    with pytest.raises(ModelFileError) as caught:
        read(**{name: value})
    assert f"llama.{name.replace('__', '.')}" in caught.value.detail


def test_without_rotated_dimensions_nothing_is_rotated():
    assert read(rope__dimension_count=16).has_rope
    assert not read(rope__dimension_count=0).has_rope


def test_keys_and_values_of_different_size_are_refused():
    with pytest.raises(UnsupportedModelError):
        read(attention__key_length=32, attention__value_length=16)


def test_gemma3_memory_has_a_group_per_window():
    config = renamed("gemma3", attention__sliding_window=16, block_count=7)
    assert config.layer_types == (SLIDING,) * 5 + (FULL, SLIDING)
    full, sliding = config.memory_spec(b"x").groups
    assert (full.layers, full.window) == ((5,), None)
    assert (sliding.layers, sliding.window) == ((0, 1, 2, 3, 4, 6), 16)


def test_layers_without_key_heads_are_recurrent():
    config = renamed("lfm2", attention__head_count_kv=[0, 2], shortconv__l_cache=3)
    spec = config.memory_spec(b"x")
    assert config.layer_types == (RECURRENT, FULL)
    assert spec.recurrent is not None
    assert spec.recurrent.layers == (0,)
    assert spec.recurrent.shapes == (("conv", (64, 2)),)


def test_layers_without_key_heads_need_a_state():
    with pytest.raises(ModelFileError) as caught:
        read(attention__head_count_kv=[0, 2])
    assert "llama.ssm.conv_kernel" in caught.value.detail


def test_tiny_model_is_read_back(tmp_path):
    model = TinyModel()
    file = GGUFFile.open(write_tiny_model(tmp_path / "tiny.gguf", model))
    config = ModelConfig.from_gguf(file)
    assert config.num_hidden_layers == model.num_layers
    assert config.intermediate_size == model.intermediate_size
