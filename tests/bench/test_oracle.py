"""The best that any drafts could reach, and what theory says of a fixed length."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.bench.oracle import (
    best_length,
    oracle_ms,
    oracle_speedup,
    pass_cost,
    pass_time,
    predicted_speedup,
)
from localspec.stats.theory import expected_tokens


def cheapest_partition(tokens: int, pass_ms: Mapping[int, float], longest: int) -> float:
    """Every partition of `tokens`, by trying all first passes."""
    if tokens == 0:
        return 0.0
    widths = range(1, min(tokens, longest, max(pass_ms)) + 1)
    return min(
        (pass_time(pass_ms, width) or math.inf) + cheapest_partition(tokens - width, pass_ms, longest)
        for width in widths
    )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9),
    st.dictionaries(st.integers(2, 12), st.floats(0.1, 50), max_size=5),
    st.floats(0.1, 50),
    st.integers(1, 12),
)
def test_the_oracle_is_the_best_of_all_partitions(
    tokens: int, wider: dict[int, float], one: float, longest: int
) -> None:
    pass_ms = {1: one} | wider
    best = cheapest_partition(tokens, pass_ms, longest)
    assert oracle_ms(tokens, pass_ms, longest) == pytest.approx(best)
    assert oracle_speedup(tokens, pass_ms, longest) == pytest.approx(tokens * one / best)


def test_the_oracle_goes_no_further_than_what_was_measured() -> None:
    # Three passes over four tokens; one over twelve would be an extrapolation.
    assert oracle_ms(12, {1: 1.0, 4: 1.0}) == 3.0
    assert oracle_speedup(12, {1: 1.0, 4: 1.0}) == 4.0
    assert oracle_speedup(12, {1: 1.0}) == 1.0
    assert oracle_speedup(300, {1: 1.0, 200: 1.0}, longest=100) == 100.0


@pytest.mark.parametrize("pass_ms", [{}, {2: 1.0}, {1: 0.0, 2: 1.0}, {1: math.nan}, {1: 1.0, 2: math.inf}])
def test_the_oracle_needs_sound_times(pass_ms: dict[int, float]) -> None:
    assert oracle_speedup(10, pass_ms) is None
    assert oracle_speedup(0, {1: 1.0}) is None


def test_times_between_measured_points_lie_on_a_line() -> None:
    pass_ms = {1: 2.0, 5: 4.0}
    assert [pass_time(pass_ms, n) for n in (0, 1, 3, 5, 6)] == [None, 2.0, 3.0, 4.0, None]
    assert pass_cost(pass_ms, 3) == 1.5
    assert pass_cost({5: 4.0}, 5) is None


@given(st.dictionaries(st.integers(2, 20), st.floats(0.1, 50), max_size=5), st.floats(0.1, 50))
def test_the_best_constant_length_is_the_best_of_all(wider: dict[int, float], one: float) -> None:
    pass_ms = {1: one} | wider
    rates = {
        width - 1: width / (pass_time(pass_ms, width) or math.inf) for width in range(1, max(pass_ms) + 1)
    }
    best = best_length(pass_ms)
    assert best is not None
    assert rates[best] == max(rates.values())
    assert best_length({2: 1.0}) is None


def test_theory_is_the_sum_of_a_geometric_series() -> None:
    for alpha in (0.0, 0.3, 0.97, 1.0):
        assert expected_tokens(alpha, 4) == pytest.approx(sum(alpha**place for place in range(5)))
    assert predicted_speedup(0.5, 1, {1: 1.0, 2: 1.2}) == pytest.approx(1.5 / 1.2)
    assert predicted_speedup(0.5, 2, {1: 1.0, 2: 1.2}) is None
    assert predicted_speedup(1.5, 1, {1: 1.0, 2: 1.2}) is None
    # Half of the steps draft nothing.
    assert predicted_speedup(0.5, 1, {1: 1.0, 2: 1.2}, 0.5) == pytest.approx((0.75 + 0.5) / (0.6 + 0.5))
