"""SGLang's `throughput_aware` policy: the tier that promises most tokens for its time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from localspec.control.base import LengthPolicy
from localspec.control.live_cost import LiveCost
from localspec.control.tiers import fitting_tiers
from localspec.types import StepStats

TIERS = (1, 3, 5, 7)
WINDOW = 20
"""Drafts over which acceptance by position is averaged."""
INTERVAL = 10
"""Drafts between decisions."""
MARGIN = 0.1
"""How much more another tier must promise."""
_FOLLOW = 0.2


class ThroughputTiers(LengthPolicy):
    """Chooses the tier S with the most (1 + p_1 + ... + p_S) / cost(S).

    p_k is the share of the last `WINDOW` drafts in which at least k tokens were accepted; positions that were
    not drafted lately are extrapolated geometrically. The cost is that of a pass over 1 + S tokens and of the
    draft. SGLang's has no tier 0, so it never switches itself off. Only steps with a draft count, each for
    the positions that its draft reached.

    Args:
        cost: T(n), which it keeps up to date.
        tiers: draft lengths, 1 or more.
        longest: draft tokens a step at most.
        leaves: branches at most.
    """

    def __init__(
        self, cost: LiveCost, tiers: Sequence[int] = TIERS, *, longest: int, leaves: int = 1
    ) -> None:
        self.cost = cost
        self.tiers = fitting_tiers(tiers, longest)
        start = longest if longest in self.tiers else self.tiers[len(self.tiers) // 2]
        super().__init__(start, f"tier {start}: too early to tell", leaves)
        self._seen = [deque[bool](maxlen=WINDOW) for _ in range(self.tiers[-1])]
        self._drafts = 0
        self._draft_s = 0.0

    def update(self, stats: StepStats) -> None:
        """Count acceptance by position; every `INTERVAL` drafts decide, once all windows are full."""
        self.cost.observe(stats.drafted + 1, stats.verify_ns * 1e-9)
        if not stats.drafted:
            return
        self._draft_s += _FOLLOW * (stats.draft_ns * 1e-9 - self._draft_s)
        for place in range(min(stats.positions, self.length)):
            self._seen[place].append(stats.accepted > place)
        self._drafts += 1
        if self._drafts % INTERVAL == 0 and all(len(seen) == WINDOW for seen in self._seen[: self.length]):
            self._decide()

    def score(self, tier: int) -> float:
        """Tokens that drafts of `tier` promise a unit of time."""
        spent = self.cost(1 + tier) + (self._draft_s if self.cost.known else 0.0)
        return (1 + sum(self._rates(tier))) / spent

    def _decide(self) -> None:
        before, present = self.length, self.score(self.length)
        best = max(self.tiers, key=self.score)
        reached = self.score(best)
        if best == before or reached <= present * (1 + MARGIN):
            return
        self.length = best
        for seen in self._seen[best:]:
            seen.clear()
        self.reason = f"tier {before} -> {best}: promises {reached / present:.2f} times the tokens a second"

    def _rates(self, tier: int) -> list[float]:
        rates: list[float] = []
        for seen in self._seen[:tier]:
            rates.append(sum(seen) / len(seen) if seen else _continued(rates))
        return rates


def _continued(rates: Sequence[float]) -> float:
    """The next rate of a geometric series through the first and the last."""
    if len(rates) < 2 or rates[0] <= 0:
        return rates[0] if rates else 0.0
    ratio: float = (rates[-1] / rates[0]) ** (1 / (len(rates) - 1))
    return min(rates[-1], rates[-1] * ratio)
