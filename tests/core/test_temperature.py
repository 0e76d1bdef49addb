"""Temperatures of a head's confidence, place by place."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.drafters.temperature import Temperatures


def _told(temperatures: Temperatures, place: int, truth: float, count: int, *, seed: int = 0) -> list[float]:
    """What was learnt of `count` tokens whose chance is that of the temperature `truth`; the log losses."""
    noise = np.random.default_rng(seed)
    losses = []
    for odds in noise.normal(0.8, 2.0, count):
        confidence = 1 / (1 + math.exp(-odds))
        right = bool(noise.random() < 1 / (1 + math.exp(-odds / truth)))
        chance = temperatures.chance(place, confidence)
        losses.append(-math.log(chance if right else 1 - chance))
        temperatures.learn(place, confidence, right=right)
    return losses


def test_nothing_learnt_is_the_confidence_itself() -> None:
    temperatures = Temperatures(3)
    assert temperatures.values == (1.0, 1.0, 1.0)
    assert temperatures.chance(2, 0.3) == pytest.approx(0.3)


@pytest.mark.parametrize("truth", [0.5, 1.0, 2.0, 3.0])
def test_it_finds_the_temperature(truth: float) -> None:
    found = []
    for seed in range(20):
        temperatures = Temperatures(1)
        _told(temperatures, 0, truth, 400, seed=seed)
        found.append(math.log(temperatures.values[0]))
    assert np.mean(found) == pytest.approx(math.log(truth), abs=0.2)


def test_places_are_fitted_apart() -> None:
    temperatures = Temperatures(3)
    _told(temperatures, 0, 0.5, 400)
    _told(temperatures, 2, 3.0, 400)
    sharp, untouched, flat = temperatures.values
    assert sharp < 0.75
    assert untouched == 1.0
    assert flat > 2.0


@pytest.mark.parametrize("truth", [0.4, 2.5, 4.0])
def test_calibrated_chances_lose_less_than_raw_ones(truth: float) -> None:
    calibrated, raw = 0.0, 0.0
    for seed in range(10):
        temperatures = Temperatures(1)
        calibrated += sum(_told(temperatures, 0, truth, 300, seed=seed))
        raw += sum(
            -math.log(chance if right else 1 - chance) for chance, right in _drawn(truth, 300, seed=seed)
        )
    assert calibrated < raw


def _drawn(truth: float, count: int, *, seed: int) -> list[tuple[float, bool]]:
    noise = np.random.default_rng(seed)
    return [
        (1 / (1 + math.exp(-odds)), bool(noise.random() < 1 / (1 + math.exp(-odds / truth))))
        for odds in noise.normal(0.8, 2.0, count)
    ]


def test_a_confidence_that_is_right_already_stays() -> None:
    temperatures = Temperatures(1)
    calibrated = sum(_told(temperatures, 0, 1.0, 400))
    raw = sum(-math.log(chance if right else 1 - chance) for chance, right in _drawn(1.0, 400, seed=0))
    assert calibrated < raw * 1.02


def test_a_change_of_topic_shows() -> None:
    temperatures = Temperatures(1)
    _told(temperatures, 0, 0.5, 400)
    before = temperatures.values[0]
    _told(temperatures, 0, 3.0, 300)
    assert before < 0.75
    assert temperatures.values[0] > 1.8


def test_a_head_that_is_always_sure_and_never_right_is_not_believed() -> None:
    temperatures = Temperatures(1)
    for _ in range(50):
        temperatures.learn(0, 0.99, right=False)
    assert temperatures.values[0] == 4.0
    assert temperatures.chance(0, 0.99) < 0.8


def test_survival_multiplies_chances() -> None:
    temperatures = Temperatures(3)
    assert temperatures.survival((0.9, 0.5, 0.8)) == pytest.approx((0.9, 0.45, 0.36))
    assert temperatures.survival(()) == ()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.one_of(st.floats(0, 1), st.sampled_from([math.nan, -1.0, 2.0, math.inf, -math.inf])),
            st.booleans(),
        ),
        max_size=60,
    )
)
@settings(max_examples=100, deadline=None)
def test_whatever_is_learnt_chances_stay_chances_and_keep_their_order(
    told: list[tuple[int, float, bool]],
) -> None:
    temperatures = Temperatures(3)
    for place, confidence, right in told:
        temperatures.learn(place, confidence, right=right)
    assert all(0.25 <= value <= 4.0 for value in temperatures.values)
    for place in range(3):
        chances = [temperatures.chance(place, confidence) for confidence in (0.0, 0.2, 0.5, 0.8, 1.0)]
        assert all(0 < chance < 1 for chance in chances)
        assert chances == sorted(chances)
        assert chances[2] == pytest.approx(0.5)
