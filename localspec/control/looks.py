"""What is spent on drafts that are only looked at."""

from __future__ import annotations

_MOST = 8.0
"""Passes that are owed at most: one look while the machine was busy or asleep must not be the last."""


class Looks:
    """A share of all time for them; what a look takes beyond it has to pass before the next one.

    Args:
        share: of the time of passes over one token.
        credit: passes that may be saved up, and that it begins with.
    """

    def __init__(self, share: float, credit: float = 0.0) -> None:
        self._share = share
        self._credit = credit
        self._owed = -credit

    @property
    def due(self) -> bool:
        """Whether the last look is paid for."""
        return self._owed <= 0

    def step(self, passes: float, steps: int = 1) -> None:
        """Some steps went by, with looks that took as long as so many passes over one token."""
        self._owed = min(max(self._owed + passes - steps * self._share, -self._credit), _MOST)
