"""Real models read real texts as llama.cpp does, and the kernels as torch does.

llama.cpp rounds activations to eight bits: its likelihoods differ by parts of a thousand, and in a
few places of a hundred, where two tokens are about as likely, it prefers the other one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from engine.config import EngineConfig
from engine.gguf_file import GGUFFile
from engine.kernels import available
from engine.loader import load_model
from engine.memory.factory import build_memory
from engine.memory.interface import Memory, SequenceId
from engine.model_config import ModelConfig
from engine.models import Model
from engine.native_runner import NativeRunner
from engine.quant.linear import Compute
from tests.reference import REFERENCE, needs_reference

NLL = REFERENCE / "nll.json"
SCORES = json.loads(NLL.read_text(encoding="utf-8")) if NLL.exists() else {}
MODELS = {
    "SmolLM2-135M-Instruct.Q4_1": "smollm2_path",
    "gemma-3-270m-q4_k_m": "gemma3_path",
}
CHUNK = 250
ONE_BY_ONE = 200

pytestmark = [needs_reference, pytest.mark.slow]


@dataclass(frozen=True)
class Scores:
    """What the logits of some positions say: tokens, and losses in nats of those that follow."""

    likeliest: Tensor
    losses: Tensor
    hits: Tensor

    @classmethod
    def of(cls, logits: Tensor, following: Sequence[int]) -> Scores:
        targets, likeliest = torch.tensor(following), logits.argmax(-1)
        known = logits[: len(targets)]
        losses = F.cross_entropy(known, targets, reduction="none")
        return cls(likeliest, losses, likeliest[: len(targets)] == targets)

    @classmethod
    def joined(cls, parts: Sequence[Scores]) -> Scores:
        names = ("likeliest", "losses", "hits")
        return cls(*(torch.cat([getattr(part, name) for part in parts]) for name in names))


@dataclass(frozen=True)
class Reading:
    """A whole text, read by the kernels, and the parts of it that torch has read as well."""

    whole: Scores
    parts: Scores
    same_parts: Scores


@dataclass
class Reader:
    """A model with both ways to run it over one memory; without kernels torch reads it all."""

    name: str
    model: Model
    memory: Memory
    native: NativeRunner | None

    def parts_of(self, num_tokens: int) -> tuple[int, ...]:
        """Where the chunks begin that torch reads too: all, or one with a long past of a model
        whose vocabulary of 262,144 takes time.
        """
        last = (num_tokens // CHUNK - 1) * CHUNK
        return (last,) if self.name.startswith("gemma") else tuple(range(0, num_tokens, CHUNK))

    @torch.inference_mode()
    def reading(self, text: str) -> Reading:
        token_ids = SCORES[self.name][text]["token_ids"]
        sequence, whole, parts = self.memory.create(), [], {}
        for start in range(0, len(token_ids), CHUNK):
            tokens = token_ids[start : start + CHUNK]
            following = token_ids[start + 1 : start + 1 + CHUNK]
            if start in self.parts_of(len(token_ids)):
                copy = self.memory.fork(sequence, start)
                assert copy is not None
                parts[len(whole)] = Scores.of(self.by_torch(copy, tokens, start), following)
                self.memory.release(copy)
            whole.append(Scores.of(self.by_kernels(sequence, tokens, start), following))
            self.memory.commit(sequence, tokens)
        self.memory.release(sequence)
        self.memory.clear()
        same_parts = [whole[at] for at in parts]
        return Reading(
            Scores.joined(whole), Scores.joined(list(parts.values())), Scores.joined(same_parts)
        )

    @torch.inference_mode()
    def by_torch(self, sequence: SequenceId, tokens: list[int], start: int) -> Tensor:
        assert self.memory.allocate([(sequence, len(tokens))])
        view = self.memory.step([(sequence, len(tokens))])
        positions = torch.arange(start, start + len(tokens))
        return self.model(torch.tensor(tokens), positions, view)

    def by_kernels(self, sequence: SequenceId, tokens: list[int], start: int) -> Tensor:
        if self.native is None:
            return self.by_torch(sequence, tokens, start)
        assert self.memory.allocate([(sequence, len(tokens))])
        view = self.memory.step([(sequence, len(tokens))])
        positions = range(start, start + len(tokens))
        logits = self.native.forward_batch(tokens, positions, view, range(len(tokens)))
        return torch.from_numpy(logits)


@pytest.fixture(scope="module")
def reader(request: pytest.FixtureRequest) -> Iterator[Reader]:
    path: Path = request.getfixturevalue(MODELS[request.param])
    file = GGUFFile.open(path)
    config = ModelConfig.from_gguf(file)
    model = load_model(file, config, Compute(), is_lazy=True)
    memory = build_memory(config.memory_spec(b""), EngineConfig(hot_budget_bytes=400 << 20))
    native = None
    if available() is not None:
        native = NativeRunner(model, num_threads=torch.get_num_threads())
    yield Reader(request.param, model, memory, native)
    if native is not None:
        native.close()


CASES = [(model, text) for model in MODELS for text in sorted(SCORES.get(model, ()))]


@pytest.mark.parametrize(("reader", "text"), CASES, indirect=["reader"])
def test_a_text_is_scored_as_by_llama_cpp_and_by_torch(reader: Reader, text: str) -> None:
    reading = reader.reading(text)
    expected, whole = SCORES[reader.name][text], reading.whole
    for scores in (whole, reading.parts):
        if len(scores.losses) == len(whole.losses):
            nll, top1 = float(scores.losses.mean()), share(scores.hits)
            assert nll == pytest.approx(expected["f16"]["mean_nll"], rel=0.005)
            assert top1 == pytest.approx(expected["f16"]["top1"], abs=0.02)
    assert share(whole.likeliest == torch.tensor(expected["argmax"])) >= 0.92
    ours, exact = reading.same_parts, reading.parts
    num_tokens = len(whole.likeliest)
    starts = reader.parts_of(num_tokens)
    assert len(exact.likeliest) == sum(min(CHUNK, num_tokens - start) for start in starts)
    assert share(ours.likeliest == exact.likeliest) >= 0.99
    assert float(ours.losses.sum() / exact.losses.sum()) == pytest.approx(1, abs=0.002)


@pytest.mark.parametrize("reader", MODELS, indirect=True)
def test_tokens_one_by_one_are_scored_as_by_torch(reader: Reader) -> None:
    token_ids = SCORES[reader.name]["prose.txt"]["token_ids"][: CHUNK + ONE_BY_ONE]
    tokens = token_ids[CHUNK:]
    sequence = reader.memory.create()
    reader.by_kernels(sequence, token_ids[:CHUNK], 0)
    reader.memory.commit(sequence, token_ids[:CHUNK])
    copy = reader.memory.fork(sequence, CHUNK)
    assert copy is not None
    exact = Scores.of(reader.by_torch(copy, tokens, CHUNK), tokens[1:])
    logits = []
    for i, token in enumerate(tokens):
        logits.append(reader.by_kernels(sequence, [token], CHUNK + i))
        reader.memory.commit(sequence, [token])
    ours = Scores.of(torch.cat(logits), tokens[1:])
    reader.memory.clear()
    assert share(ours.likeliest == exact.likeliest) >= 0.99
    assert float(ours.losses.sum() / exact.losses.sum()) == pytest.approx(1, abs=0.002)


def share(found: Tensor) -> float:
    return float(found.float().mean())
