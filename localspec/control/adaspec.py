"""AdaSpec's policy (arXiv 2503.05096): goodput, predicted from the drafter's own confidence."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.control.base import NoAdvice
from localspec.control.estimates import AcceptanceEstimates
from localspec.control.live_cost import LiveCost
from localspec.types import EMPTY_DRAFT, Budget, Draft, StepStats

_FOLLOW = 0.1
_START = 0.7


class ConfidenceGoodput(NoAdvice):
    """Verifies as much of a draft as promises most tokens for its time, going by confidence alone.

    Token after token: with the confidence of those before and the mean confidence for the next one, its
    goodput (1 + sum of the products of confidence) / T(1 + k) is predicted; the first that would be less than
    what there is ends the draft, and so does plain decoding's. Then the longest of the best is taken by the
    true confidence. A draft model is stopped where the predicted goodput falls; other drafters propose at
    once, so for them the choice saves passes, not drafting.

    A draft without confidence has in its place what matches of its length are usually worth (the prior of
    `AcceptanceEstimates`). Nothing is learnt from what is accepted: that is the method's weakness where a
    drafter's confidence is not calibrated, and what the cost controller adds.

    Args:
        cost: T(n), which it keeps up to date.
        longest: draft tokens at most.
        leaves: branches at most.
    """

    def __init__(self, cost: LiveCost, *, longest: int, leaves: int = 1) -> None:
        self.cost = cost
        self.mean = _START
        self.reason = "on, as long as confidence promises"
        self._budget = Budget(longest, leaves)
        self._confidence = AcceptanceEstimates()

    def budget(self, tokens: Sequence[int]) -> Budget:  # noqa: ARG002 - the protocol's argument
        """As much as is allowed: confidence is known only once there is a draft."""
        return self._budget

    def more(self, draft: Draft) -> bool:
        """Whether one more token, of mean confidence, raises the goodput of a draft in the making."""
        size = len(draft)
        survival = draft.confidence[-1] if size else 1.0
        expected = 1.0 + sum(draft.confidence)
        ahead = (expected + survival * self.mean) / self.cost(size + 2)
        return ahead >= expected / self.cost(size + 1)

    def trim(self, draft: Draft) -> Draft:
        """The beginning of `draft` of the highest goodput; empty where plain decoding's is higher."""
        if not len(draft):
            return draft
        survival = self._confidence.survival(draft)
        length = self._best(draft, survival)
        for place, parent in zip(survival, draft.parents, strict=True):
            own = place / survival[parent] if parent >= 0 else place
            self.mean += _FOLLOW * (own - self.mean)
        return draft.prefix(length) if length else EMPTY_DRAFT

    def update(self, stats: StepStats) -> None:
        """Learn what the step cost."""
        self.cost.observe(stats.drafted + 1, stats.verify_ns * 1e-9)

    def begin(self) -> None:
        """Keep what was learnt: the method knows no replies."""

    def _best(self, draft: Draft, survival: Sequence[float]) -> int:
        cost = self.cost
        plain = 1 / cost(1)
        best_rate, best = plain, 0
        expected, rate = 1.0, plain
        for node, (chance, parent) in enumerate(zip(survival, draft.parents, strict=True)):
            before = survival[parent] if parent >= 0 else 1.0
            spent = cost(node + 2)
            if (expected + before * self.mean) / spent < rate:
                break
            expected += chance
            rate = expected / spent
            if rate >= best_rate:
                best_rate, best = rate, node + 1
        if best:
            self.reason = f"on: confidence promises {best_rate / plain:.2f}x with {best} tokens"
        else:
            self.reason = f"no draft: confidence {survival[0]:.0%}, mean {self.mean:.0%}"
        return best
