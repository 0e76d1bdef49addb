"""The thread governor on simulated machines: it knows times only, so its choices can be checked exactly."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from localspec.runtime.threads import ThreadGovernor

MS = 1_000_000


def simulate(
    governor: ThreadGovernor,
    seconds: float,
    cost: Callable[[int, int], float],
    *,
    start: int = 0,
    widths: tuple[int, ...] = (1,),
    noise: float = 0.03,
    spare: Callable[[int], float] | None = None,
) -> tuple[int, list[tuple[int, int]], float]:
    """Run passes for `seconds`; returns the clock, (time, threads) of each pass, share of the best."""
    generator = random.Random(start)
    now, trace, useful = start, [], 0.0
    while now - start < seconds * 1000 * MS:
        width = generator.choice(widths)
        threads = governor.threads_for(width)
        elapsed = cost(threads, width) * (1 + generator.uniform(-noise, noise))
        now += int(elapsed * MS)
        left = spare(threads) if spare else None
        governor.observe(threads, width, int(elapsed * MS), now, left)
        trace.append((now, threads))
        useful += min(cost(count, width) for count in range(1, 9)) * MS
    return now, trace, useful / (now - start)


def idle(threads: int, width: int) -> float:
    return {1: 10.0, 2: 7.5}.get(threads, 1e9) * (1 + 0.1 * (width - 1))


def one_neighbour(threads: int, width: int) -> float:
    return {1: 10.0, 2: 23.0}.get(threads, 1e9) * (1 + 0.1 * (width - 1))


def all_idle(threads: int) -> float:
    return 2.0 - threads


def none_idle(threads: int) -> float:
    return 0.0


@pytest.mark.parametrize("widths", [(1,), (1, 9), tuple(range(1, 10))])
def test_follows_a_neighbour_within_a_second_both_ways(widths):
    governor = ThreadGovernor(2)
    now, _, share = simulate(governor, 3, idle, widths=widths, spare=all_idle)
    assert share > 0.97
    changed = now
    now, trace, _ = simulate(governor, 4, one_neighbour, start=now, widths=widths, spare=none_idle)
    late = [threads for when, threads in trace if when - changed > 1000 * MS]
    assert late.count(1) / len(late) > 0.95
    changed = now
    now, trace, _ = simulate(governor, 4, idle, start=now, widths=widths, spare=all_idle)
    late = [threads for when, threads in trace if when - changed > 1000 * MS]
    assert late.count(2) / len(late) > 0.95


def test_more_threads_than_idle_cores_are_never_tried():
    governor = ThreadGovernor(2)
    now, _, _ = simulate(governor, 1, one_neighbour, spare=none_idle)
    _, trace, _ = simulate(governor, 30, one_neighbour, start=now, spare=none_idle)
    assert {threads for _, threads in trace} == {1}


def test_without_knowledge_of_idle_cores_tries_get_rare_and_still_find_back():
    governor = ThreadGovernor(2)
    now, _, _ = simulate(governor, 2, one_neighbour)
    now, trace, share = simulate(governor, 20, one_neighbour, start=now)
    assert [threads for _, threads in trace].count(2) <= 10
    assert share > 0.98
    _, trace, _ = simulate(governor, 8, idle, start=now)
    assert [threads for _, threads in trace[-100:]].count(2) >= 99


def test_a_single_slow_pass_changes_nothing():
    governor = ThreadGovernor(2)
    now, _, _ = simulate(governor, 1, idle, spare=all_idle)
    governor.observe(2, 1, 25 * MS, now + 25 * MS, 0.0)
    _, trace, _ = simulate(governor, 0.3, idle, start=now + 25 * MS, spare=all_idle)
    assert [threads for _, threads in trace].count(2) >= len(trace) - 2


def test_a_single_stalled_pass_is_enough_to_try_fewer():
    governor = ThreadGovernor(2)
    now, _, _ = simulate(governor, 1, idle, spare=all_idle)
    governor.observe(2, 1, 800 * MS, now + 800 * MS, 0.0)
    assert governor.threads_for(1) == 1


def test_one_core_has_nothing_to_choose():
    governor = ThreadGovernor(1)
    _, trace, _ = simulate(governor, 1, lambda threads, width: 10.0)
    assert {threads for _, threads in trace} == {1}


def test_many_cores_leave_one_to_a_neighbour():
    def busy(threads: int, width: int) -> float:
        return (80.0 / threads if threads < 8 else 25.0) * (1 + 0.1 * (width - 1))

    governor = ThreadGovernor(8)
    now, _, _ = simulate(governor, 2, lambda threads, width: 80.0 / threads)
    _, trace, _ = simulate(governor, 4, busy, start=now)
    late = [threads for _, threads in trace[len(trace) // 2 :]]
    assert late.count(7) / len(late) > 0.9


def test_an_app_that_redraws_now_and_then_changes_nothing():
    """A draw of 12 ms every 220 ms slows the passes it meets; two threads still beat one."""
    governor = ThreadGovernor(2)
    now, useful, trace = 0, 0.0, []
    while now < 20_000 * MS:
        threads = governor.threads_for(1)
        clean = idle(threads, 1) * MS
        drawing = threads == 2 and (now % (220 * MS)) + clean > 208 * MS
        elapsed = int(clean + (12 * MS if drawing else 0))
        now += elapsed
        useful += 7.5 * MS
        governor.observe(threads, 1, elapsed, now, 0.9 if threads == 1 else 0.0)
        trace.append(threads)
    assert trace.count(2) / len(trace) > 0.97


def test_what_wide_passes_gain_counts_though_narrow_ones_gain_nothing():
    """Widths 1 and 9 as on a quantized file: one token is bound by memory, nine by the cores."""

    def cost(threads: int, width: int) -> float:
        return {(1, 1): 6.8, (2, 1): 6.8, (1, 9): 60.0, (2, 9): 35.0}.get((threads, width), 1e9)

    governor = ThreadGovernor(2, spare=0.0)
    assert governor.threads_for(1) == 1
    _, trace, _ = simulate(governor, 5, cost, widths=(1,) * 20 + (9,), spare=all_idle)
    late = [threads for when, threads in trace if when > 2_000 * MS]
    assert late.count(2) / len(late) > 0.95
