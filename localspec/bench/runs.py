"""Runs, taken in turn, and the timings that they add up to."""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from localspec.bench.records import Counts, Timing
from localspec.stats.metrics import NS, Tally
from localspec.types import StepStats

QUANTILE = 0.25
"""Of several times of the same work this quantile is its time: a disturbance only ever adds."""
PAUSE = 1.5
"""A step that takes so many times what is to be expected of it met a pause of the machine."""
ENOUGH = 4
"""Runs from which on `QUANTILE` says more than the median, which is taken of fewer."""


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
        reads: whether its drafter reads hidden states of the target.
    """

    token_ids: tuple[int, ...]
    seconds: float
    steps: tuple[StepStats, ...] = ()
    begin_s: float = 0.0
    overhead_s: float = 0.0
    energy_j: float | None = None
    reads: bool = False


class Series:
    """The runs of one contestant: the last one whole, of the others the times, which need little room.

    Attributes:
        last: the newest run; None before there is one.
        seconds: of each run, in the order in which they were made.
        begins: `Run.begin_s` of each.
        firsts: nanoseconds of the first step of each run that has steps.
        energy_j: joules of the newest run of which they are known.
    """

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        self.last: Run | None = None
        self.seconds: list[float] = []
        self.begins: list[float] = []
        self.firsts: list[int] = []
        self.energy_j: float | None = None
        self._shape: list[tuple[int, int]] = []
        self._steps: list[array[int]] = []
        self._passes: list[Passes] = []
        for run in runs:
            self.add(run)

    def add(self, run: Run) -> None:
        """Take in one more run."""
        shape = [(step.position, step.drafted) for step in run.steps]
        if self.last is None:
            self._shape = shape
        if shape and shape == self._shape:
            self._steps.append(array("q", [step.total_ns for step in run.steps]))
        if shape and not run.reads:
            self._passes.append(Passes.of(run))
        self.firsts += [step.total_ns for step in run.steps[:1]]
        self.seconds.append(run.seconds)
        self.begins.append(run.begin_s)
        if run.energy_j is not None:
            self.energy_j = run.energy_j
        self.last = run

    @property
    def aligned(self) -> bool:
        """Whether all runs took the same steps."""
        # Fewer kept than made: some run took other ones.
        return len(self._steps) == len(self.seconds)

    def timing(self, *, whole: bool = False) -> Timing:
        """The time of these runs, at least one; see `timing`.

        Args:
            whole: take runs as a whole though they took the same steps, as for others that did not: only what
                was estimated in the same way can be compared.
        """
        assert self.last is not None  # noqa: S101 - a contestant without runs has no time to ask for
        aligned = self.aligned and not whole
        first = None
        if self.firsts:
            first = (undisturbed(self.firsts) if aligned else statistics.median(self.firsts)) * NS
        return Timing(
            tokens=len(self.last.token_ids),
            seconds=undisturbed(self._steps) * NS if aligned else statistics.median(self.seconds),
            runs=tuple(self.seconds),
            steady=self._steady(whole=whole),
            first_token_s=first,
        )

    def _steady(self, *, whole: bool) -> tuple[float, ...]:
        """Seconds of each run without pauses; empty where they cannot be told from work."""
        if len(self.seconds) < ENOUGH:
            return ()
        if self.aligned and not whole:
            return steady(self._steps)
        return steady_passes(self._passes) if len(self._passes) == len(self.seconds) else ()


def undisturbed(times: ArrayLike) -> float:
    """The time of work that was done several times: the sum over its parts of `QUANTILE` over the runs.

    Args:
        times: shape [runs] or [runs, parts], in any unit; of fewer than `ENOUGH` runs the median is taken.
    """
    taken: np.ndarray[Any, Any] = np.asarray(times, dtype=float)
    return float(np.quantile(taken, QUANTILE if len(taken) >= ENOUGH else 0.5, axis=0).sum())


def steady(times: ArrayLike) -> tuple[float, ...]:
    """Seconds of each run without pauses of the machine.

    What is to be expected of a step is its median over the runs, times how much slower than that the run is
    on the whole: so a speed of the machine that lasts for a run stays in it, and so does a step that is slow
    in every run. No step counts for more than `PAUSE` times that.

    Args:
        times: nanoseconds, shape [runs, steps].
    """
    taken: np.ndarray[Any, Any] = np.asarray(times, dtype=float)
    usual = np.median(taken, axis=0)
    if not (usual > 0).all():
        return ()
    pace = np.median(taken / usual, axis=1, keepdims=True)
    return tuple((np.minimum(taken, PAUSE * pace * usual).sum(axis=1) * NS).tolist())


@dataclass(frozen=True, slots=True)
class Passes:
    """The target's passes in one run: tokens and nanoseconds of each, and nanoseconds of the whole run."""

    widths: array[int]
    ns: array[int]
    total_ns: int

    @classmethod
    def of(cls, run: Run) -> Passes:
        """Those of a run that has steps."""
        return cls(
            # Below zero for a tree: its branches are prepared besides.
            array("i", [(step.drafted + 1) * (1 if step.leaves == 1 else -1) for step in run.steps]),
            array("q", [step.verify_ns for step in run.steps]),
            sum(step.total_ns for step in run.steps),
        )


def steady_passes(runs: Sequence[Passes]) -> tuple[float, ...]:
    """As `steady`, for runs that took different steps: no pass counts for more than `PAUSE` times the usual.

    That is the median of all passes over as many tokens, times how much slower the run is on the whole. Only
    passes can be compared in this way, and not those of a target whose states are read: switching that on
    and off takes time in the next pass, which is no pause.
    """
    # A pass of another width than the one before takes longer in any case: that is no pause.
    kinds = [
        [(width, width != before) for before, width in zip([1, *run.widths], run.widths, strict=False)]
        for run in runs
    ]
    by_kind: dict[tuple[int, bool], list[int]] = {}
    for run, own in zip(runs, kinds, strict=True):
        for kind, ns in zip(own, run.ns, strict=True):
            by_kind.setdefault(kind, []).append(ns)
    medians = {kind: statistics.median(found) for kind, found in by_kind.items()}
    if min(medians.values(), default=0) <= 0:
        return ()
    seconds = []
    for run, own in zip(runs, kinds, strict=True):
        taken: np.ndarray[Any, Any] = np.asarray(run.ns, dtype=float)
        usual = np.asarray([medians[kind] for kind in own])
        beyond = taken - PAUSE * np.median(taken / usual) * usual
        seconds.append((run.total_ns - float(beyond[beyond > 0].sum())) * NS)
    return tuple(seconds)


def turn(names: Sequence[str], number: int) -> list[str]:
    """The order of round `number`: it turns by one place a round, so that nobody is always first."""
    first = number % len(names)
    return [*names[first:], *names[:first]]


def mixed_turn(names: Sequence[str], number: int) -> list[str]:
    """The order of turn `number`, so that nobody always comes after the same one: the pass before matters.

    It begins one place further every turn, and goes through all strides that meet everybody once.
    """
    size = len(names)
    strides = [stride for stride in range(1, size) if math.gcd(stride, size) == 1] or [1]
    stride = strides[number % len(strides)]
    return [names[(number + stride * place) % size] for place in range(size)]


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
    for number in range(runs):
        for name in turn(list(contestants), number):
            results[name].append(contestants[name]())
            after_each()
    return results


def timing(runs: Sequence[Run]) -> Timing:
    """The time of runs that did the same work.

    Where every run took the same steps, a disturbance of the machine hits some steps of some runs and only
    ever adds time: the sum over steps of their lower quartile over the runs (`QUANTILE`; the median of fewer
    than `ENOUGH` runs) is free of it. Else the median of the whole runs.
    """
    return Series(runs).timing()


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
