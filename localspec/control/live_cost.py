"""T(n) while it is used: a curve that was measured before, corrected by the passes that are made."""

from __future__ import annotations

import math
from collections import Counter

from localspec.cost import CostCurve

_FOLLOW = 0.2
"""Weight of the newest pass: a neighbour that takes a core shows within some ten passes."""
_LEARN = 0.1
_ENOUGH = 8
"""Passes of each kind from which on it is known what preparing for another width takes."""
_MOST_CHANGE = 0.5
"""Preparing for another width is taken for this share of T(1) at most."""
_OUTLIER = 8.0
"""A pass that took so many times what was expected was a pause (a suspended laptop), not a cost."""
_PERSISTENT = 3
"""So many of them in a row are no pause: that is what passes take now."""


class _Deviation:
    """A mean in which the newest counts most."""

    def __init__(self) -> None:
        self.mean = 1.0
        self.seen = 0

    def add(self, value: float) -> None:
        self.seen += 1
        self.mean += max(_LEARN, 1 / self.seen) * (value - self.mean)


class LiveCost:
    """Seconds of a target pass over n tokens.

    The shape of the curve is corrected width by width, its height by every pass: with more text in the cache,
    or with another program at work, all widths get slower alike. A pass of another width than the one before
    it takes longer, since the engine prepares anew: that is learnt by itself, from passes over one token.

    Args:
        curve: T(n) as measured; its unit does not matter.
        one: seconds of a pass over one token, where they are known.

    Attributes:
        drafting: seconds of a pass of drafters that make passes of their own, by source, as last seen.
    """

    def __init__(self, curve: CostCurve, one: float | None = None) -> None:
        self._scale: float | None = None
        self._outliers = 0
        self._last: int | None = None
        # Passes over one token against what was expected: after another width, and after their own.
        self._moved, self._stayed = _Deviation(), _Deviation()
        self.drafting: dict[str, float] = {}
        self.use(curve, one)

    def use(self, curve: CostCurve, one: float | None = None) -> None:
        """Go on with another curve.

        Args:
            curve: T(n), in the unit of the curve before unless `one` is given.
            one: seconds of a pass over one token; None keeps the height that passes have shown.
        """
        self._curve = curve
        if one is not None:
            self._scale = one / curve(1)
        self._shape: dict[int, float] = {}
        self._table: list[float] = []
        self._seen: Counter[int] = Counter()

    @property
    def known(self) -> bool:
        """Whether seconds are known; until then everything is in units of T(1)."""
        return self._scale is not None

    @property
    def width(self) -> int | None:
        """Tokens of the newest pass that was taken in."""
        return self._last

    @property
    def height(self) -> float:
        """Seconds now for each unit of the curve; what makes T(1) the unit before the first pass."""
        return self._scale if self._scale is not None else 1.0 / self._curve(1)

    def __call__(self, tokens: int) -> float:
        """Seconds of a pass over `tokens` now; in units of T(1) before the first pass."""
        return self.height * self._shaped(tokens)

    def up_to(self, tokens: int) -> list[float]:
        """`self(n)` for n = 1 to `tokens`."""
        table, height = self._table, self.height
        while len(table) < tokens:
            table.append(self._shaped(len(table) + 1))
        return [height * cost for cost in table[:tokens]]

    def moving(self, tokens: int) -> float:
        """What a pass over `tokens` costs beyond T(n) because of the widths before and after it.

        Preparing for another width than that of the last pass; and from plain decoding, to which it goes back
        sooner or later, the way back too.
        """
        if tokens == self._last or self._last is None:
            return 0.0
        return self._change * self.height * self._curve(1) * (2.0 if self._last == 1 else 1.0)

    @property
    def _change(self) -> float:
        """Share of T(1) that preparing for another width takes; 0 until passes of both kinds were seen."""
        if min(self._moved.seen, self._stayed.seen) < _ENOUGH:
            return 0.0
        return min(max(self._moved.mean - self._stayed.mean, 0.0), _MOST_CHANGE)

    def refined(self, least: int) -> dict[int, float]:
        """T(n) of the widths of which `least` passes were seen since the last `use`, in the curve's unit."""
        return {n: self._shaped(n) for n, count in sorted(self._seen.items()) if count >= least}

    def observe(self, tokens: int, seconds: float) -> None:
        """Take in a pass that was made; times that cannot be (a clock set back) are passed over."""
        if not (math.isfinite(seconds) and seconds > 0):
            return
        plain = self._shaped(tokens)
        changed, self._last = self._last not in (None, tokens), tokens
        if self._scale is None:
            self._scale = seconds / plain
            return
        ratio = seconds / (self._scale * plain)
        if tokens == 1 and 1 / _OUTLIER <= ratio <= _OUTLIER:
            (self._moved if changed else self._stayed).add(ratio)
        if changed:
            # The rest is what the pass itself took.
            ratio = max(ratio - self._change * self._curve(1) / plain, ratio / 2)
        if not 1 / _OUTLIER <= ratio <= _OUTLIER:
            self._outliers += 1
            if self._outliers >= _PERSISTENT:
                self._scale *= ratio
                self._outliers = 0
            return
        self._outliers = 0
        self._seen[tokens] += 1
        self._scale *= ratio**_FOLLOW
        if tokens > 1:
            # What the height does not explain is the shape of this width.
            self._shape[tokens] = self._shape.get(tokens, 1.0) * ratio ** (_LEARN * (1 - _FOLLOW))
            if tokens <= len(self._table):
                self._table[tokens - 1] = self._shaped(tokens)

    def _shaped(self, tokens: int) -> float:
        return self._curve(tokens) * self._shape.get(tokens, 1.0)
