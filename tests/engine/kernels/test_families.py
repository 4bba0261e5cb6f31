"""Every family the kernels accept gives the torch path's logits, in pieces of any size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig, KVCodec
from engine.gguf_file import GGUFFile
from engine.loader import load_model
from engine.memory.factory import build_memory
from engine.model_config import ModelConfig
from engine.native_runner import NativeRunner
from engine.quant.linear import Compute
from engine.runner import Runner, TorchRunner
from tests.reference import REFERENCE, needs_reference

FILES = (
    "gemma3-q8_0",
    "qwen3-q4_0",
    "llama-q-q4_1",
    "llama-q-q4_k_m",
    "llama-q-q5_k",
    "llama-q-q6_k",
)
PIECES = (40, 1, 1, 20, 1, 7, 60, 1, 9)
CONFIG = EngineConfig(hot_budget_bytes=32 << 20, block_size=16, num_threads=1)

pytestmark = needs_reference


def logits_of(
    runner: Runner, config: ModelConfig, codec: KVCodec, token_ids: list[int]
) -> torch.Tensor:
    """Return the logits after each piece: (pieces, V)."""
    memory = build_memory(config.memory_spec(b"model"), replace(CONFIG, kv_codec=codec))
    sequence, position, rows = memory.create(), 0, []
    for size in PIECES:
        piece = token_ids[position : position + size]
        assert memory.allocate([(sequence, size)])
        view = memory.step([(sequence, size)])
        rows.append(runner.forward(piece, position, view, wants_logits=True))
        memory.commit(sequence, piece)
        position += size
    return torch.stack(rows)


@pytest.mark.parametrize("name", FILES)
def test_kernels_and_torch_agree(name: str):
    assert largest_difference(name, KVCodec.F32) < 0.02


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("gemma3-q8_0", KVCodec.INT8),
        ("llama-q-q4_1", KVCodec.INT8),
        ("llama-q-q4_1", KVCodec.K8V4),
        ("qwen3-q4_0", KVCodec.K8V4),
    ],
)
def test_kernels_and_torch_agree_about_packed_blocks(name: str, codec: KVCodec):
    # A number that rounds the other way in one block changes all that follows a little.
    assert largest_difference(name, codec) < 0.1


def largest_difference(name: str, codec: KVCodec) -> float:
    """Return by how much the logits differ at most, in standard deviations."""
    path = REFERENCE / "models" / f"{name}.gguf"
    if not Path(path).exists():
        pytest.skip(f"{name} is not among the reference files")
    file = GGUFFile.open(path)
    config = ModelConfig.from_gguf(file)
    model = load_model(file, config, Compute(), is_lazy=True)
    if not NativeRunner.supports(model, codec):
        pytest.skip("no native kernels here")
    generator = torch.Generator().manual_seed(0)
    token_ids = torch.randint(config.vocab_size, (sum(PIECES),), generator=generator).tolist()
    native = NativeRunner(model, num_threads=2)
    ours = logits_of(native, config, codec, token_ids)
    native.close()
    expected = logits_of(TorchRunner(model, torch.device("cpu"), ""), config, codec, token_ids)
    return ((ours - expected).abs().max() / expected.std()).item()
