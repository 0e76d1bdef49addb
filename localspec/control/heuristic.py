"""The heuristic of transformers' assisted generation: two more after full acceptance, else one less."""

from __future__ import annotations

from localspec.control.base import LengthPolicy
from localspec.types import Draft, StepStats

START = 5
UP = 2
DOWN = 1
CONFIDENCE = 0.4
"""A draft model stops after a token that it gave a lower probability."""


class Heuristic(LengthPolicy):
    """A length that grows by two when all of it was accepted and shrinks by one, to 1 at least, when not.

    Steps without a draft leave it as it is; a draft that was shorter than the length counts as not all.

    Args:
        start: the first length.
        longest: draft tokens at most; transformers has no such limit.
        leaves: branches at most.
    """

    def __init__(self, start: int = START, *, longest: int, leaves: int = 1) -> None:
        length = min(start, longest)
        super().__init__(length, f"on, {length} draft tokens to begin with", leaves)
        self._longest = longest

    def more(self, draft: Draft) -> bool:
        """Stop a draft model that is not sure of its last token."""
        if not draft.confidence:
            return True
        before = draft.confidence[-2] if len(draft) > 1 else 1.0
        return draft.confidence[-1] >= CONFIDENCE * before

    def update(self, stats: StepStats) -> None:
        """Longer or shorter."""
        if not stats.drafted:
            return
        before = self.length
        if stats.accepted == before:
            self.length = min(before + UP, self._longest)
        else:
            self.length = max(before - DOWN, 1)
        if self.length != before:
            self.reason = f"length {before} -> {self.length}: {stats.accepted} accepted"
