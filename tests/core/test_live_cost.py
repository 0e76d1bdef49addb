"""T(n) while it is used: pauses, neighbours, other curves, and threads that change under it."""

from __future__ import annotations

import math

import pytest

from localspec.control.live_cost import LiveCost
from localspec.cost import CostCurve
from localspec.runtime.threads import ThreadGovernor

CURVE = CostCurve({1: 1.0, 2: 1.5, 9: 2.5, 32: 6.0})
MS = 1_000_000


def test_until_the_first_pass_all_is_in_units_of_one() -> None:
    live = LiveCost(CURVE.scaled(7.0))
    assert (live.known, live(1), live(9)) == (False, 1.0, 2.5)
    live.observe(9, 0.025)
    assert live.known
    assert live(1) == pytest.approx(0.010)


def test_seconds_are_known_where_they_are_given() -> None:
    live = LiveCost(CURVE, 0.02)
    assert live.known
    assert (live(1), live(9)) == pytest.approx((0.02, 0.05))


@pytest.mark.parametrize("seconds", [0.0, -1.0, -1e9, math.nan, math.inf])
def test_times_that_cannot_be_change_nothing(seconds: float) -> None:
    for live in (LiveCost(CURVE), LiveCost(CURVE, 0.01)):
        before = (live.known, live(1), live(9))
        for _ in range(20):
            live.observe(1, seconds)
        assert (live.known, live(1), live(9)) == before


@pytest.mark.parametrize("strange", [180.0, 0.09, 1e-6])
def test_a_suspended_laptop_and_a_clock_that_jumps_are_no_cost(strange: float) -> None:
    live = LiveCost(CURVE, 0.01)
    for _ in range(3):
        live.observe(1, strange)
        live.observe(9, strange * 3)
        live.observe(1, 0.01)
    assert (live(1), live(9)) == pytest.approx((0.01, 0.025))
    # Just within is believed, but only a little.
    live.observe(1, 0.0799)
    assert 0.01 < live(1) < 0.02


def test_what_stays_strange_is_the_cost_now() -> None:
    live = LiveCost(CURVE, 0.01)
    for _ in range(3):
        live.observe(1, 0.5)
    assert live(1) == pytest.approx(0.5)
    # The very first pass was the pause.
    live = LiveCost(CURVE)
    live.observe(1, 300.0)
    for _ in range(3):
        live.observe(1, 0.01)
    assert live(1) == pytest.approx(0.01)


def test_height_follows_a_neighbour_within_ten_passes_and_the_shape_stays() -> None:
    live = LiveCost(CURVE, 0.01)
    for _ in range(5):
        live.observe(1, 0.02)
        live.observe(9, 0.05)
    assert live(1) == pytest.approx(0.02, rel=0.12)
    assert live(9) / live(1) == pytest.approx(2.5, rel=0.12)


def test_a_width_that_was_measured_badly_is_corrected_by_itself() -> None:
    live = LiveCost(CURVE, 0.01)
    for _ in range(120):
        live.observe(1, 0.01)
        live.observe(9, 0.04)
    assert live(9) == pytest.approx(0.04, rel=0.1)
    assert live(1) == pytest.approx(0.01, rel=0.1)
    assert live(2) / live(1) == pytest.approx(1.5)
    refined = live.refined(100)
    assert set(refined) == {1, 9}
    assert refined[1] == 1.0
    assert refined[9] == pytest.approx(4.0, rel=0.12)
    assert live.refined(121) == {}


def test_another_curve_keeps_the_height_or_takes_a_new_one() -> None:
    live = LiveCost(CURVE, 0.01)
    for _ in range(30):
        live.observe(1, 0.03)
        live.observe(9, 0.09)
    longer = CostCurve({1: 1.2, 9: 3.6})
    live.use(longer)
    assert live(1) == pytest.approx(0.036, rel=0.1)
    assert live(9) / live(1) == pytest.approx(3.0)
    assert live.refined(1) == {}
    live.use(longer, 0.5)
    assert (live(1), live(9)) == pytest.approx((0.5, 1.5))


def test_it_goes_along_with_the_thread_governor() -> None:
    """A neighbour takes one of two cores: threads change, some passes are tries, and T(n) comes after."""

    def takes(threads: int, width: int, busy: bool) -> float:
        one = {(1, False): 10.0, (2, False): 6.0, (1, True): 10.0, (2, True): 23.0}[threads, busy]
        return one * CURVE(width)

    governor = ThreadGovernor(2)
    live = LiveCost(CURVE, 0.006)
    now, widths = 0, (1, 9, 1, 1, 2)

    def run(milliseconds: int, *, busy: bool) -> int:
        nonlocal now
        end = now + milliseconds * MS
        for number in range(10**6):
            if now >= end:
                break
            width = widths[number % len(widths)]
            threads = governor.threads_for(width)
            elapsed = round(takes(threads, width, busy) * MS)
            now += elapsed
            governor.observe(threads, width, elapsed, now, 0.0 if busy else 1.0)
            live.observe(width, elapsed * 1e-9)
        return threads

    assert run(2000, busy=False) == 2
    assert live(1) == pytest.approx(0.006, rel=0.15)
    run(1000, busy=True)
    assert live(1) == pytest.approx(0.010, rel=0.15)
    assert live(9) / live(1) == pytest.approx(2.5, rel=0.15)
    run(1500, busy=False)
    assert live(1) == pytest.approx(0.006, rel=0.15)


def test_preparing_for_another_width_is_learnt_apart_from_the_passes_themselves() -> None:
    """A tenth of T(1) whenever the width changes, as measured here on four quantizations."""
    live = LiveCost(CostCurve({1: 1.0, 9: 2.0}), 0.010)
    assert live.moving(9) == 0.0
    for _ in range(40):
        for tokens, changed in ((1, True), (1, False), (1, False), (9, True)):
            live.observe(tokens, 0.010 * (1.0 if tokens == 1 else 2.0) + 0.001 * changed)
    assert live(1) == pytest.approx(0.010, rel=0.02)
    # From nine tokens: staying costs nothing, going back does; from one token both ways.
    assert live.moving(9) == 0.0
    assert live.moving(1) == pytest.approx(0.001, rel=0.15)
    live.observe(1, 0.011)
    assert live.moving(9) == pytest.approx(0.002, rel=0.15)


def test_without_passes_of_their_own_width_nothing_is_said_of_preparing() -> None:
    live = LiveCost(CostCurve({1: 1.0, 9: 2.0}), 0.010)
    for _ in range(40):
        live.observe(1, 0.012)
        live.observe(9, 0.020)
    assert live.moving(1) == 0.0
