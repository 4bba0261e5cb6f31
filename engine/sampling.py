"""How the next token is drawn: pure functions over logits, and a sampler that keeps its generator.

Knows no model and no text. Rules run in the order penalties, top_k, top_p, min_p, temperature.
"""

from __future__ import annotations

import math
import random
import secrets
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from engine.config import SamplingParams
from engine.errors import EngineError
from engine.kernels.top_k import TopK
from engine.runner import Logits

_MASKED = -torch.inf
_FEW = 1024


def apply_temperature(logits: Tensor, temperature: float) -> Tensor:
    """Divide logits by the temperature: below 1 sharpens, above 1 flattens.

    logits: (B, V) float32; a copy is returned. temperature > 0; 0 is greedy, see sample().
    Raises: ValueError when temperature is out of range.
    """
    _check(temperature > 0, "temperature", temperature)
    return logits / temperature


def apply_top_k(logits: Tensor, top_k: int) -> Tensor:
    """Mask all but the top_k largest logits; equals of the smallest of these stay too.

    logits: (B, V) float32; a masked copy is returned. top_k >= 0; 0 keeps all.
    Raises: ValueError when top_k is out of range.
    """
    _check(top_k >= 0, "top_k", top_k)
    if top_k == 0 or top_k >= logits.shape[-1]:
        return logits.clone()
    smallest = logits.topk(top_k).values[..., -1:]
    return logits.masked_fill(logits < smallest, _MASKED)


def apply_top_p(logits: Tensor, top_p: float) -> Tensor:
    """Keep the fewest most probable tokens whose probabilities sum to top_p or more.

    logits: (B, V) float32; a masked copy is returned. top_p in (0, 1]; 1 keeps all. The most
    probable token always stays.
    Raises: ValueError when top_p is out of range.
    Source: arXiv 1904.09751.
    """
    _check(0 < top_p <= 1, "top_p", top_p)
    if top_p == 1:
        return logits.clone()
    values, order = logits.sort(descending=True, stable=True)
    probabilities = values.softmax(-1)
    sum_before = probabilities.cumsum(-1) - probabilities
    is_dropped = torch.zeros_like(logits, dtype=torch.bool)
    is_dropped.scatter_(-1, order, sum_before >= top_p)
    return logits.masked_fill(is_dropped, _MASKED)


def apply_min_p(logits: Tensor, min_p: float) -> Tensor:
    """Mask tokens whose probability is below min_p times the largest one.

    logits: (B, V) float32; a masked copy is returned. min_p in [0, 1]; 0 keeps all.
    Raises: ValueError when min_p is out of range.
    Source: arXiv 2407.01082.
    """
    _check(0 <= min_p <= 1, "min_p", min_p)
    if min_p == 0:
        return logits.clone()
    relative = (logits - logits.amax(-1, keepdim=True)).exp()
    return logits.masked_fill(relative < min_p, _MASKED)


def apply_repetition_penalty(logits: Tensor, token_ids: Tensor, penalty: float) -> Tensor:
    """Make tokens that occurred less likely: divide positive logits, multiply negative ones.

    logits: (B, V) float32; a changed copy is returned. token_ids: (B, S) int64. penalty > 0; 1
    changes nothing.
    Raises: ValueError when penalty is out of range.
    Source: arXiv 1909.05858.
    """
    _check(penalty > 0, "repetition_penalty", penalty)
    seen = logits.gather(-1, token_ids)
    penalised = torch.where(seen > 0, seen / penalty, seen * penalty)
    return logits.scatter(-1, token_ids, penalised)


def apply_presence_frequency_penalty(
    logits: Tensor, token_ids: Tensor, *, presence: float, frequency: float
) -> Tensor:
    """Subtract presence from each token that occurred, and frequency for each time it did.

    logits: (B, V) float32; a changed copy is returned. token_ids: (B, S) int64. Both in [-2, 2]; 0
    changes nothing.
    Raises: ValueError when one is out of range.
    """
    _check(-2 <= presence <= 2, "presence_penalty", presence)
    _check(-2 <= frequency <= 2, "frequency_penalty", frequency)
    counts = (token_ids[:, :, None] == token_ids[:, None, :]).sum(-1)
    seen = logits.gather(-1, token_ids)
    return logits.scatter(-1, token_ids, seen - frequency * counts - presence)


def top_k_of(row: Logits, top_k: TopK) -> tuple[list[float], list[int]]:
    """Return the largest of a row (V,) in descending order, and their ids."""
    found = top_k.of(row)
    if found is not None:
        return found
    values, ids = torch.from_numpy(row).topk(top_k.k)
    return values.tolist(), ids.tolist()


def sample(logits: Tensor, uniforms: Tensor) -> Tensor:
    """Take one token per row by its probability: where the sum passes a part of the whole.

    logits: (B, V) float32; masked tokens -inf. uniforms: (B,) in [0, 1). Returns (B,) int64.
    """
    sums = logits.double().softmax(-1).cumsum(-1)
    whole = sums[:, -1:]
    # Below the whole even when rounded, so that no masked token at the end is taken.
    parts = torch.minimum(uniforms.double()[:, None] * whole, whole.nextafter(whole * 0))
    return torch.searchsorted(sums, parts, right=True)[:, 0]


def sample_sorted(
    logits: Sequence[float],
    uniform: float,
    *,
    top_p: float,
    min_p: float,
    temperature: float,
    mass: float | None = None,
) -> int:
    """Return the place that the rules above and ``sample`` take from few logits, largest first.

    uniform: in [0, 1). mass: what the probabilities sum to where the largest is 1; None where these
    are all.

    In plain Python: between two passes over the weights nothing is in the processor's caches, and
    every operation of torch has to be fetched again.
    """
    first = logits[0]
    mass_left = math.inf
    if top_p < 1:
        if mass is None:
            mass = sum([math.exp(logit - first) for logit in logits])
        mass_left = top_p * mass
    weights: list[float] = []
    for logit in logits:
        chance = math.exp(logit - first)
        if mass_left <= 0 or chance < min_p:
            break
        mass_left -= chance
        weights.append(math.exp((logit - first) / temperature))
    return _place_of(weights, uniform)


def _place_of(weights: Sequence[float], uniform: float) -> int:
    """Return where the sum of weights passes a part of the whole."""
    left = uniform * sum(weights)
    for place, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return place
    return len(weights) - 1


class Sampler:
    """Draws the tokens of one reply; the same seed draws the same tokens.

    seed: what the generator began with, also where the parameters leave it open. num_sure: how many
    of the largest logits decide the draw, 0 for all.
    """

    def __init__(
        self, params: SamplingParams, vocab_size: int, *, num_spare: int = 0, num_before: int = 0
    ) -> None:
        """Check the parameters and seed the generator.

        num_spare: logits beyond the vocabulary, which are not drawn but may be among the largest.
        num_before: tokens of the reply, its opening included, that stand in the log already; each
        counts for a number of the generator, so that a continued reply goes on where it stopped.
        Raises: ValueError when a parameter is out of range.
        """
        _check_params(params)
        self._params = params
        self._vocab_size = vocab_size
        self._top_k = TopK(min(params.top_k or _FEW, vocab_size))
        penalties = (params.presence_penalty, params.frequency_penalty)
        self._has_penalties = params.repetition_penalty != 1 or any(penalties)
        num_sure = _num_sure(params)
        self.num_sure = num_sure and num_sure + num_spare
        self.seed = secrets.randbits(63) if params.seed is None else params.seed % (1 << 63)
        self._generator = random.Random(self.seed)
        for _ in range(num_before):
            self._generator.random()

    def sample(self, logits: Logits, token_ids: Sequence[int]) -> int:
        """Draw the next token.

        logits: (V,). token_ids: what came before; the last penalty_last_n count.
        Raises: EngineError when the model computed no usable numbers.
        """
        row = logits[: self._vocab_size]
        if self._has_penalties:
            row = self._penalised(row, token_ids)
        params = self._params
        if params.temperature == 0:
            token = most_likely(row)
            _check_usable(float(row[token]))
            return token
        narrowed = self._narrowed(row)
        if narrowed is None:
            return self._sample_all(torch.from_numpy(row)[None])
        values, ids, mass = narrowed
        _check_usable(values[0])
        place = sample_sorted(
            values,
            self._generator.random(),
            top_p=params.top_p,
            min_p=params.min_p,
            temperature=params.temperature,
            mass=mass,
        )
        return ids[place]

    def _sample_all(self, row: Tensor) -> int:
        """Draw from a whole row (1, V), which top_k leaves as it is."""
        _check_usable(float(row.amax()))
        row = apply_min_p(apply_top_p(row, self._params.top_p), self._params.min_p)
        uniform = torch.tensor([self._generator.random()], dtype=torch.float64)
        return int(sample(apply_temperature(row, self._params.temperature), uniform))

    def _penalised(self, row: Logits, token_ids: Sequence[int]) -> Logits:
        params = self._params
        last = token_ids[max(0, len(token_ids) - params.penalty_last_n) :]
        if not last:
            return row
        seen = torch.from_numpy(row)[None]
        if params.repetition_penalty != 1:
            seen = apply_repetition_penalty(seen, torch.tensor([last]), params.repetition_penalty)
        if params.presence_penalty or params.frequency_penalty:
            seen = apply_presence_frequency_penalty(
                seen,
                torch.tensor([last]),
                presence=params.presence_penalty,
                frequency=params.frequency_penalty,
            )
        penalised: Logits = seen[0].numpy()
        return penalised

    def _narrowed(self, row: Logits) -> tuple[list[float], list[int], float | None] | None:
        """Return the few logits that can be drawn, largest first, their ids, and their mass.

        Without top_k the other rules often leave few tokens as well: then sorting these is enough,
        and the mass is that of the whole row (V,). None where it takes the whole row.
        """
        params = self._params
        is_narrowing = params.top_k > 0 or params.top_p < 1 or params.min_p > 0
        if self._top_k.k >= row.shape[0] or not is_narrowing:
            return None
        values, ids = top_k_of(row, self._top_k)
        if params.top_k or not math.isfinite(values[0]):
            return values, ids, None
        whole = _mass(row, values[0])
        has_mass = _mass(np.array(values, np.float32), values[0]) >= params.top_p * whole
        is_below_min_p = math.exp(values[-1] - values[0]) < params.min_p
        return (values, ids, whole) if has_mass or is_below_min_p else None


def _num_sure(params: SamplingParams) -> int:
    """Return how many of the largest logits decide what is drawn, 0 for all.

    Penalties that lower logits can let as many others in as tokens were looked at.
    """
    penalties = (params.presence_penalty, params.frequency_penalty)
    is_raising = params.repetition_penalty < 1 or min(penalties) < 0
    num_drawn = 1 if params.temperature == 0 else params.top_k
    if is_raising or num_drawn == 0:
        return 0
    is_lowering = params.repetition_penalty > 1 or max(penalties) > 0
    return num_drawn + (params.penalty_last_n if is_lowering else 0)


def _mass(logits: Logits, largest: float) -> float:
    """Return the sum of probabilities, of which the largest is 1."""
    return float(np.exp(logits - np.float32(largest)).sum())


def most_likely(logits: Logits) -> int:
    """Return the id of the largest logit (V,)."""
    return int(logits.argmax())


def _check_params(params: SamplingParams) -> None:
    _check(params.temperature >= 0, "temperature", params.temperature)
    _check(params.top_k >= 0, "top_k", params.top_k)
    _check(0 < params.top_p <= 1, "top_p", params.top_p)
    _check(0 <= params.min_p <= 1, "min_p", params.min_p)
    _check(params.repetition_penalty > 0, "repetition_penalty", params.repetition_penalty)
    _check(-2 <= params.presence_penalty <= 2, "presence_penalty", params.presence_penalty)
    _check(-2 <= params.frequency_penalty <= 2, "frequency_penalty", params.frequency_penalty)
    _check(params.penalty_last_n >= 0, "penalty_last_n", params.penalty_last_n)


def _check(is_in_range: bool, name: str, value: float) -> None:
    if not is_in_range:
        raise ValueError(f"{name} is out of range: {value}")


def _check_usable(largest: float) -> None:
    if not math.isfinite(largest):
        raise EngineError("The model computed no usable numbers.", detail=f"logit {largest}")
