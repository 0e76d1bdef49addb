"""Theory of a fixed draft length, against sums and against dice."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.cost import CostCurve
from localspec.stats.theory import (
    acceptance_for,
    best_gamma,
    break_even,
    expected_speedup,
    expected_tokens,
)

CURVE = CostCurve({1: 5.0, 2: 6.0, 9: 10.0, 10: 18.0})
ALPHAS = st.floats(0, 1)


@given(ALPHAS, st.integers(0, 40))
def test_tau_is_the_sum_of_the_chances(alpha: float, gamma: int) -> None:
    assert expected_tokens(alpha, gamma) == pytest.approx(sum(alpha**n for n in range(gamma + 1)))


@given(ALPHAS, st.integers(1, 12), st.floats(0, 5))
def test_the_best_length_is_the_best_of_all(alpha: float, longest: int, draft: float) -> None:
    best = best_gamma(alpha, CURVE, longest, draft)
    speeds = [1.0] + [expected_speedup(alpha, gamma, CURVE, draft) for gamma in range(1, longest + 1)]
    assert speeds[best] == max(speeds)


@given(st.integers(1, 12), st.floats(0, 5))
def test_at_break_even_drafts_are_as_fast_as_none(gamma: int, draft: float) -> None:
    alpha = break_even(gamma, CURVE, draft)
    if alpha is None:
        assert expected_speedup(1.0, gamma, CURVE, draft) < 1
    else:
        assert expected_speedup(alpha, gamma, CURVE, draft) == pytest.approx(1)


def test_acceptance_for_turns_tau_round() -> None:
    assert acceptance_for(1.5, 1) == pytest.approx(0.5)
    assert acceptance_for(expected_tokens(0.8, 5), 5) == pytest.approx(0.8)
    assert acceptance_for(6.0, 5) == pytest.approx(1.0)
    assert acceptance_for(6.1, 5) is None
    assert acceptance_for(1.0, 0) is None
