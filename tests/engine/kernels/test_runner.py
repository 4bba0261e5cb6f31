"""The native runner gives the logits of the torch path."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from engine.config import EngineConfig, KVCodec
from engine.gguf_file import GGUFFile
from engine.kernels import available
from engine.loader import load_model
from engine.memory.attention import PagedAttentionMemory
from engine.memory.factory import build_memory
from engine.memory.interface import Memory
from engine.model_config import ModelConfig
from engine.models import Model
from engine.native_runner import NativeRunner
from engine.quant.linear import Compute
from engine.runner import TorchRunner

TOKENS = [(7919 * i + 13) % 40000 for i in range(200)]


@dataclass
class Both:
    model: Model
    memory: Memory
    native: NativeRunner


@pytest.fixture(scope="module")
def both(smollm2_path: Path) -> Iterator[Both]:
    if available() is None:
        pytest.skip("the native kernels are not built")
    file = GGUFFile.open(smollm2_path)
    config = ModelConfig.from_gguf(file)
    model = load_model(file, config, Compute(), is_lazy=True)
    memory = build_memory(config.memory_spec(b"test"), EngineConfig(hot_budget_bytes=100 << 20))
    assert NativeRunner.supports(model, KVCodec.F16)
    native = NativeRunner(model, num_threads=2)
    yield Both(model, memory, native)
    native.close()


def evaluate(
    both: Both, sizes: list[int], *, is_native: bool, token_ids: list[int] = TOKENS
) -> torch.Tensor:
    """Evaluate token_ids in pieces; return all logits."""
    sequence, position, logits = both.memory.create(), 0, []
    for size in sizes:
        tokens = token_ids[position : position + size]
        assert both.memory.allocate([(sequence, size)])
        view = both.memory.step([(sequence, size)])
        positions = range(position, position + size)
        if is_native:
            found = both.native.forward_batch(tokens, positions, view, range(size))
            logits.append(torch.from_numpy(found))
        else:
            with torch.inference_mode():
                logits.append(both.model(torch.tensor(tokens), torch.tensor(positions), view))
        both.memory.commit(sequence, tokens)
        position += size
    both.memory.release(sequence)
    both.memory.clear()
    return torch.cat(logits)


def test_logits_agree_with_the_torch_path(both: Both) -> None:
    expected = evaluate(both, [100, 20], is_native=False)
    logits = evaluate(both, [100, 20], is_native=True)
    error = (logits - expected).square().mean().sqrt()
    assert error < 0.1 * expected.std()
    divergence = torch.nn.functional.kl_div(
        logits.log_softmax(-1), expected.log_softmax(-1), log_target=True, reduction="batchmean"
    )
    assert divergence < 0.02


def logits_of_rows(both: Both, rows: list[int]) -> torch.Tensor:
    """Read 30 tokens; return the logits of some."""
    sequence = both.memory.create()
    assert both.memory.allocate([(sequence, 30)])
    view = both.memory.step([(sequence, 30)])
    chosen = both.native.forward_batch(TOKENS[:30], range(30), view, rows)
    both.memory.release(sequence)
    return torch.from_numpy(chosen.copy())


def test_chosen_rows_have_the_logits_they_have_among_all(both: Both) -> None:
    every = evaluate(both, [30], is_native=True)
    many = [0, 3, 4, 7, 11, 19, 20, 28, 29]
    assert torch.equal(logits_of_rows(both, many), every[many])
    # Few rows are multiplied with the precision of the file, many in fixed point.
    few = logits_of_rows(both, [3, 4, 29])
    assert (few - every[[3, 4, 29]]).square().mean().sqrt() < 0.02 * every.std()


@pytest.mark.slow
@pytest.mark.parametrize("codec", [KVCodec.INT8, KVCodec.K8V4])
def test_packed_history_gives_the_logits_of_the_torch_path(both: Both, codec: KVCodec) -> None:
    config = EngineConfig(hot_budget_bytes=100 << 20, kv_codec=codec, block_size=16)
    memory = build_memory(both.model.config.memory_spec(b"test"), config)
    packed = replace(both, memory=memory)
    expected = evaluate(packed, [150, 1, 12], is_native=False)[-13:]
    logits = evaluate(packed, [150, 1, 12], is_native=True)[-13:]
    assert (logits - expected).square().mean().sqrt() < 0.1 * expected.std()
    assert (logits.argmax(-1) == expected.argmax(-1)).float().mean() > 0.9


def test_same_tokens_give_the_same_bits(both: Both) -> None:
    first = evaluate(both, [64, 1, 1, 33], is_native=True)
    assert torch.equal(first, evaluate(both, [64, 1, 1, 33], is_native=True))


def test_thinned_out_history_is_read_as_by_torch(both: Both) -> None:
    memory, logits = both.memory, []
    assert isinstance(memory, PagedAttentionMemory)
    original = memory.create()
    assert memory.allocate([(original, 100)])
    both.native.forward_batch(TOKENS[:100], range(100), memory.step([(original, 100)]), [])
    memory.commit(original, TOKENS[:100])
    group = both.model.config.memory_spec(b"").groups[0]
    kept = torch.tensor([*range(20), *range(60, 100)])
    heads = (len(group.layers), group.num_key_value_heads, -1)
    for runner in (both.native, TorchRunner(both.model, "")):
        copy = memory.distill(original, [kept.expand(*heads)])
        assert copy is not None
        for start, size in ((100, 12), (112, 1)):
            assert memory.allocate([(copy, size)])
            view, piece = memory.step([(copy, size)]), TOKENS[start : start + size]
            logits.append(torch.from_numpy(runner.forward(piece, start, view, wants_logits=True)))
            memory.commit(copy, piece)
        memory.release(copy)
    memory.clear()
    for ours, expected in zip(logits[:2], logits[2:], strict=True):
        assert (ours - expected).square().mean().sqrt() < 0.1 * expected.std()


def test_batch_gives_what_each_sequence_gives_alone(both: Both) -> None:
    alone = evaluate(both, [40, 1], is_native=True)[-1]
    memory = both.memory
    sequences = [memory.create() for _ in range(3)]
    for sequence in sequences:
        assert memory.allocate([(sequence, 40)])
        view = memory.step([(sequence, 40)])
        both.native.forward_batch(TOKENS[:40], range(40), view, [])
        memory.commit(sequence, TOKENS[:40])
    batch = [(sequence, 1) for sequence in sequences]
    assert memory.allocate(batch)
    logits = both.native.forward_batch([TOKENS[40]] * 3, [40] * 3, memory.step(batch), range(3))
    for row in logits:
        torch.testing.assert_close(torch.from_numpy(row), alone, atol=0.5, rtol=0.1)
