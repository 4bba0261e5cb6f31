"""Token-level access to a loaded model, below sessions and templates: for measurements."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch

from engine.memory.interface import Memory, MemoryBreakdown, SequenceId, StepView
from engine.native_runner import NativeRunner
from engine.runner import Logits, Runner
from engine.sampling import most_likely

if TYPE_CHECKING:
    from torch import Tensor

    from engine.memory.interface import NativeStepView


@dataclass(frozen=True, slots=True)
class DecodeCost:
    """Seconds of some decode steps, and those of them spent on blocks instead of arithmetic."""

    seconds: float
    bookkeeping_seconds: float


@dataclass(frozen=True, slots=True)
class ForkCost:
    """Seconds that a fork took, and the blocks it needed."""

    seconds: float
    num_blocks: int


class Probe:
    """Reads and decodes plain token ids in chunks of prefill_chunk.

    table_layers: the first layer of each attention group.
    """

    def __init__(
        self,
        memory: Memory,
        runner: Runner,
        prefill_chunk: int,
        *,
        table_layers: Sequence[int] = (),
    ) -> None:
        self._memory = memory
        self._runner = runner
        self._prefill_chunk = prefill_chunk
        self._table_layers = table_layers

    def clear(self) -> None:
        """Forget every cached block, so that the next read is from nothing."""
        self._memory.clear()

    def read(self, token_ids: Sequence[int]) -> SequenceId:
        """Evaluate a prompt up to its last logits; return its sequence."""
        sequence = self._memory.create()
        for start in range(0, len(token_ids), self._prefill_chunk):
            chunk = token_ids[start : start + self._prefill_chunk]
            self._evaluate(sequence, chunk, is_last=start + len(chunk) == len(token_ids))
        return sequence

    def logits(
        self, token_ids: Sequence[int], *, chunk: int, rests: bool = False
    ) -> Iterator[Tensor]:
        """Read a text chunk by chunk; yield the logits (T, V) float32 of each chunk's rows.

        Tokens of a chunk see each other exact; those of former chunks as the memory keeps them.
        rests: those are made as small as the codec allows at once, recent ones too.
        """
        sequence = self._memory.create()
        for start in range(0, len(token_ids), chunk):
            part = token_ids[start : start + chunk]
            view = self._place(sequence, part)
            positions = range(start, start + len(part))
            logits = self._runner.forward_batch(part, positions, view, range(len(part)))
            yield torch.from_numpy(logits)
            self._memory.commit(sequence, part)
            if rests:
                self._memory.rest(sequence)
        self._memory.release(sequence)

    def breakdown(self) -> MemoryBreakdown:
        """Return the real bytes of the memory measured."""
        return self._memory.breakdown()

    def decode(
        self, sequence: SequenceId, depth: int, num_tokens: int, *, num_sure: int = 1
    ) -> float:
        """Generate greedily behind the first depth tokens; return the seconds it took.

        num_sure: how many of the largest logits must be exact, as for top_k; 0 for all.
        """
        self._memory.truncate(sequence, depth)
        token = 1
        started = time.perf_counter()
        for _ in range(num_tokens):
            token = self._evaluate(sequence, [token], is_last=True, num_sure=num_sure)
        return time.perf_counter() - started

    def greedy(self, sequence: SequenceId, token_ids: Sequence[int], num_tokens: int) -> list[int]:
        """Return what is drawn after token_ids at the end of a sequence, which stays as it is."""
        fork = self._memory.fork(sequence, self._memory.length(sequence))
        assert fork is not None, "the budget is too small for this measurement"
        drawn = [self._evaluate(fork, token_ids, is_last=True)]
        while len(drawn) < num_tokens:
            drawn.append(self._evaluate(fork, drawn[-1:], is_last=True))
        self._memory.release(fork)
        return drawn

    def decode_cost(self, sequence: SequenceId, depth: int, num_tokens: int) -> DecodeCost:
        """Generate greedily as ``decode`` does, and take the time of placing and committing."""
        self._memory.truncate(sequence, depth)
        token, spent = 1, 0.0
        started = time.perf_counter()
        for position in range(depth, depth + num_tokens):
            before = time.perf_counter()
            view = self._place(sequence, [token])
            self._look_up_blocks(view)
            placed = time.perf_counter()
            logits = self._runner.forward([token], position, view, wants_logits=True)
            assert logits is not None
            evaluated = time.perf_counter()
            self._memory.commit(sequence, [token])
            spent += time.perf_counter() - evaluated + placed - before
            token = most_likely(logits)
        return DecodeCost(time.perf_counter() - started, spent)

    def fork_cost(self, sequence: SequenceId, length: int) -> ForkCost:
        """Fork the first length tokens and give the fork up again."""
        num_blocks = self._num_hot_blocks()
        started = time.perf_counter()
        fork = self._memory.fork(sequence, length)
        seconds = time.perf_counter() - started
        assert fork is not None
        cost = ForkCost(seconds, self._num_hot_blocks() - num_blocks)
        self._memory.release(fork)
        return cost

    def release(self, sequence: SequenceId) -> None:
        """Give a sequence up."""
        self._memory.release(sequence)

    def _evaluate(
        self,
        sequence: SequenceId,
        token_ids: Sequence[int],
        *,
        is_last: bool,
        num_sure: int = 1,
    ) -> int:
        view = self._place(sequence, token_ids)
        position = self._memory.length(sequence)
        if is_last and len(token_ids) == 1:
            logits: Logits | None = self._runner.forward_last(
                token_ids, [position], view, keep=_nothing, num_sure=num_sure
            )[0]
        else:
            logits = self._runner.forward(token_ids, position, view, wants_logits=is_last)
        self._memory.commit(sequence, token_ids)
        return most_likely(logits) if logits is not None else 0

    def _num_hot_blocks(self) -> int:
        return next(t.num_blocks for t in self._memory.breakdown().tiers if t.name == "hot")

    def _look_up_blocks(self, view: StepView) -> None:
        """Do what the kernels' runner would do first; it does it only once per step."""
        if isinstance(self._runner, NativeRunner):
            for layer in self._table_layers:
                cast("NativeStepView", view).tables(layer)

    def _place(self, sequence: SequenceId, token_ids: Sequence[int]) -> StepView:
        placed = self._memory.allocate([(sequence, len(token_ids))])
        assert placed, "the budget is too small for this measurement"
        return self._memory.step([(sequence, len(token_ids))])


def _nothing() -> None:
    """Let logits that were looked at be overwritten."""
