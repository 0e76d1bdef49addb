"""Plain decoding as a drafter: it never proposes anything."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.drafters.base import Needs
from localspec.types import EMPTY_DRAFT, Budget, Draft, Outcome


class NoDrafter:
    """Always the empty draft."""

    name = "none"
    needs = Needs.TOKENS
    remembers = False

    def begin(self, tokens: Sequence[int]) -> None:
        """Nothing to prepare."""

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:  # noqa: ARG002 - the protocol's
        """The empty draft."""
        return EMPTY_DRAFT

    def commit(self, outcome: Outcome) -> None:
        """Nothing to learn."""

    def close(self) -> None:
        """Nothing to free."""
