"""Turns and timings, on made-up steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from localspec.bench.pooling import paired_speedup, standard_error
from localspec.bench.records import Timing
from localspec.bench.runs import (
    Passes,
    Run,
    alternate,
    counts,
    mixed_turn,
    steady,
    steady_passes,
    timing,
    undisturbed,
)
from localspec.types import StepStats


def step(index: int, total_ns: int, *, position: int, drafted: int = 0, accepted: int = 0) -> StepStats:
    return StepStats(
        index=index,
        time_ns=0,
        position=position,
        budget=drafted,
        drafted=drafted,
        accepted=accepted,
        emitted=accepted + 1,
        kind="bonus" if accepted == drafted else "correction",
        source="ngram" if drafted else "",
        match_length=0,
        threads=1,
        draft_ns=0,
        verify_ns=total_ns,
        sample_ns=0,
        other_ns=0,
    )


def run_of(*totals: int, drafted: int = 0) -> Run:
    steps = tuple(
        step(place, total, position=10 + place, drafted=drafted) for place, total in enumerate(totals)
    )
    return Run(tuple(range(len(totals))), sum(totals) * 1e-9, steps)


def test_every_contestant_runs_once_a_round_and_the_first_place_goes_round() -> None:
    order: list[str] = []

    def contestant(name: str) -> Callable[[], Run]:
        def run() -> Run:
            order.append(name)
            return Run((1,), 1.0)

        return run

    seen: list[None] = []
    results = alternate({name: contestant(name) for name in "abc"}, 3, lambda: seen.append(None))
    assert order == [*"abc", *"bca", *"cab"]
    assert {name: len(runs) for name, runs in results.items()} == {"a": 3, "b": 3, "c": 3}
    assert len(seen) == 9


def test_a_disturbance_of_some_steps_of_some_runs_leaves_no_trace() -> None:
    runs = [run_of(10, 900, 10), run_of(700, 10, 10), run_of(10, 10, 800)]
    estimate = timing(runs)
    assert estimate.seconds == pytest.approx(30e-9)
    assert estimate.runs == pytest.approx((920e-9, 720e-9, 820e-9))
    assert estimate.tokens == 3
    assert estimate.first_token_s == pytest.approx(10e-9)


def test_from_four_runs_on_each_step_is_its_lower_quartile() -> None:
    runs = [
        run_of(first, second) for first, second in ((10, 900), (700, 20), (800, 800), (12, 22), (600, 700))
    ]
    estimate = timing(runs)
    assert estimate.seconds == pytest.approx((12 + 22) * 1e-9)
    assert estimate.first_token_s == pytest.approx(12e-9)
    # Of three the median: a quartile would be all but the fastest one.
    assert timing(runs[:3]).seconds == pytest.approx((700 + 800) * 1e-9)


def test_a_pause_is_taken_out_and_a_slower_speed_stays() -> None:
    usual = [[10e6] * 4 for _ in range(5)]
    assert steady(usual) == pytest.approx((0.04,) * 5)
    paused = [list(run) for run in usual]
    paused[2][1] = 300e6
    assert steady(paused) == pytest.approx((0.04, 0.04, 0.045, 0.04, 0.04))
    # A whole run at another speed, and a step that is slow in every run.
    slow = [list(run) for run in usual]
    slow[3] = [13e6] * 4
    for run in slow:
        run[0] *= 4
    assert steady(slow) == pytest.approx((0.07, 0.07, 0.07, 0.091, 0.07))
    assert steady([[0.0, 1.0]]) == ()


def passes(*taken: tuple[int, float], other: float = 0.0) -> Passes:
    steps = tuple(
        step(place, round(ms * 1e6), position=10 + place, drafted=width - 1)
        for place, (width, ms) in enumerate(taken)
    )
    run = Run((1,), 1.0, steps)
    made = Passes.of(run)
    return replace(made, total_ns=made.total_ns + round(other * 1e6))


def test_pauses_of_passes_are_taken_out_where_steps_differ() -> None:
    plain = [(1, 10.0)] * 6
    drafts = [(1, 10.0)] * 3 + [(5, 20.0)] * 2
    runs = [passes(*plain), passes(*drafts, (5, 20.0), other=7.0), passes(*plain, (1, 90.0))]
    runs.append(passes(*drafts, (5, 90.0)))
    # A pass may take 1.5 times the usual; what is no pass counts in full.
    assert steady_passes(runs) == pytest.approx((0.06, 0.097, 0.075, 0.1))
    # The way back from another width is slow in every run: no pause.
    back = passes((1, 10.0), (1, 10.0), (5, 20.0), (1, 18.0))
    assert steady_passes([back] * 4) == pytest.approx((0.058,) * 4)
    # A run that is slower on the whole stays so, and a width that was seen once is its own measure.
    slow = [*runs, passes(*[(1, 13.0)] * 5), passes(*plain, (9, 70.0))]
    assert steady_passes(slow)[-2:] == pytest.approx((0.065, 0.13))
    assert steady_passes([passes((1, 0.0))]) == ()


def test_runs_of_different_steps_have_times_without_pauses_unless_states_are_read() -> None:
    one, other = run_of(10, 10, 10, 10), run_of(10, 10, 10)
    paused = run_of(10, 10, 90)
    found = timing([one, other, one, paused])
    assert found.runs == pytest.approx((40e-9, 30e-9, 40e-9, 110e-9))
    assert found.steady == pytest.approx((40e-9, 30e-9, 40e-9, 35e-9))
    reading = [replace(run, reads=True) for run in (one, other, one, paused)]
    assert timing(reading).steady == ()
    assert timing([one, other, paused]).steady == ()
    assert timing([*[Run((1,), 1.0)] * 3, one]).steady == ()
    assert timing([replace(run_of(10, 10), reads=True)] * 4).steady == pytest.approx((20e-9,) * 4)


def test_a_speedup_leaves_an_eighth_out_at_each_end_where_pauses_are_known() -> None:
    def pair(seconds: list[float], *, clean: bool) -> list[tuple[Timing, Timing]]:
        ones = (1.0,) * len(seconds)
        plain = Timing(tokens=8, seconds=1.0, runs=ones, steady=ones if clean else ())
        steady_runs = tuple(seconds) if clean else ()
        return [(plain, Timing(tokens=8, seconds=1.0, runs=tuple(seconds), steady=steady_runs))]

    seconds = [0.1, 0.5, 0.5, 0.5, 0.4, 0.4, 0.4, 9.0]
    assert paired_speedup(pair(seconds, clean=True)) == pytest.approx((3 * 2.0 + 3 * 2.5) / 6)
    assert paired_speedup(pair(seconds, clean=False)) == pytest.approx((2 * 2.0 + 2 * 2.5) / 4)
    # Both sides without pauses, or neither.
    plain, other = pair(seconds, clean=True)[0]
    mixed = [(plain.model_copy(update={"steady": ()}), other)]
    assert paired_speedup(mixed) == paired_speedup(pair(seconds, clean=False))
    error = standard_error(pair(seconds, clean=True))
    assert error is not None
    assert 0.03 < error < 0.06
    assert standard_error(pair(seconds[:3], clean=True)) is None


def test_time_of_several_parts() -> None:
    assert undisturbed([4.0, 1.0, 2.0, 3.0, 5.0]) == 2.0
    assert undisturbed([[1, 9], [9, 1], [5, 5]]) == 10.0


def test_runs_of_one_shape_after_one_of_another_are_not_mixed() -> None:
    runs = [run_of(10, 50, drafted=4), run_of(10, 10, 10), run_of(10, 10, 20), run_of(10, 10, 30)]
    assert timing(runs).seconds == pytest.approx(45e-9)


def test_runs_that_took_other_steps_are_compared_as_a_whole() -> None:
    runs = [run_of(10, 10, 10), run_of(10, 50, drafted=4), run_of(10, 10, 20)]
    assert timing(runs).seconds == pytest.approx(40e-9)


def test_a_peer_without_steps_gets_the_median_of_its_runs() -> None:
    assert timing([Run((1, 2), seconds) for seconds in (3.0, 1.0, 2.0)]).seconds == 2.0


def test_counts_are_those_of_the_steps() -> None:
    steps = (
        step(0, 5, position=9, drafted=4, accepted=4),
        step(1, 5, position=14, drafted=2, accepted=1),
        step(2, 5, position=16),
    )
    found = counts(Run(tuple(range(8)), 15e-9, steps))
    assert (found.steps, found.skipped_steps, found.drafts) == (3, 1, 2)
    assert (found.drafted, found.accepted, found.emitted, found.reached) == (6, 5, 8, 6)
    assert found.accepted_at == (2, 1, 1, 1)
    assert found.drafted_at == (2, 2, 1, 1)


@pytest.mark.parametrize("size", range(1, 8))
def test_in_mixed_turns_everybody_comes_after_everybody_else(size: int) -> None:
    names = [str(number) for number in range(size)]
    orders = [mixed_turn(names, number) for number in range(size * size)]
    assert all(sorted(order) == names for order in orders)
    after = Counter(pair for order in orders for pair in pairwise(order))
    assert {order[0] for order in orders} == set(names)
    if size in (3, 5, 7):
        # Of a prime number of contestants all pairs are alike, but for where the count of turns ends.
        assert len(after) == size * (size - 1)
        assert max(after.values()) <= 2 * min(after.values())
