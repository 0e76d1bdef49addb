"""T(n) while it is used: a curve that was measured before, corrected by the passes that are made."""

from __future__ import annotations

from localspec.cost import CostCurve

_FOLLOW = 0.2
"""Weight of the newest pass: a neighbour that takes a core shows within some ten passes."""
_LEARN = 0.1
_OUTLIER = 8.0
"""A pass that took so many times what was expected was a pause (a suspended laptop), not a cost."""


class LiveCost:
    """Seconds of a target pass over n tokens.

    The shape of the curve is corrected width by width, its height by every pass: with more text in the cache,
    or with another program at work, all widths get slower alike.

    Args:
        curve: T(n) as measured; its unit does not matter.
        one: seconds of a pass over one token, where they are known.
    """

    def __init__(self, curve: CostCurve, one: float | None = None) -> None:
        self._curve = curve
        self._scale = one / curve(1) if one else None
        self._shape: dict[int, float] = {}

    @property
    def known(self) -> bool:
        """Whether seconds are known; until then everything is in units of T(1)."""
        return self._scale is not None

    def __call__(self, tokens: int) -> float:
        """Seconds of a pass over `tokens` now; in units of T(1) before the first pass."""
        height = self._scale if self._scale is not None else 1.0 / self._curve(1)
        return height * self._curve(tokens) * self._shape.get(tokens, 1.0)

    def observe(self, tokens: int, seconds: float) -> None:
        """Take in a pass that was made."""
        if seconds <= 0:
            return
        plain = self._curve(tokens) * self._shape.get(tokens, 1.0)
        if self._scale is None:
            self._scale = seconds / plain
            return
        ratio = seconds / (self._scale * plain)
        if ratio > _OUTLIER:
            return
        self._scale *= ratio**_FOLLOW
        if tokens > 1:
            # What the height does not explain is the shape of this width.
            self._shape[tokens] = self._shape.get(tokens, 1.0) * ratio ** (_LEARN * (1 - _FOLLOW))
