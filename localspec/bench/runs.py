"""Runs, taken in turn, and the timings that they add up to."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from localspec.bench.records import Counts, Timing
from localspec.stats.metrics import NS, Tally
from localspec.types import StepStats


@dataclass(frozen=True, slots=True)
class Run:
    """One reply of one contestant.

    Attributes:
        token_ids: what was said.
        seconds: time after prefill.
        steps: raw counters; empty for a peer, which has only totals.
        begin_s: time to take in a prompt whose tokens the cache held already: the drafter's share of prefill.
        overhead_s: time that the bench itself took between the steps.
        energy_j: joules, where a device counts them.
    """

    token_ids: tuple[int, ...]
    seconds: float
    steps: tuple[StepStats, ...] = ()
    begin_s: float = 0.0
    overhead_s: float = 0.0
    energy_j: float | None = None


def alternate(
    contestants: Mapping[str, Callable[[], Run]],
    runs: int,
    after_each: Callable[[], None] = lambda: None,
) -> dict[str, list[Run]]:
    """Let every contestant run once a round, in an order that turns by one place from round to round.

    Args:
        contestants: what to call, by name.
        runs: number of rounds.
        after_each: called after every run, for progress.
    """
    results: dict[str, list[Run]] = {name: [] for name in contestants}
    names = list(contestants)
    for number in range(runs):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            results[name].append(contestants[name]())
            after_each()
    return results


def timing(runs: Sequence[Run]) -> Timing:
    """The time of runs that did the same work.

    Where every run took the same steps, a disturbance of the machine hits some steps of some runs: the sum of
    each step's median over the runs is free of it. Else the median of the whole runs.
    """
    seconds = [run.seconds for run in runs]
    aligned = runs[0].steps and all(_shape(run) == _shape(runs[0]) for run in runs)
    if aligned:
        best = sum(
            statistics.median(step.total_ns for step in same)
            for same in zip(*(run.steps for run in runs), strict=True)
        )
        estimate = best * NS
    else:
        estimate = statistics.median(seconds)
    first = [run.steps[0].total_ns * NS for run in runs if run.steps]
    return Timing(
        tokens=len(runs[-1].token_ids),
        seconds=estimate,
        runs=tuple(seconds),
        first_token_s=statistics.median(first) if first else None,
    )


def counts(run: Run) -> Counts:
    """Raw counters of one run."""
    return counts_of(Tally(run.steps))


def counts_of(tally: Tally) -> Counts:
    """A tally as it is written down."""
    return Counts(
        steps=tally.steps,
        skipped_steps=tally.skipped_steps,
        drafts=tally.drafts,
        drafted=tally.drafted,
        accepted=tally.accepted,
        emitted=tally.emitted,
        reached=tally.reached,
        drafted_at=tuple(tally.drafted_at),
        accepted_at=tuple(tally.accepted_at),
        draft_s=tally.draft_ns * NS,
        verify_s=tally.verify_ns * NS,
        sample_s=tally.sample_ns * NS,
        other_s=tally.other_ns * NS,
    )


def _shape(run: Run) -> list[tuple[int, int]]:
    """What each step was asked: two runs of the same shape did the same work."""
    return [(step.position, step.drafted) for step in run.steps]
