"""Every family the kernels accept gives the torch path's logits, in pieces of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.config import EngineConfig, KVCodec
from engine.gguf_file import GGUFFile
from engine.kernels import available
from engine.loader import load_model
from engine.memory.factory import build_memory
from engine.model_config import ModelConfig
from engine.models import Model
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
    "llama-q-f16",
    "llama-q-bf16",
    "llama-q-q2_k",
    "llama-q-q3_k",
    "llama-q-iq4_nl",
    "llama-q-iq4_xs",
    "llama-q-mxfp4",
    "lfm2-q8_0",
    "starcoder2",
)
EXACT_FILES = (
    "lfm2",
    "mamba",
    "llama",
    "qwen2",
    "phi3",
    "smollm3",
    "glm4",
    "granite",
    "mistral3",
    "olmo2",
    "stablelm",
)

PIECES = (40, 1, 1, 20, 1, 7, 60, 1, 9)
CONFIG = EngineConfig(hot_budget_bytes=32 << 20, block_size=16, num_threads=1)

pytestmark = needs_reference


def load(name: str) -> tuple[ModelConfig, Model]:
    path = REFERENCE / "models" / f"{name}.gguf"
    if not path.exists():
        pytest.skip(f"{name} is not among the reference files")
    file = GGUFFile.open(path)
    config = ModelConfig.from_gguf(file)
    model = load_model(file, config, Compute(), is_lazy=True)
    if available() is None:
        pytest.skip("the native kernels are not built")
    assert NativeRunner.supports(model, KVCodec.F32)
    return config, model


def logits_of(
    runner: Runner,
    config: ModelConfig,
    token_ids: list[int],
    sizes: Sequence[int] = PIECES,
    codec: KVCodec = KVCodec.F32,
) -> torch.Tensor:
    """Evaluate tokens in pieces of these sizes; return the logits after every token: (T, V)."""
    memory = build_memory(config.memory_spec(b"model"), replace(CONFIG, kv_codec=codec))
    sequence, position, logits = memory.create(), 0, []
    for size in sizes:
        piece = token_ids[position : position + size]
        assert memory.allocate([(sequence, size)])
        view = memory.step([(sequence, size)])
        positions = range(position, position + size)
        found = runner.forward_batch(piece, positions, view, range(size))
        logits.append(torch.from_numpy(found))
        memory.commit(sequence, piece)
        position += size
    return torch.cat(logits)


def last_logits(runner: Runner, config: ModelConfig, token_ids: list[int]) -> torch.Tensor:
    """Evaluate all tokens at once; return the logits after the last one: (V,)."""
    memory = build_memory(config.memory_spec(b"model"), replace(CONFIG, kv_codec=KVCodec.F32))
    sequence = memory.create()
    assert memory.allocate([(sequence, len(token_ids))])
    view = memory.step([(sequence, len(token_ids))])
    logits = runner.forward(token_ids, 0, view, wants_logits=True)
    assert logits is not None
    return torch.from_numpy(logits)


def largest_difference(name: str, codec: KVCodec) -> float:
    """Return by how much the logits differ at most, in standard deviations."""
    config, model = load(name)
    if not NativeRunner.supports(model, codec):
        pytest.skip("no native kernels here")
    generator = torch.Generator().manual_seed(0)
    token_ids = torch.randint(config.vocab_size, (sum(PIECES),), generator=generator).tolist()
    native = NativeRunner(model, num_threads=2)
    ours = logits_of(native, config, token_ids, codec=codec)
    native.close()
    torch_runner = TorchRunner(model, "")
    expected = logits_of(torch_runner, config, token_ids, codec=codec)
    return ((ours - expected).abs().max() / expected.std()).item()


@pytest.mark.parametrize("name", FILES)
def test_kernels_and_torch_agree(name: str):
    # Pieces of eight tokens and more are multiplied in fixed point.
    assert largest_difference(name, KVCodec.F32) < 0.04


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("gemma3-q8_0", KVCodec.INT8),
        ("llama-q-q4_1", KVCodec.INT8),
        ("llama-q-q4_1", KVCodec.K8V4),
        ("qwen3-q4_0", KVCodec.K8V4),
        ("lfm2-q8_0", KVCodec.INT8),
    ],
)
def test_kernels_and_torch_agree_about_packed_blocks(name: str, codec: KVCodec):
    # A number that rounds the other way in one block changes all that follows a little.
    assert largest_difference(name, codec) < 0.1


@pytest.mark.parametrize("name", EXACT_FILES)
def test_float_weights_give_the_logits_of_llama_cpp(name: str):
    config, model = load(name)
    with np.load(REFERENCE / "models" / f"{name}.npz") as arrays:
        token_ids, expected = arrays["tokens"].tolist(), torch.from_numpy(arrays["logits"])
    native = NativeRunner(model, num_threads=2)
    whole = logits_of(native, config, token_ids, [len(token_ids)])
    pieces = logits_of(native, config, token_ids, [*[6] * 3, *[1] * (len(token_ids) - 18)])
    last = last_logits(native, config, token_ids)
    native.close()
    # Few tokens at a time are attended exactly, many in int16: about 14 bits of what is near 1 are
    # left, and these logits spread by 2 and pass through several layers.
    assert (pieces - expected).abs().max() < 2e-4
    assert (whole - expected).square().mean().sqrt() < 2e-3
    assert (whole - expected).abs().max() < 2e-2
    assert (last - expected[-1]).abs().max() < 2e-2


def test_a_state_does_not_depend_on_how_tokens_are_cut():
    config, model = load("mamba")
    native = NativeRunner(model, num_threads=2)
    token_ids = list(range(100, 140))
    whole = logits_of(native, config, token_ids, [40])
    assert torch.equal(logits_of(native, config, token_ids, [3, 1, 1, 30, 5]), whole)
    native.close()


@pytest.mark.parametrize("name", ["lfm2", "mamba"])
def test_sequences_of_a_batch_keep_their_own_state(name: str):
    config, model = load(name)
    native = NativeRunner(model, num_threads=2)
    texts = [list(range(20, 31)), list(range(200, 205)), [7] * 9]
    alone = [logits_of(native, config, text, [len(text) - 1, 1])[-1] for text in texts]
    memory = build_memory(config.memory_spec(b"model"), replace(CONFIG, kv_codec=KVCodec.F32))
    sequences = [memory.create() for _ in texts]
    sizes = [len(text) - 1 for text in texts]
    for length in (sizes, [1] * len(texts)):
        batch = list(zip(sequences, length, strict=True))
        assert memory.allocate(batch)
        starts = [memory.length(sequence) for sequence in sequences]
        cuts = [range(start, start + num) for start, num in zip(starts, length, strict=True)]
        ids = [text[at] for text, cut in zip(texts, cuts, strict=True) for at in cut]
        positions = [at for cut in cuts for at in cut]
        rows = (np.cumsum(length) - 1).tolist()
        logits = native.forward_batch(ids, positions, memory.step(batch), rows)
        for sequence, text, cut in zip(sequences, texts, cuts, strict=True):
            memory.commit(sequence, text[cut.start : cut.stop])
    native.close()
    torch.testing.assert_close(torch.from_numpy(logits), torch.stack(alone), atol=1e-4, rtol=1e-4)
