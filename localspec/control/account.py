"""What drafts have gained and may lose, in passes over one token."""

from __future__ import annotations

START = 1.0
"""Passes over one token that may be lost before anything was gained."""

_DEBT = 4.0
"""Passes that drafts which were only looked at may have lost at most, and have to make good."""
_CREDIT = 16.0
"""Passes that past gains may be worth: what they allow to be lost once the text has changed."""
_LEAP = 2.0
"""Passes beyond the account that a draft may cost which is likely to be accepted, at most."""
_SHARE = 0.25
"""Share of the account that a draft may lose on average."""
_PROOF = 2.5
"""Passes that drafts which were only looked at may bring it to."""
_RECOVERY = 0.002
"""Passes of what was lost that come back with every step."""


class Account:
    """Bounds what drafting may lose against plain decoding, whatever the text.

    Attributes:
        passes: what may be lost now; at or below zero speculation pauses.
    """

    def __init__(self) -> None:
        self.passes = START

    @property
    def empty(self) -> bool:
        """Whether nothing may be lost."""
        return self.passes <= 0

    @property
    def earned(self) -> bool:
        """Whether more may be lost than was given at first."""
        return self.passes > START

    def stakes(self, chance: float) -> tuple[float, float]:
        """Passes that a draft may cost whose first token has the probability `chance`.

        A share of what the account holds may be lost on average; and not more than all of it, or a leap
        beyond it, however sure the draft is.

        Returns:
            What it may cost, and what it may where nothing that pays costs so little: a leap beyond the
            account.
        """
        if self.empty:
            return 0.0, 0.0
        # The more was gained, or would have been, the further.
        leap = min(max(self.passes - START / 2, 0.0), _LEAP)
        average = _SHARE * self.passes / max(1.0 - chance, 1e-9)
        return min(average, self.passes), min(average, self.passes + leap)

    def book(self, gained: float) -> None:
        """A draft has gained so many passes, or lost them."""
        self.passes = min(max(self.passes + gained, -_DEBT), _CREDIT)

    def look(self, gained: float) -> None:
        """A draft that was only looked at would have gained so many passes, or lost them.

        Nothing was lost, so it leaves no debt: speculation pauses, and goes on once drafts come true.
        """
        least = min(self.passes, 0.0)
        self.book(max(min(gained, max(_PROOF - self.passes, 0.0)), least - self.passes))

    def recover(self, steps: int) -> None:
        """Some steps went by: what was lost comes back slowly, up to what was given at first."""
        if self.passes < START:
            self.passes = min(self.passes + steps * _RECOVERY, START)
