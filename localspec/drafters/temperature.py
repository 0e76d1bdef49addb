"""How sure a head really is: its confidence with a temperature for each place of a draft.

Temperature scaling (Guo et al., arXiv 1706.04599), fitted while the head drafts, and place by place: DSpark's
scheduler chooses by such chances how much of a draft is verified.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_SHARPEST, _FLATTEST = 0.25, 4.0
"""Temperatures at least and at most: beyond them a confidence says next to nothing, or nothing of its own."""
_PRIOR = 3.0
"""Precision of the first guess, a temperature of 1: what some ten to twenty tokens tell."""
_MEMORY = 0.995
"""Weight of an observation relative to the next one of its place, so that a change of topic shows."""
_NEAREST = 1e-3
"""Confidences are read as no nearer to 0 and 1 than this."""


@dataclass(slots=True)
class _Place:
    """The slope 1/T of one place, and how well it is known."""

    slope: float = 1.0
    precision: float = _PRIOR


class Temperatures:
    """Temperatures T, one for each place of a draft: the chance of a token is sigmoid(logit(confidence) / T).

    They are fitted online to what became of the tokens: each one moves the slope 1/T of its place by a Newton
    step on the log loss, and what was learnt fades into the first guess, a temperature of 1.

    Args:
        places: tokens of a draft at most.
    """

    def __init__(self, places: int) -> None:
        self._places = [_Place() for _ in range(places)]

    @property
    def values(self) -> tuple[float, ...]:
        """The temperatures, first place first."""
        return tuple(1 / place.slope for place in self._places)

    def chance(self, place: int, confidence: float) -> float:
        """Probability that a token of such confidence at `place`, from 0, is right if those before it are."""
        return _sigmoid(self._places[place].slope * _logit(confidence))

    def survival(self, confidences: Sequence[float]) -> tuple[float, ...]:
        """For each token of a draft the probability that it and all before it are right."""
        reached, survival = 1.0, []
        for place, confidence in enumerate(confidences):
            reached *= self.chance(place, confidence)
            survival.append(reached)
        return tuple(survival)

    def learn(self, place: int, confidence: float, *, right: bool) -> None:
        """The token at `place`, all before it being right, turned out right or wrong."""
        one, odds = self._places[place], _logit(confidence)
        past, fresh = _MEMORY * one.precision, (1 - _MEMORY) * _PRIOR
        slope = (past * one.slope + fresh) / (past + fresh)
        chance = _sigmoid(slope * odds)
        # Where a sure guess was wrong the curvature is small and the step long; the bounds are for that.
        one.precision = past + fresh + chance * (1 - chance) * odds * odds
        slope -= (chance - right) * odds / one.precision
        one.slope = min(max(slope, 1 / _FLATTEST), 1 / _SHARPEST)


def _sigmoid(odds: float) -> float:
    return 1 / (1 + math.exp(-odds))


def _logit(confidence: float) -> float:
    # A confidence that is no number counts as none.
    bounded = min(max(confidence, _NEAREST), 1 - _NEAREST) if confidence == confidence else 0.5
    return math.log(bounded / (1 - bounded))
