"""Synthetic acceptance: drafts accepted by preset probabilities, to hold measured speed against theory.

The drafter is asked as usual, at its usual cost; its tokens are replaced by those of a recorded text, and
dice decide how many are accepted. vLLM's `synthetic_acceptance_rates` and `synthetic_acceptance_length` mean
the same: rates are unconditional (the share of drafts accepted at least that far), so they never rise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from localspec.drafters.base import Drafter, feature_drafter
from localspec.errors import UsageError
from localspec.sampling import Sampler
from localspec.types import Advice, Budget, Draft, Outcome, Rows, Verdict, VerdictKind


def parse_rates(text: str, length: int) -> tuple[float, ...]:
    """Unconditional rates for `length` positions, from RATE, R1,R2,... or length:L.

    One RATE is the probability that a draft token is accepted given that those before it were. A list that is
    shorter than `length` stops there: nothing is accepted beyond it. `length:L` asks for L tokens emitted a
    step on average, bonus included, and finds the constant rate that gives them.

    Raises:
        UsageError: not numbers, outside their range, or a list that rises.
    """
    kind, _, value = text.rpartition(":")
    if kind not in ("", "length"):
        raise UsageError(f"--synthetic takes a rate, a list of rates or length:L, not '{text}'.")
    try:
        numbers = [float(part) for part in value.split(",")]
    except ValueError as error:
        raise UsageError(f"--synthetic: '{value}' is not a number or a list of them.") from error
    if any(not math.isfinite(number) for number in numbers):
        raise UsageError(f"--synthetic: '{value}' holds a number that is not finite.")
    if kind == "length":
        if len(numbers) != 1 or not 1 <= numbers[0] <= length + 1:
            raise UsageError(
                f"--synthetic length:L needs 1 to {length + 1} tokens a step with drafts of {length}, "
                f"not {value}."
            )
        alpha = _rate_for(numbers[0], length)
        return tuple(alpha**place for place in range(1, length + 1))
    if any(not 0 <= number <= 1 for number in numbers):
        raise UsageError(f"--synthetic: rates lie between 0 and 1, not {value}.")
    if len(numbers) == 1:
        return tuple(numbers[0] ** place for place in range(1, length + 1))
    if any(later > earlier for earlier, later in pairwise(numbers)):
        raise UsageError(f"--synthetic: the rates by position never rise, unlike {value}.")
    return tuple(numbers[:length]) + (0.0,) * (length - len(numbers))


def expected_length(rates: Sequence[float]) -> float:
    """Tokens emitted a step: 1 + the sum of the unconditional rates."""
    return 1.0 + sum(rates)


def _rate_for(wanted: float, length: int) -> float:
    """The constant conditional rate whose drafts of `length` emit `wanted` tokens a step (bisection)."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if expected_length([middle**place for place in range(1, length + 1)]) < wanted:
            low = middle
        else:
            high = middle
    return (low + high) / 2


class SyntheticDrafter:
    """Asks a real drafter, at its cost, and proposes the recorded text in its place, always in full length.

    Args:
        inner: the drafter whose cost counts.
        sequence: the session's tokens, prompt included.
    """

    remembers = False

    def __init__(self, inner: Drafter, sequence: Sequence[int]) -> None:
        self.name = inner.name
        self.needs = inner.needs
        self._inner = inner
        self._reader = feature_drafter(inner)
        self._sequence = list(sequence)

    def begin(self, tokens: Sequence[int]) -> None:
        """See `Drafter.begin`."""
        self._inner.begin(tokens)

    def observe(self, start: int, tokens: Sequence[int]) -> None:
        """See `FeatureDrafter.observe`."""
        if self._reader is not None:
            self._reader.observe(start, tokens)

    def holds(self, tokens: Sequence[int], advice: Advice | None = None) -> int:
        """See `FeatureDrafter.holds`."""
        return len(tokens) if self._reader is None else self._reader.holds(tokens, advice)

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """`budget.tokens` tokens of the recorded text."""
        self._inner.propose(tokens, budget)
        start = len(tokens)
        return Draft.chain(self._sequence[start : start + budget.tokens], source=self.name)

    def commit(self, outcome: Outcome) -> None:
        """See `Drafter.commit`."""
        self._inner.commit(outcome)

    def close(self) -> None:
        """See `Drafter.close`."""
        self._inner.close()


class SyntheticVerifier:
    """Accepts by dice; the text follows the recording whatever falls.

    Args:
        sequence: the session's tokens, prompt included.
        rates: unconditional rates by position.
        seed: of the dice, so that every run of a round falls alike.
    """

    name = "synthetic"
    exact = False

    def __init__(self, sequence: Sequence[int], rates: Sequence[float], seed: int = 0) -> None:
        self._sequence = list(sequence)
        before = (1.0, *rates)
        self._conditional = [
            rate / earlier if earlier > 0 else 0.0 for earlier, rate in zip(before, rates, strict=False)
        ]
        self._dice = np.random.default_rng(seed)

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """Draw from every row up to the first refusal, as a real verifier does, and follow the recording."""
        path: list[int] = []
        position = len(history)
        fallen = self._dice.random(len(draft))
        for node in range(len(draft)):
            sampler.sample(rows[node], position + node, history)
            known = position + node + 1 < len(self._sequence)
            if not known or fallen[node] >= self._rate(node):
                break
            path.append(node)
        else:
            sampler.sample(rows[len(draft)], position + len(draft), history)
        kind: VerdictKind = "correction" if len(path) < len(draft) else "bonus"
        return Verdict(tuple(path), self._sequence[position + len(path)], kind)

    def _rate(self, place: int) -> float:
        return self._conditional[place] if place < len(self._conditional) else 0.0
