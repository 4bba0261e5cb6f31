"""Every family the kernels accept gives the torch path's logits, in pieces of any size."""

from __future__ import annotations

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
PIECES = (40, 1, 1, 20, 1, 7)
CONFIG = EngineConfig(hot_budget_bytes=32 << 20, kv_codec=KVCodec.F32, num_threads=1)

pytestmark = needs_reference


def logits_of(runner: Runner, config: ModelConfig, token_ids: list[int]) -> torch.Tensor:
    """Return the logits after each piece: (pieces, V)."""
    memory = build_memory(config.memory_spec(b"model"), CONFIG)
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
    path = REFERENCE / "models" / f"{name}.gguf"
    if not Path(path).exists():
        pytest.skip(f"{name} is not among the reference files")
    file = GGUFFile.open(path)
    config = ModelConfig.from_gguf(file)
    model = load_model(file, config, Compute(), is_lazy=True)
    if not NativeRunner.supports(model):
        pytest.skip("no native kernels here")
    generator = torch.Generator().manual_seed(0)
    token_ids = torch.randint(config.vocab_size, (sum(PIECES),), generator=generator).tolist()
    native = NativeRunner(model, num_threads=2)
    ours = logits_of(native, config, token_ids)
    native.close()
    expected = logits_of(TorchRunner(model, torch.device("cpu"), ""), config, token_ids)
    assert torch.equal(ours.argmax(-1), expected.argmax(-1))
    assert (ours - expected).abs().max() < 0.02 * expected.std()
