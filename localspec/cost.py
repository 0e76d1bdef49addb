"""The cost curve T(n): what one pass of the target over n tokens takes, in seconds or relative to T(1)."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping

from localspec.errors import UsageError


class CostCurve:
    """T(n) between measured points: straight lines between them, and the last slope beyond the last.

    The curve need not rise evenly: kernels have steps (sixteen tokens may cost less than nine). Whoever looks
    for the best length must try every n.

    Args:
        points: cost of a pass by its number of tokens; n = 1 is among them. Any unit.

    Raises:
        UsageError: no cost of one token, or a cost that is no positive number.
    """

    def __init__(self, points: Mapping[int, float]) -> None:
        if 1 not in points:
            raise UsageError("A cost curve needs the cost of a pass over one token; add the point 1.")
        if not all(n >= 1 and math.isfinite(cost) and cost > 0 for n, cost in points.items()):
            raise UsageError("A cost curve has positive costs of passes over 1 or more tokens; correct it.")
        self._sizes = sorted(points)
        self._costs = [float(points[n]) for n in self._sizes]

    @property
    def points(self) -> dict[int, float]:
        """The measured points."""
        return dict(zip(self._sizes, self._costs, strict=True))

    @property
    def longest(self) -> int:
        """The largest measured n."""
        return self._sizes[-1]

    def __call__(self, tokens: int) -> float:
        """T(tokens), in the unit of the points."""
        sizes, costs = self._sizes, self._costs
        place = bisect_left(sizes, tokens)
        if place < len(sizes) and sizes[place] == tokens:
            return costs[place]
        if len(sizes) == 1:
            # One point says nothing about the slope: as if every token cost a pass of its own.
            return costs[0] * tokens
        place = min(max(place, 1), len(sizes) - 1)
        low, high = sizes[place - 1], sizes[place]
        slope = (costs[place] - costs[place - 1]) / (high - low)
        # Noise may make the last slope negative; nothing beyond the last point is cheaper than it.
        return max(costs[place - 1] + slope * (tokens - low), min(costs[place - 1 :]))

    def ratio(self, tokens: int) -> float:
        """T(tokens)/T(1)."""
        return self(tokens) / self._costs[0]

    def scaled(self, factor: float) -> CostCurve:
        """The same curve in another unit."""
        return CostCurve({n: cost * factor for n, cost in self.points.items()})
