"""SGLang's `ema` policy: a few draft lengths, of which a running mean of accepted tokens picks one."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.control.base import LengthPolicy
from localspec.control.tiers import fitting_tiers
from localspec.types import StepStats

TIERS = (1, 3, 5, 7)
"""SGLang's for one sequence."""
WEIGHT = 0.2
WARM_UP = 10
"""Steps before the first decision."""
INTERVAL = 5
"""Steps between decisions."""
UP = 0.0
DOWN = -0.25


class EmaTiers(LengthPolicy):
    """Moves between tiers of draft length by an exponential moving average of the accepted tokens.

    Down while the average is at most three quarters of a token below the next lower tier (0.25 where that is
    0), else up while it is above half a token below the present one. A tier of 0 switches drafting off: the
    average then stands still, and with the next decision the lowest tier above it is tried. Steps for which
    the drafter had nothing tell nothing about length and do not count, except at tier 0.

    Args:
        tiers: draft lengths; 0 among them lets it switch drafting off.
        longest: draft tokens a step at most.
        leaves: branches at most.
    """

    def __init__(self, tiers: Sequence[int] = TIERS, *, longest: int, leaves: int = 1) -> None:
        self.tiers = fitting_tiers(tiers, longest)
        # SGLang starts at the configured length where it is a tier.
        start = longest if longest in self.tiers else self.tiers[len(self.tiers) // 2]
        super().__init__(start, f"tier {start}: too early to tell", leaves)
        self.average = float(start - 1)
        self._steps = 0

    def update(self, stats: StepStats) -> None:
        """Average the accepted tokens; after warm-up, decide every `INTERVAL` steps."""
        if self.length and not stats.drafted:
            return
        if self.length:
            self.average += WEIGHT * (stats.accepted - self.average)
        self._steps += 1
        past = self._steps - WARM_UP
        if past > 0 and past % INTERVAL == 0:
            self._decide()

    def _decide(self) -> None:
        before, place = self.length, self.tiers.index(self.length)
        if before == 0:
            self.length = self.tiers[min(1, len(self.tiers) - 1)]
            if self.average < 0:
                # It began at tier 0: nothing was accepted or refused yet.
                self.average = float(self.length - 1)
            self._say(before, "to see whether drafts are accepted now")
            return
        while place > 0 and self.average <= (limit := _down(self.tiers[place - 1])):
            place -= 1
            self._say(before, f"{self.average:.1f} accepted <= {limit:.2f}", self.tiers[place])
        if self.tiers[place] == before:
            while place < len(self.tiers) - 1 and self.average > (limit := self.tiers[place] - 0.5 + UP):
                place += 1
                self._say(before, f"{self.average:.1f} accepted > {limit:.1f}", self.tiers[place])
        self.length = self.tiers[place]

    def _say(self, before: int, why: str, after: int | None = None) -> None:
        self.reason = f"tier {before} -> {self.length if after is None else after}: {why}"


def _down(tier: int) -> float:
    """The average at and below which `tier` is enough."""
    return (tier - 0.5 if tier else 0.5) + DOWN
