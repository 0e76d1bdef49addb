"""What drafting with a model costs and brings: a drafter that pays for every token with a pass of its own."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.types import Draft

_PRIOR, _WEIGHT = 0.6, 6.0
"""Acceptance that is expected at first, and the observations that this counts as."""
_DECAY = 0.97
"""Weight of an observation relative to the next one."""
_ENOUGH = 8
"""First tokens after which it is known whether drafts come true."""
_TRIAL = 1.0
"""Passes over one token that drafting may take at first, before it is known whether it pays."""
_MORE = 0.005
"""Passes that come back with every step."""
_FOLLOW = 0.2
_OUTLIER = 3.0
"""A draft that took so many times its usual time read text besides: that is no cost of drafting."""
_AHEAD = 16
"""Tokens that are looked ahead: sixteen may cost less than nine."""
_NEGLIGIBLE = 0.01
"""A token that is accepted less often is not looked beyond."""


class _Chance:
    """Acceptance of one kind of token, the newest counting most."""

    def __init__(self) -> None:
        self._right = self._asked = 0.0

    @property
    def seen(self) -> float:
        """Observations, as far as they still count."""
        return self._asked

    def value(self, prior: float) -> float:
        """Its estimate where `prior` was expected."""
        return (self._right + prior * _WEIGHT) / (self._asked + _WEIGHT)

    def learn(self, *, right: bool) -> None:
        self._right = self._right * _DECAY + right
        self._asked = self._asked * _DECAY + 1.0


class DraftPasses:
    """One such drafter.

    Args:
        source: its name.
        seconds: of one of its passes, where that is known.

    Attributes:
        nothing: a draft of its without tokens.
        seconds: of one of its passes; None while that is not known.
        whole: whether one pass makes a whole draft, not one token of it.
        trial: passes of the target over one token that it may still take to become known.
        streak: its newest tokens, as far back as all of them were right.
        met: whether it has been asked for a draft, or will hardly pay in any case.
    """

    def __init__(self, source: str, seconds: float | None = None) -> None:
        self.nothing = Draft(source=source)
        self.seconds = seconds
        self.whole = False
        self.trial = _TRIAL
        self.streak = 0
        self.met = False
        self._first = _Chance()
        self._later = _Chance()

    @property
    def chance(self) -> float:
        """Probability that the first token of a draft is accepted."""
        return self._first.value(_PRIOR)

    @property
    def known(self) -> bool:
        """Whether enough was compared to go by it."""
        return self.seconds is not None and self._first.seen >= _ENOUGH

    def learn(self, *, first: bool, right: bool) -> None:
        """A draft token was compared with what was said."""
        self.streak = self.streak + 1 if right else 0
        (self._first if first else self._later).learn(right=right)

    def step(self, steps: int) -> None:
        """Some steps went by."""
        self.trial = min(self.trial + steps * _MORE, _TRIAL)

    def took(self, seconds: float, passes: int) -> float:
        """So many passes took so long; returns the seconds that one is taken to last now."""
        each = seconds / passes
        before = each if self.seconds is None else self.seconds
        # One that has read text besides, or was on another device, is not believed for long.
        before = min(before, max(_OUTLIER * each, before / 2))
        self.seconds = before + _FOLLOW * (min(each, _OUTLIER * before) - before)
        return self.seconds

    def best_ahead(
        self, draft: Draft, survival: Sequence[float], costs: Sequence[float], most: float
    ) -> tuple[float, float]:
        """Rates, in tokens a unit of time, of stopping at the best place so far and of going on to a better.

        What the draft has taken is spent either way.

        Args:
            draft: as far as it is.
            survival: of its tokens.
            costs: T(n) for n = 1 and on, in the unit of `seconds`.
            most: cost of a pass and of drafting for it beyond which there is none.
        """
        made, each = len(draft), self.seconds or 0.0
        expected, reach = 1.0, survival[-1] if survival else 1.0
        taken = each * (min(made, 1) if self.whole else made)
        here = 1.0 / (taken + costs[0])
        for length, chance in enumerate(survival, start=1):
            expected += chance
            here = max(here, expected / (taken + costs[length]))
        there, first = 0.0, self.chance
        # What is not known of later tokens is taken from the first ones.
        later = self._later.value(first)
        for length in range(made + 1, min(made + _AHEAD, len(costs) - 1) + 1):
            reach *= later if length > 1 else first
            expected += reach
            spent = each * (1 if self.whole else length) + costs[length]
            if spent <= most:
                there = max(there, expected / spent)
            if reach < _NEGLIGIBLE:
                break
        return here, there

    def price(self, one: float) -> str:
        """Why it is not asked, behind a comma: what its tokens cost, and how often the first one comes true.

        Args:
            one: seconds of a pass of the target over one token.
        """
        if self.seconds is None:
            return ""
        each = self.seconds / one
        return f", a draft token takes {each:.2f} passes: acceptance {100 * self.chance:.0f} % does not pay"

    def tried(self, passes: float) -> None:
        """To become known it has taken so many passes of the target."""
        self.trial = max(self.trial - passes, -_TRIAL)

    def may_pay(
        self, costs: Sequence[float], chance: float, *, whole: bool = False, least: float = 1.0
    ) -> bool:
        """Whether some draft would be faster than none if every token were accepted with this `chance`.

        Args:
            costs: T(n) for n = 1 and on, in the unit of `seconds`.
            chance: of a token once all before it were accepted.
            whole: whether one pass may make a whole draft, where that is not known yet.
            least: how many times as fast.
        """
        whole = whole or self.whole
        each, expected, reach = self.seconds or 0.0, 1.0, 1.0
        for length, cost in enumerate(costs[1 : _AHEAD + 1], start=1):
            reach *= chance
            expected += reach
            if expected * costs[0] > least * (each * (1 if whole else length) + cost):
                return True
        return False
