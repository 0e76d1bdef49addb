"""Which of several places where the same words stood an n-gram draft copies from: the peers' variants.

Every variant keeps one place for every n-gram, and that place is known the moment a token is appended, so a
look-up costs the same for all. What followed how often is counted only for the variants that ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from localspec.errors import UsageError

Pick = Literal["recent", "frequent", "first"]
"""recent: the last place; frequent: that of what followed most often; first: the leftmost, as in vLLM."""

PICKS: tuple[str, ...] = get_args(Pick)

Ngram = tuple[int, ...]


class Places:
    """Chooses the place of each n-gram among those whose next token followed it `min_hits` times or more.

    Args:
        pick: which of them. Of two tokens that followed equally often the one that did so last wins.
        min_hits: times that a token must have followed, at least 1; llama.cpp's `min_hits` is the idea.

    Raises:
        UsageError: no such pick, or fewer than one hit.
    """

    def __init__(self, pick: str = "recent", min_hits: int = 1) -> None:
        check_pick(pick, min_hits)
        self.pick = pick
        self.min_hits = min_hits
        self._hits: dict[Ngram, int] = {}
        self._first: dict[Ngram, int] = {}

    @property
    def is_latest(self) -> bool:
        """Whether it is simply the last place of all, for which nothing need be counted."""
        return self.pick == "recent" and self.min_hits == 1

    def choose(self, log: Sequence[int], length: int, end: int, chosen: int | None) -> int | None:
        """The place of the n-gram of `length` tokens that ends before `end`, now that it stood there too.

        Args:
            log: the text; `log[end]` is the token that followed.
            length: tokens of the n-gram.
            end: position after it. Every place of an n-gram is told once, in ascending order.
            chosen: its place so far, None where no token has followed often enough.
        """
        if self.pick == "first" and self.min_hits == 1:
            return end if chosen is None else chosen
        followed = tuple(log[end - length : end + 1])
        hits = self._hits[followed] = self._hits.get(followed, 0) + 1
        place = self._first.setdefault(followed, end) if self.pick == "first" else end
        if hits < self.min_hits:
            return chosen
        if chosen is None or self.pick == "recent":
            return place
        if self.pick == "first":
            return min(chosen, place)
        # Only what has just been counted can have become the most frequent.
        return end if hits >= self._hits[(*followed[:-1], log[chosen])] else chosen

    def allows(self, log: Sequence[int], length: int, end: int) -> bool:
        """Whether what followed at `end` has followed the n-gram there often enough."""
        return self.min_hits == 1 or self._hits[tuple(log[end - length : end + 1])] >= self.min_hits

    def clear(self) -> None:
        """Forget every place."""
        self._hits.clear()
        self._first.clear()


def check_pick(pick: str, min_hits: int) -> None:
    """Raise `UsageError` for a variant that there is not."""
    if pick not in PICKS:
        raise UsageError(f"There is no n-gram pick '{pick}'; use one of: {', '.join(PICKS)}.")
    if min_hits < 1:
        raise UsageError(
            f"A continuation must have been seen 1 time or more, not {min_hits}; raise min hits."
        )
