"""Sampling: filters against a plain reference, the draw against the target distribution."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from localspec.errors import BadLogitsError, UsageError
from localspec.sampling import Sampler, gumbel_noise
from localspec.types import SamplingParams


def reference(row: np.ndarray, params: SamplingParams, history: list[int]) -> dict[int, float]:
    """The final distribution, computed the slow way from llama.cpp's definitions."""
    logits = {index: float(value) for index, value in enumerate(row)}
    recent = history if params.penalty_last_n < 0 else history[len(history) - params.penalty_last_n :]
    for token in set(recent) if params.penalty_last_n else ():
        value = logits[token]
        value = value / params.repeat_penalty if value > 0 else value * params.repeat_penalty
        value -= recent.count(token) * params.frequency_penalty + params.presence_penalty
        logits[token] = value
    kept = sorted(logits.items(), key=lambda item: (-item[1], item[0]))
    if params.top_k:
        kept = kept[: params.top_k]
    if params.top_p < 1:
        weights = [math.exp(value - kept[0][1]) for _, value in kept]
        total, mass, count = sum(weights), 0.0, 0
        for weight in weights:
            mass += weight / total
            count += 1
            if mass >= params.top_p:
                break
        kept = kept[:count]
    if params.min_p:
        kept = [item for item in kept if item[1] >= kept[0][1] + math.log(params.min_p)]
    weights = [math.exp((value - kept[0][1]) / params.temperature) for _, value in kept]
    return {token: weight / sum(weights) for (token, _), weight in zip(kept, weights, strict=True)}


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.sampled_from([5, 50, 400]),
    top_k=st.sampled_from([0, 1, 3, 40]),
    top_p=st.sampled_from([1.0, 0.95, 0.5, 0.05]),
    min_p=st.sampled_from([0.0, 0.05, 0.3]),
    temperature=st.sampled_from([0.3, 1.0, 1.7]),
    penalty=st.sampled_from([(1.0, 0.0, 0.0), (1.3, 0.0, 0.0), (1.1, 0.4, 0.2)]),
)
def test_filters_equal_the_definitions(seed, size, top_k, top_p, min_p, temperature, penalty):
    generator = np.random.default_rng(seed)
    row = generator.normal(0, 3, size).astype(np.float32)
    history = [int(token) for token in generator.integers(0, size, 30)]
    params = SamplingParams(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repeat_penalty=penalty[0],
        presence_penalty=penalty[1],
        frequency_penalty=penalty[2],
        penalty_last_n=20,
    )
    before = row.copy()
    ids, probabilities = Sampler(params).distribution(row, history)
    expected = reference(row, params, history)
    assert (row == before).all()
    assert set(map(int, ids)) == set(expected)
    for token, probability in zip(ids, probabilities, strict=True):
        assert probability == pytest.approx(expected[int(token)], abs=1e-5)


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.2, 1.0, 3.0]),
    peak=st.sampled_from([0.0, 6.0, 9.0, 14.0, 40.0]),
    peaks=st.integers(1, 5),
    top_p=st.sampled_from([1.0, 0.999, 0.95, 0.5]),
    min_p=st.sampled_from([0.0, 0.05]),
)
def test_peaked_and_flat_rows_too(seed, spread, peak, peaks, top_p, min_p):
    # Most of a peaked row is never sorted, and a flat one is narrowed down first: neither may show.
    generator = np.random.default_rng(seed)
    row = generator.normal(0, spread, 6000).astype(np.float32)
    row[generator.integers(0, 6000, peaks)] += np.float32(peak)
    params = SamplingParams(temperature=1.0, top_k=40, top_p=top_p, min_p=min_p)
    ids, probabilities = Sampler(params).distribution(row)
    expected = reference(row, params, [])
    assert list(map(int, ids)) == list(expected)
    assert probabilities == pytest.approx(list(expected.values()), abs=1e-5)


def test_ties_at_the_top_k_border_go_to_the_lower_id():
    row = np.zeros(1000, dtype=np.float32)
    ids, _ = Sampler(SamplingParams(top_k=3, top_p=1, min_p=0)).distribution(row)
    assert list(ids) == [0, 1, 2]


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0),
        SamplingParams(temperature=0.7, top_k=8, top_p=0.95, min_p=0.02),
        SamplingParams(temperature=1.8, top_k=0, top_p=0.8, min_p=0.0),
    ],
)
@pytest.mark.parametrize("vary", ["seed", "position"])
def test_coupled_draws_follow_the_target_distribution(params, vary):
    """Chi-square of 20,000 draws at significance 1e-6 per test.

    Six fixed-seed tests: the chance that a correct sampler fails any of them is at most 6e-6, and since the
    generator is deterministic the outcome never changes between runs.
    """
    row = np.random.default_rng(7).normal(0, 1.2, 20).astype(np.float32)
    ids, probabilities = Sampler(params).distribution(row)
    index = {int(token): place for place, token in enumerate(ids)}
    draws = 20_000
    counts = np.zeros(len(ids))
    for number in range(draws):
        if vary == "seed":
            sampler = Sampler(SamplingParams(**{**_as_dict(params), "seed": number}))
            counts[index[sampler.sample(row, 100)]] += 1
        else:
            counts[index[Sampler(params).sample(row, number)]] += 1
    keep = probabilities * draws >= 5
    observed, expected = counts[keep], probabilities[keep] * draws
    rest = draws - expected.sum()
    if rest > 5:
        observed, expected = np.append(observed, draws - observed.sum()), np.append(expected, rest)
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(statistic, len(expected) - 1) > 1e-6


def _as_dict(params: SamplingParams) -> dict[str, float]:
    return {name: getattr(params, name) for name in SamplingParams.__dataclass_fields__}


def test_successive_positions_are_independent():
    """Chi-square of pairs of neighbouring draws against the product (failure probability 1e-6)."""
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1])).astype(np.float32)
    sampler = Sampler(SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0, seed=3))
    tokens = [sampler.sample(row, position) for position in range(30_000)]
    counts = np.zeros((4, 4))
    for first, second in itertools.pairwise(tokens):
        counts[first, second] += 1
    probabilities = np.exp(row.astype(np.float64))
    expected = np.outer(probabilities, probabilities) * (len(tokens) - 1)
    statistic = ((counts - expected) ** 2 / expected).sum()
    assert stats.chi2.sf(statistic, 15) > 1e-6


def test_noise_is_gumbel_and_uncorrelated_between_neighbours():
    """Kolmogorov-Smirnov at 1e-6 each, over ids and over positions; correlations within 5 sigma."""
    ids = np.arange(50_000, dtype=np.int64)
    across_ids = gumbel_noise(11, 5, ids)
    across_positions = np.array([gumbel_noise(11, position, ids[:1])[0] for position in range(20_000)])
    across_seeds = np.array([gumbel_noise(seed, 5, ids[:1])[0] for seed in range(20_000)])
    for sample in (across_ids, across_positions, across_seeds):
        assert stats.kstest(sample, stats.gumbel_r.cdf).pvalue > 1e-6
        correlation = np.corrcoef(sample[:-1], sample[1:])[0, 1]
        assert abs(correlation) < 5 / math.sqrt(len(sample))


def test_noise_is_a_function_of_the_token_id_not_of_its_place():
    ids = np.array([5, 900, 17], dtype=np.int64)
    assert list(gumbel_noise(1, 2, ids)) == [gumbel_noise(1, 2, ids[i : i + 1])[0] for i in range(3)]


def test_greedy_takes_the_maximum_and_penalties_count():
    row = np.array([1.0, 3.0, 2.9], dtype=np.float32)
    assert Sampler(SamplingParams(temperature=0)).sample(row, 0) == 1
    penalised = SamplingParams(temperature=0, repeat_penalty=1.2)
    assert Sampler(penalised).sample(row, 0, [1, 1]) == 2


def test_forbidden_tokens_are_never_drawn():
    row = np.zeros(4, dtype=np.float32)
    sampler = Sampler(SamplingParams(temperature=1, top_k=0), {2: -math.inf, 3: -math.inf})
    assert {sampler.sample(row, position) for position in range(200)} == {0, 1}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_logits_are_an_error(temperature):
    row = np.array([0.0, np.nan, 1.0], dtype=np.float32)
    with pytest.raises(BadLogitsError, match="NaN"):
        Sampler(SamplingParams(temperature=temperature)).sample(row, 0)


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -0.1},
        {"temperature": math.nan},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.5},
        {"min_p": -0.1},
        {"repeat_penalty": 0.0},
    ],
)
def test_values_outside_their_range_are_refused(bad):
    with pytest.raises(UsageError):
        Sampler(SamplingParams(**bad))
