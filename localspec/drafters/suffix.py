"""Suffix decoding: continue as the same words were continued before, here and in earlier replies.

After Oliaro et al., "SuffixDecoding", arXiv 2411.04975 (`suffix_arctic` is the published algorithm to the
letter). Differences: places vote with weights that grow with the length of their match, instead of one length
being chosen; and how likely a token is to be accepted is estimated from match length and votes by a formula
that was fitted to recorded replies, instead of being the bare share of the votes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.base import Needs
from localspec.drafters.suffix_few import MOST, FewVotes, local_votes, remembered_votes
from localspec.drafters.suffix_votes import (
    LOCAL,
    MOST_RECENT_FIRST,
    REMEMBERED,
    SATURATED,
    Ballot,
    grown,
)
from localspec.memory.index import MEMORY_ORDERS, ORDERS, Places, TextIndex, Tokens
from localspec.types import EMPTY_DRAFT, Budget, Draft, Outcome

if TYPE_CHECKING:
    from localspec.memory.memory import Memory

PLACES = 48
"""Newest places that are looked at for each number of trailing tokens."""

REACH = 32
"""Trailing tokens that are compared; longer matches count as this."""

FLOOR = 0.05
"""A token that survives less often than this is not proposed."""

_UNREAD = 64
"""Verified tokens that wait at most until they are indexed."""


@dataclass(frozen=True, slots=True)
class _Found:
    """Places in one source, newest first, with the lengths of their matches and their weights."""

    places: Places
    lengths: NDArray[np.int64]
    weights: NDArray[np.float64]


class SuffixDrafter:
    """Finds where the trailing tokens stood before, lets the places vote, and copies on from the best one.

    Two sources are searched: the present text (prompt and reply) and the memory of earlier replies. The
    newest places after the last four tokens, in the present text also those after the last two, are compared
    backwards with it (two tokens that were once said somewhere predict next to nothing). A place weighs twice
    as much for every further token that matches, up to 16, and 3 % less for every newer place. The first
    token drafted is the one with the most weight; its heaviest place is copied on from, and other places go
    on voting as long as they say the same. The source that promises more accepted tokens wins; of equals, the
    present text.

    A draft's confidence is cumulative, see `suffix_votes.Reliability`. Its source is "suffix", or
    "suffix-memory" where it is from the memory.

    Args:
        memory: earlier replies; None drafts from the present text alone.
    """

    name = "suffix"
    needs = Needs.TOKENS
    remembers = True

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory
        self._text = TextIndex()
        self._unread: list[int] = []

    def begin(self, tokens: Sequence[int]) -> None:
        """Index the prompt; only what is new where it goes along with what is known."""
        self._unread.clear()
        self._text.begin(tokens)

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:  # noqa: ARG002 - it keeps its own text
        """See `Drafter.propose`."""
        self._read()
        if len(self._text) <= min(ORDERS):
            return EMPTY_DRAFT
        tail = self._text.tokens[-REACH:]
        tree = budget.leaves > 1
        found = (source(tail, budget.tokens, tree=tree) for source in (self._local, self._remembered))
        ballots = [ballot for ballot in found if ballot is not None]
        if not ballots:
            return EMPTY_DRAFT
        # The first of equals: the present text.
        best = max(ballots, key=lambda ballot: ballot.score)
        if tree and isinstance(best, Ballot):
            return grown(best, budget, FLOOR)
        return best.chain(FLOOR)

    def follow(self, drafted: Sequence[int], budget: Budget) -> Draft:
        """What follows the text and then `drafted`, tokens of another drafter."""
        self._read()
        size = len(self._text)
        self._text.extend(drafted)
        try:
            return self.propose((), budget)
        finally:
            self._text.cut(size)

    def commit(self, outcome: Outcome) -> None:
        """Append the verified tokens."""
        # A pass empties the caches: several tokens at once take less than one by one.
        self._unread += outcome.tokens
        if len(self._unread) >= _UNREAD:
            self._read()

    def close(self) -> None:
        """Forget the present text."""
        self._unread.clear()
        self._text = TextIndex()

    def _read(self) -> None:
        """Index what was verified since the last time."""
        if self._unread:
            self._text.extend(self._unread)
            self._unread.clear()

    # --- sources

    def _local(self, tail: Tokens, count: int, *, tree: bool) -> Ballot | FewVotes | None:
        text = self._text
        few = text.newest(min(ORDERS), MOST + 1)
        if not few:
            return None
        if len(few) <= MOST and not tree:
            # Those of longer matches are among them.
            return local_votes(text.tokens, few, tail.tolist(), count, self.name)
        places = [text.places(order, PLACES) for order in ORDERS]
        found = _compared(text.tokens, tail, places, min(ORDERS))
        if found is None:
            return None
        leader = _leader(text.tokens[found.places], found.weights)
        start = int(found.places[leader])
        # Past the end of the text the copy goes on with itself: a text that repeats, repeats.
        known = text.tokens[start : start + count]
        copied = known if len(known) == count else np.resize(known, count)
        whole = text.continued(copied)
        steps = np.arange(count)
        return Ballot(
            continuations=whole[found.places[:, None] + steps],
            lengths=found.lengths,
            weights=found.weights,
            leader=leader,
            reliability=LOCAL,
            source=self.name,
        )

    def _remembered(self, tail: Tokens, count: int, *, tree: bool) -> Ballot | FewVotes | None:
        if self._memory is None or not len(self._memory.index):
            return None
        index = self._memory.index
        trailing = tail[-max(MEMORY_ORDERS) :].tolist()
        places = [index.places(trailing, order, PLACES) for order in MEMORY_ORDERS]
        source = f"{self.name}-memory"
        if len(places) == 1 and len(places[0]) <= MOST and not tree:
            known, least = places[0].tolist(), min(MEMORY_ORDERS)
            return remembered_votes(index.tokens, known, tail.tolist(), count, source, least)
        found = _compared(index.tokens, tail, places, min(MEMORY_ORDERS))
        if found is None:
            return None
        tokens = index.tokens
        where = found.places[:, None] + np.arange(count)
        continuations = tokens[np.minimum(where, len(tokens) - 1)]
        # What lies beyond a document's end is another document's.
        beyond = (where >= len(tokens)) | (continuations < 0)
        continuations[np.logical_or.accumulate(beyond, axis=1)] = -1
        return Ballot(
            continuations=continuations,
            lengths=found.lengths,
            weights=found.weights,
            leader=_leader(continuations[:, 0], found.weights),
            reliability=REMEMBERED,
            source=source,
        )


def _compared(tokens: Tokens, tail: Tokens, places: Sequence[Places], least: int) -> _Found | None:
    """The places before which at least `least` tokens of `tail` stand, with match lengths and weights."""
    given = [some for some in places if len(some)]
    if not given:
        return None
    united = given[0] if len(given) == 1 else np.unique(np.concatenate(given))[::-1]
    before = united[:, None] - np.arange(1, len(tail) + 1)
    # Before the text's beginning there is nothing to match.
    same = (tokens[np.maximum(before, 0)] == tail[::-1]) & (before >= 0)
    lengths = np.where(same.all(axis=1), len(tail), same.argmin(axis=1))
    real = lengths >= least
    if not real.all():
        united, lengths = united[real], lengths[real]
        if not len(united):
            return None
    known = np.minimum(lengths, SATURATED)
    weights = np.exp2(known - known.max()) * MOST_RECENT_FIRST ** np.arange(len(united))
    return _Found(united, lengths, weights)


def _leader(first: Tokens, weights: NDArray[np.float64]) -> int:
    """The heaviest place among those that say the token with the most weight."""
    said, which = np.unique(first, return_inverse=True)
    votes = np.bincount(which, weights, len(said))
    chosen = which == int(votes.argmax())
    return int(np.where(chosen, weights, -math.inf).argmax())
