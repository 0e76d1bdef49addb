"""A simulation in figures: folds over the steps, percentiles, predictions, the best possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from localspec.cost import CostCurve
from localspec.simulate.study import FIXED, Outcome
from localspec.stats.metrics import NS, Tally
from localspec.stats.theory import best_gamma, break_even, expected_tokens
from localspec.types import DraftOptions, StepStats

BINS = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (5, 7), (8, 15), (16, 31), (32, None))
"""Match lengths that are counted together, first and last; no draft is the first, None has no end."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times of calls, in microseconds; 0 where there was none."""

    calls: int
    p50: float
    p90: float
    p99: float


@dataclass(frozen=True, slots=True)
class Matches:
    """Steps whose draft came from a match of `shortest` to `longest` tokens; 0: there was no draft.

    Attributes:
        speedup: of these steps alone, the drafter's time left out.
    """

    shortest: int
    longest: int | None
    steps: int
    drafted: int
    accepted: int
    emitted: int
    speedup: float


@dataclass(frozen=True, slots=True)
class Theory:
    """What `localspec.stats.theory` says of a fixed length, beside what was simulated.

    Attributes:
        tau: tokens a pass by alpha and the length; steps without a draft emit one.
        speedup: that over what such a pass and its draft cost.
        break_even: the smallest alpha at which drafts of that length pay; None: they never do.
        best_length: the one that promises most at this alpha, drafting being as dear as it was; 0: none.
    """

    tau: float
    speedup: float
    break_even: float | None
    best_length: int


@dataclass(frozen=True, slots=True)
class Figures:
    """One drafter on some replies.

    Attributes:
        tally: counters, and what is folded from them.
        replies: how many.
        propose: time of a call that drafts.
        begin_ms: (sum, longest) of the time to take in a prompt, in milliseconds.
        speedup: predicted over plain decoding, where drafting takes no time.
        speedup_drafting: the same with the drafter's own time; None where T(1) in milliseconds is unknown.
        best: what the best possible drafter would reach on these replies.
        matches: by match length; those that occurred.
        theory: of a fixed length that drafted; None of anything else.
    """

    tally: Tally
    replies: int
    propose: Times
    begin_ms: tuple[float, float]
    speedup: float
    speedup_drafting: float | None
    best: float
    matches: tuple[Matches, ...]
    theory: Theory | None = None

    @property
    def wasted(self) -> int:
        """Draft tokens that were verified for nothing."""
        return self.tally.drafted - self.tally.accepted

    @property
    def wasted_per_token(self) -> float:
        """The same per emitted token."""
        return self.wasted / self.tally.emitted if self.tally.emitted else 0.0

    @property
    def predicted(self) -> float:
        """The speed-up by which drafters are compared: with their own time where it can be weighed."""
        return self.speedup if self.speedup_drafting is None else self.speedup_drafting


def figures(outcome: Outcome, cost: CostCurve, best: Ideal, *, timed: bool) -> Figures:
    """Figures of all replies of `outcome`.

    Args:
        outcome: at least one reply.
        cost: T(n) in seconds, the one that was simulated with.
        best: of the same curve.
        timed: whether the curve's seconds are such, not multiples of T(1).
    """
    steps = [step for reply in outcome.replies for step in reply.steps]
    plain = sum(reply.plain_ns for reply in outcome.replies)
    verify = sum(step.verify_ns for step in steps)
    drafting = sum(step.draft_ns for step in steps)
    begins = [reply.begin_ns * 1e-6 for reply in outcome.replies]
    lengths = [sum(step.emitted for step in reply.steps) for reply in outcome.replies]
    tally = Tally(steps)
    return Figures(
        tally=tally,
        replies=len(outcome.replies),
        propose=_times([spent for reply in outcome.replies for spent in reply.propose_ns]),
        begin_ms=(math.fsum(begins), max(begins)),
        speedup=plain / verify,
        speedup_drafting=plain / (verify + drafting) if timed else None,
        best=best.speedup(lengths),
        matches=tuple(_matches(steps, cost)),
        theory=_theory(outcome.options, tally, cost, timed=timed),
    )


class Ideal:
    """The best possible drafter: it knows the text, and drafts in every step as much as is cheapest.

    Args:
        cost: T(n), in any unit.
        tokens: length of the longest reply.
        widest: most tokens of a pass that is considered.
    """

    def __init__(self, cost: CostCurve, tokens: int, widest: int) -> None:
        self._one = cost(1)
        widths = np.array([cost(n) for n in range(1, min(widest, tokens) + 1)])
        cheapest = np.zeros(tokens + 1)
        for emitted in range(1, tokens + 1):
            usable = min(emitted, len(widths))
            before = cheapest[emitted - usable : emitted][::-1]
            cheapest[emitted] = (widths[:usable] + before).min()
        self._cheapest = cheapest

    def speedup(self, lengths: Sequence[int]) -> float:
        """Over plain decoding, on replies of `lengths` tokens."""
        return sum(lengths) * self._one / math.fsum(float(self._cheapest[length]) for length in lengths)


def widest_pass(outcomes: Sequence[Outcome], cost: CostCurve) -> int:
    """How wide the best drafter's passes may be: as the curve was measured, or as the drafters' were."""
    drafted = (step.drafted + 1 for outcome in outcomes for reply in outcome.replies for step in reply.steps)
    return max((cost.longest, *drafted))


def _theory(options: DraftOptions, tally: Tally, cost: CostCurve, *, timed: bool) -> Theory | None:
    alpha, length = tally.conditional_acceptance, options.length
    if options.policy != FIXED or not length or alpha is None or options.leaves > 1:
        return None
    share, one = tally.drafts / tally.steps, cost(1)
    tau = share * expected_tokens(alpha, length) + 1 - share
    # The drafter is asked in every step, whether it has something or not.
    draft = tally.draft_ns * NS / tally.steps if timed else 0.0
    spent = share * cost(1 + length) + (1 - share) * one + draft
    return Theory(
        tau=tau,
        speedup=tau * one / spent,
        break_even=break_even(length, cost, draft),
        best_length=best_gamma(alpha, cost, cost.longest - 1, draft),
    )


def _times(spent: Sequence[int]) -> Times:
    if not spent:
        return Times(0, 0.0, 0.0, 0.0)
    p50, p90, p99 = (float(value) * 1e-3 for value in np.percentile(np.asarray(spent), (50, 90, 99)))
    return Times(len(spent), p50, p90, p99)


def _matches(steps: Sequence[StepStats], cost: CostCurve) -> list[Matches]:
    found = []
    for shortest, longest in BINS:
        inside = [
            step
            for step in steps
            if shortest <= _match(step) and (longest is None or _match(step) <= longest)
        ]
        if inside:
            emitted = sum(step.emitted for step in inside)
            found.append(
                Matches(
                    shortest,
                    longest,
                    len(inside),
                    sum(step.drafted for step in inside),
                    sum(step.accepted for step in inside),
                    emitted,
                    emitted * cost(1) * 1e9 / sum(step.verify_ns for step in inside),
                )
            )
    return found


def _match(step: StepStats) -> int:
    # A drafter without matches, but with drafts, counts as if it recognised one token.
    return max(step.match_length, 1) if step.drafted else 0
