"""How far a thinned-out copy of a conversation goes on like the whole one.

Measured against what the same memory would hold of the latest tokens, read without those before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from engine.engine import Engine
from engine.memory.interface import Memory, SequenceId
from engine.runner import Runner


@dataclass(frozen=True, slots=True)
class Agreement:
    """Predictions for the same tokens, compared with those of the whole conversation.

    top1: share of positions with the same most likely token. num_identical: tokens that greedy
    decoding would draw before the first other one. kl: mean divergence of the prediction of the
    whole conversation from this one, in nats.
    """

    top1: float
    num_identical: int
    kl: float


@dataclass(frozen=True, slots=True)
class CloneScore:
    """A copy and the latest tokens of equal memory, each against the whole conversation.

    num_kept: places in memory, of num_tokens.
    """

    num_tokens: int
    num_kept: int
    copy: Agreement
    latest: Agreement


class CloneScoring:
    """Scores copies of one conversation that goes on in one way.

    token_ids: read, then copied. next_ids: given to all branches alike after that, at least one;
    greedy decoding of the whole conversation goes on from there. All logits come from torch, so
    that no difference is one of arithmetic.
    """

    def __init__(
        self, engine: Engine, token_ids: Sequence[int], next_ids: Sequence[int], *, num_drawn: int
    ) -> None:
        self._engine = engine
        self._memory, self._runner = engine.memory, engine.torch_runner()
        self._token_ids = list(token_ids)
        self._num_drawn = num_drawn
        self._sequence = engine.probe().read(self._token_ids)
        self._forced = self._draw(list(next_ids))
        self._exact = self._predictions(self._sequence, len(self._token_ids))

    def score(self, decay: float) -> CloneScore:
        """Compare a copy that keeps this part. Raises: what ``Cloning`` raises."""
        cloning = self._engine.cloning(lambda: self._runner)
        copy, num_kept = cloning.thin_out(self._sequence, self._token_ids, decay)
        assert copy is not None, "the budget is too small for this measurement"
        of_copy = self._predictions(copy, len(self._token_ids))
        latest = self._engine.probe().read(self._token_ids[-num_kept:])
        of_latest = self._predictions(latest, num_kept)
        self._memory.release(copy)
        self._memory.release(latest)
        return CloneScore(
            len(self._token_ids),
            num_kept,
            agreement(self._exact, of_copy),
            agreement(self._exact, of_latest),
        )

    def close(self) -> None:
        """Give the conversation up."""
        self._memory.release(self._sequence)

    def _draw(self, next_ids: list[int]) -> list[int]:
        """Return next_ids and what the whole conversation draws after them, but the last."""
        drawn = self._engine.probe().greedy(self._sequence, next_ids, self._num_drawn)
        return [*next_ids, *drawn[:-1]]

    def _predictions(self, sequence: SequenceId, length: int) -> Tensor:
        """Return log probabilities (T, V) of the drawn tokens' places, on a fork of a sequence."""
        fork = _fork(self._memory, sequence)
        logits = _evaluate(self._memory, self._runner, fork, self._forced, length)
        self._memory.release(fork)
        return logits[-self._num_drawn :].log_softmax(-1)


def agreement(exact: Tensor, other: Tensor) -> Agreement:
    """Compare log probabilities (T, V) of the same places."""
    is_same = exact.argmax(-1) == other.argmax(-1)
    num_identical = int(is_same.long().cumprod(0).sum())
    kl = F.kl_div(other, exact, reduction="batchmean", log_target=True)
    return Agreement(float(is_same.double().mean()), num_identical, float(kl))


def _fork(memory: Memory, sequence: SequenceId) -> SequenceId:
    fork = memory.fork(sequence, memory.length(sequence))
    assert fork is not None, "the budget is too small for this measurement"
    return fork


def _evaluate(
    memory: Memory, runner: Runner, sequence: SequenceId, token_ids: Sequence[int], position: int
) -> Tensor:
    """Return the logits (T, V) of some tokens at the end of a sequence."""
    placed = memory.allocate([(sequence, len(token_ids))])
    assert placed, "the budget is too small for this measurement"
    view = memory.step([(sequence, len(token_ids))])
    positions = range(position, position + len(token_ids))
    logits = runner.forward_batch(token_ids, positions, view, range(len(token_ids)))
    memory.commit(sequence, token_ids)
    return torch.from_numpy(logits)
