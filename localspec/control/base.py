"""Controllers: how much to draft, decided anew before every step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from localspec.types import Advice, Budget, Draft, StepStats


class Controller(Advice, Protocol):
    """Policy of draft length. `budget` 0 means: do not draft. Drafters get it as their advice."""

    @property
    def reason(self) -> str:
        """Why it decides as it does, in words for the panel."""

    def budget(self, tokens: Sequence[int]) -> Budget:
        """How much may be drafted after `tokens`."""

    def trim(self, draft: Draft) -> Draft:
        """The part of a draft that is worth verifying."""

    def update(self, stats: StepStats) -> None:
        """Learn from a step."""

    def begin(self) -> None:
        """A new reply begins: what was learnt may be of another topic."""


class NoAdvice:
    """Advice of policies that know no costs: draft as much as the budget allows, of the first that can."""

    def more(self, draft: Draft) -> bool:  # noqa: ARG002 - the protocol's argument
        """See `Advice.more`."""
        return True

    def block(self, source: str) -> bool:  # noqa: ARG002 - the protocol's argument
        """See `Advice.block`."""
        return True

    def wants(self, source: str) -> bool:  # noqa: ARG002 - the protocol's argument
        """See `Advice.wants`."""
        return True

    @property
    def looking(self) -> bool:
        """See `Advice.looking`."""
        return False

    def rate(self, draft: Draft) -> float:
        """See `Advice.rate`: any draft is as good as the next."""
        return 1.0 if len(draft) else 0.0

    def prospect(self, source: str) -> float:  # noqa: ARG002 - the protocol's argument
        """See `Advice.prospect`: no better than what there is."""
        return 0.0


class FixedLength(NoAdvice):
    """Always the same draft length, on at most `leaves` branches."""

    def __init__(self, length: int, reason: str = "on", *, leaves: int = 1) -> None:
        self._budget = Budget(length, leaves)
        self.reason = reason

    def budget(self, tokens: Sequence[int]) -> Budget:  # noqa: ARG002 - the protocol's argument
        """The fixed length."""
        return self._budget

    def trim(self, draft: Draft) -> Draft:
        """The draft as it is."""
        return draft

    def update(self, stats: StepStats) -> None:
        """Learn nothing."""

    def begin(self) -> None:
        """Nothing to forget."""


class LengthPolicy(NoAdvice):
    """What policies have in common that choose nothing but a length, and learn across replies.

    Attributes:
        length: draft tokens of the next step.
        reason: see `Controller`.
    """

    def __init__(self, length: int, reason: str, leaves: int) -> None:
        self.length = length
        self.reason = reason
        self.leaves = leaves

    def budget(self, tokens: Sequence[int]) -> Budget:  # noqa: ARG002 - the protocol's argument
        """The present length."""
        return Budget(self.length, self.leaves)

    def trim(self, draft: Draft) -> Draft:
        """The draft as it is."""
        return draft

    def begin(self) -> None:
        """Keep what was learnt: these policies know no replies."""


class Off(FixedLength):
    """Plain decoding."""

    def __init__(self, reason: str = "off") -> None:
        super().__init__(0, reason)
