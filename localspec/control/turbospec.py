"""TurboSpec's policy (arXiv 2406.14066): the length of the highest goodput at the recent acceptance."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from localspec.control.base import LengthPolicy
from localspec.control.live_cost import LiveCost
from localspec.stats.theory import expected_tokens
from localspec.types import Budget, StepStats

WINDOW = 20
"""Drafts over which acceptance is averaged."""
PLAIN_FAVOUR = 1.1
"""How much more than plain decoding a draft must promise."""
WARM_UP = 5
"""Drafts of the full length before the first decision."""
PROBE = 20
"""Plain steps after which one draft token is tried again."""


class Goodput(LengthPolicy):
    """Drafts k tokens with the most (1 - alpha^(k+1)) / (1 - alpha) / T(1 + k), or none.

    Alpha is the share of the looked-at tokens of the last `WINDOW` drafts that were accepted; confidence is
    not used. So that drafting can start again once it is off, one token is drafted after `PROBE` plain steps.

    Args:
        cost: T(n), which it keeps up to date.
        longest: draft tokens at most.
        leaves: branches at most.
    """

    def __init__(self, cost: LiveCost, *, longest: int, leaves: int = 1) -> None:
        super().__init__(longest, "on: too early to tell", leaves)
        self.cost = cost
        self._longest = longest
        self._seen = deque[tuple[int, int]](maxlen=WINDOW)
        self._plain = 0

    def budget(self, tokens: Sequence[int]) -> Budget:
        """The length of the highest goodput."""
        if not self.length and self._plain >= PROBE:
            return Budget(1)
        return super().budget(tokens)

    def update(self, stats: StepStats) -> None:
        """Count what was accepted of what was looked at, and choose anew."""
        self.cost.observe(stats.drafted + 1, stats.verify_ns * 1e-9)
        self._plain = 0 if stats.drafted else self._plain + 1
        if not stats.drafted:
            return
        self._seen.append((stats.accepted, stats.accepted + (stats.kind == "correction")))
        if len(self._seen) >= WARM_UP:
            self._decide()

    @property
    def acceptance(self) -> float:
        """Alpha over the window; 0 before the first draft."""
        asked = sum(reached for _, reached in self._seen)
        return sum(accepted for accepted, _ in self._seen) / asked if asked else 0.0

    def _decide(self) -> None:
        alpha, one = self.acceptance, self.cost(1)
        best_rate, best = PLAIN_FAVOUR, 0
        for length in range(1, self._longest + 1):
            rate = expected_tokens(alpha, length) * one / self.cost(1 + length)
            if rate > best_rate:
                best_rate, best = rate, length
        self.length = best
        if best:
            self.reason = f"on: {best} tokens promise {best_rate:.2f}x at an acceptance of {alpha:.0%}"
        else:
            self.reason = f"off: at an acceptance of {alpha:.0%} no length promises {PLAIN_FAVOUR}x"
