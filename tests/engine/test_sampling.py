"""Sampling rules by hand values, and the sampler's generator."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from engine.config import SamplingParams
from engine.errors import EngineError
from engine.kernels.top_k import TopK
from engine.sampling import (
    Sampler,
    apply_min_p,
    apply_presence_frequency_penalty,
    apply_repetition_penalty,
    apply_temperature,
    apply_top_k,
    apply_top_p,
    sample,
    sample_sorted,
    top_k_of,
)

PROBABILITIES = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]])
LOGITS = PROBABILITIES.log()
INF = math.inf


def row_of(*logits: float) -> np.ndarray:
    return np.array(logits, np.float32)


def kept(logits: torch.Tensor) -> list[list[int]]:
    return [[i for i, x in enumerate(row) if x > -INF] for row in logits.tolist()]


def test_temperature_divides():
    torch.testing.assert_close(apply_temperature(LOGITS, 2.0), LOGITS / 2)


def test_top_k_keeps_the_largest_of_each_row():
    assert kept(apply_top_k(LOGITS, 2)) == [[0, 1], [2, 3]]
    assert kept(apply_top_k(LOGITS, 0)) == kept(apply_top_k(LOGITS, 9)) == [[0, 1, 2, 3]] * 2


@pytest.mark.parametrize(
    ("top_p", "expected"), [(0.4, [0]), (0.6, [0, 1]), (0.9, [0, 1, 2]), (1.0, [0, 1, 2, 3])]
)
def test_top_p_keeps_the_fewest_that_reach_the_sum(top_p: float, expected: list[int]):
    mirrored = sorted(3 - i for i in expected)
    assert kept(apply_top_p(LOGITS, top_p)) == [expected, mirrored]


@pytest.mark.parametrize(
    ("min_p", "expected"), [(0.0, [0, 1, 2, 3]), (0.2, [0, 1, 2]), (0.5, [0, 1]), (1.0, [0])]
)
def test_min_p_is_relative_to_the_most_probable(min_p: float, expected: list[int]):
    assert kept(apply_min_p(LOGITS, min_p))[0] == expected


def test_repetition_penalty_divides_positive_and_multiplies_negative_once():
    logits = torch.tensor([[2.0, -2.0, 1.0]])
    result = apply_repetition_penalty(logits, torch.tensor([[0, 1, 0]]), 2.0)
    assert result.tolist() == [[1.0, -4.0, 1.0]]


def test_presence_counts_once_and_frequency_each_time():
    logits = torch.zeros(1, 3)
    result = apply_presence_frequency_penalty(
        logits, torch.tensor([[0, 1, 0]]), presence=0.5, frequency=0.25
    )
    assert result.tolist() == [[-1.0, -0.75, 0.0]]


NO_KERNELS = ("REPRISE_ISA", "none")


@pytest.mark.parametrize("vocab_size", [10, 5000, 5001, 49152])
@pytest.mark.parametrize("has_kernels", [True, False])
def test_the_largest_are_found_among_the_largest_runs(
    vocab_size: int, has_kernels: bool, monkeypatch: pytest.MonkeyPatch
):
    if not has_kernels:
        monkeypatch.setenv(*NO_KERNELS)
    row = torch.randn(vocab_size, generator=torch.Generator().manual_seed(vocab_size))
    for top_k in (1, 7):
        expected = row.topk(top_k)
        found = top_k_of(row.numpy(), TopK(top_k))
        assert found == (expected.values.tolist(), expected.indices.tolist())


def test_kernels_draw_the_same_tokens(monkeypatch: pytest.MonkeyPatch):
    generator = torch.Generator().manual_seed(3)
    rows = [torch.randn(49152, generator=generator).mul(3).numpy() for _ in range(20)]
    params = SamplingParams(temperature=1.5, top_k=40, top_p=0.9, min_p=0.01, seed=5)
    native = Sampler(params, 49152)
    drawn = [native.sample(row, []) for row in rows]
    monkeypatch.setenv(*NO_KERNELS)
    plain = Sampler(params, 49152)
    assert drawn == [plain.sample(row, []) for row in rows]


def test_a_token_is_where_the_sum_of_probabilities_passes_the_number():
    """0.5, 0.3, 0.15 and 0.05, then the other way round."""
    for uniform, expected in [(0.0, 0), (0.49, 0), (0.51, 1), (0.79, 1), (0.81, 2), (0.99, 3)]:
        assert sample(LOGITS[:1], torch.tensor([uniform])).tolist() == [expected]
    assert sample(LOGITS, torch.tensor([0.1, 0.1])).tolist() == [0, 1]


def test_masked_tokens_are_never_drawn():
    logits = torch.tensor([[-INF, 1.0, -INF, 0.5, -INF]])
    largest = math.nextafter(1.0, 0.0)
    for uniform, expected in [(0.0, 1), (largest, 3)]:
        parts = torch.tensor([uniform], dtype=torch.float64)
        assert sample(logits, parts).tolist() == [expected]


@pytest.mark.parametrize("top_p", [0.3, 0.95, 1.0])
@pytest.mark.parametrize("min_p", [0.0, 0.05, 1.0])
@pytest.mark.parametrize("temperature", [0.01, 0.7, 2.0])
def test_drawing_from_few_is_what_the_rules_draw(top_p: float, min_p: float, temperature: float):
    drawing = torch.Generator().manual_seed(4)
    for _ in range(50):
        logits = (torch.randn(1, 40, generator=drawing) * 3).sort(descending=True).values
        uniform = torch.rand(1, generator=drawing, dtype=torch.float64)
        ruled = apply_min_p(apply_top_p(logits, top_p), min_p)
        expected = sample(apply_temperature(ruled, temperature), uniform)
        rules = {"top_p": top_p, "min_p": min_p, "temperature": temperature}
        assert sample_sorted(logits[0].tolist(), float(uniform), **rules) == int(expected)


@pytest.mark.parametrize("uniform", [0.0, math.nextafter(1.0, 0.0)])
def test_the_ends_of_what_few_logits_are_drawn_by(uniform: float):
    logits = [2.0, 1.0, 0.0, -1.0]
    place = sample_sorted(logits, uniform, top_p=0.9, min_p=0.1, temperature=1.0)
    assert place == (0 if uniform == 0.0 else 2)


def test_rules_leave_their_input_alone():
    before = LOGITS.clone()
    ids = torch.tensor([[0], [1]])
    apply_temperature(LOGITS, 0.5)
    apply_top_k(LOGITS, 1)
    apply_top_p(LOGITS, 0.1)
    apply_min_p(LOGITS, 0.9)
    apply_repetition_penalty(LOGITS, ids, 1.5)
    apply_presence_frequency_penalty(LOGITS, ids, presence=1, frequency=1)
    assert torch.equal(LOGITS, before)


@pytest.mark.parametrize(
    "field",
    [
        {"temperature": -1.0},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"min_p": -0.1},
        {"min_p": 2.0},
        {"repetition_penalty": 0.0},
        {"presence_penalty": 3.0},
        {"frequency_penalty": -3.0},
        {"penalty_last_n": -1},
        {"temperature": math.nan},
    ],
)
def test_values_out_of_range_are_refused(field: dict[str, float]):
    with pytest.raises(ValueError, match=next(iter(field))):
        Sampler(SamplingParams(**field), 4)


def test_drawn_frequencies_follow_the_probabilities():
    uniforms = torch.rand(20_000, generator=torch.Generator().manual_seed(7))
    drawn = sample(LOGITS[:1].expand(20_000, 4), uniforms)
    shares = drawn.bincount(minlength=4) / len(drawn)
    torch.testing.assert_close(shares, PROBABILITIES[0], atol=0.02, rtol=0)


def test_greedy_takes_the_lowest_id_among_equals():
    sampler = Sampler(SamplingParams(temperature=0), 4)
    assert sampler.sample(row_of(1.0, 3.0, 3.0, 2.0), []) == 1


def test_penalties_look_at_the_last_tokens_only():
    params = SamplingParams(temperature=0, presence_penalty=2, penalty_last_n=2)
    logits = row_of(3.0, 2.5, 0.0)
    assert Sampler(params, 3).sample(logits, [0, 2, 2]) == 0
    assert Sampler(params, 3).sample(logits, [2, 2, 0]) == 1
    assert Sampler(SamplingParams(temperature=0, penalty_last_n=0), 3).sample(logits, [0]) == 0


def test_rows_longer_than_the_vocabulary_are_cut():
    assert Sampler(SamplingParams(temperature=0), 2).sample(row_of(0.0, 1.0, 9.0), []) == 1


def draws(sampler: Sampler, count: int = 50) -> list[int]:
    logits = torch.randn(2_000, generator=torch.Generator().manual_seed(1)).numpy()
    return [sampler.sample(logits, []) for _ in range(count)]


def test_one_seed_draws_one_sequence():
    params = SamplingParams(seed=11, temperature=1.5)
    assert draws(Sampler(params, 2_000)) == draws(Sampler(params, 2_000))


def test_an_open_seed_is_named_and_repeats():
    params = SamplingParams(temperature=1.5)
    sampler = Sampler(params, 2_000)
    again = Sampler(SamplingParams(temperature=1.5, seed=sampler.seed), 2_000)
    assert draws(sampler) == draws(again)


def test_a_sampler_goes_on_where_another_stopped():
    params = SamplingParams(seed=3, temperature=1.5)
    whole = draws(Sampler(params, 2_000))
    assert draws(Sampler(params, 2_000, num_before=5), 45) == whole[5:]


@pytest.mark.parametrize("top_p", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("min_p", [0.0, 0.05])
def test_without_top_k_the_narrowed_draw_keeps_the_same_tokens(top_p: float, min_p: float):
    row = torch.randn(5_000, generator=torch.Generator().manual_seed(2)) * 3
    sampler = Sampler(SamplingParams(top_k=0, top_p=top_p, min_p=min_p, seed=1), 5_000)
    found = sampler._narrowed(row.numpy())
    if found is None:
        assert (top_p, min_p) == (1.0, 0.0)
        return
    allowed = set(kept(apply_min_p(apply_top_p(row[None], top_p), min_p))[0])
    values, ids, mass = found
    rules = {"top_p": top_p, "min_p": min_p, "temperature": 50.0, "mass": mass}
    count = 15 * len(allowed)
    drawn = {ids[sample_sorted(values, at / count, **rules)] for at in range(count)}
    assert drawn == allowed


@pytest.mark.parametrize("temperature", [0.0, 0.7])
@pytest.mark.parametrize("bad", [math.nan, INF])
def test_unusable_logits_are_a_typed_error(temperature: float, bad: float):
    sampler = Sampler(SamplingParams(temperature=temperature, seed=1), 3)
    with pytest.raises(EngineError, match="no usable numbers"):
        sampler.sample(row_of(0.0, bad, 1.0), [])


@pytest.mark.parametrize(
    ("params", "num_sure"),
    [
        (SamplingParams(temperature=0), 1),
        (SamplingParams(top_k=40), 40),
        (SamplingParams(top_k=0), 0),
        (SamplingParams(temperature=0, top_k=0, repetition_penalty=1.1), 65),
        (SamplingParams(top_k=40, presence_penalty=0.5, penalty_last_n=10), 50),
        (SamplingParams(top_k=40, repetition_penalty=0.9), 0),
        (SamplingParams(top_k=40, presence_penalty=1.0, frequency_penalty=-0.1), 0),
    ],
)
def test_sampler_says_how_many_logits_decide(params: SamplingParams, num_sure: int):
    assert Sampler(params, 100).num_sure == num_sure
    spared = Sampler(params, 100, num_spare=3).num_sure
    assert spared == (num_sure + 3 if num_sure else 0)
