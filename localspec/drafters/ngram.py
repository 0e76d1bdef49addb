"""N-gram drafting (prompt lookup): copy what followed the same words before.

Saxena, "Prompt Lookup Decoding", 2023; vLLM's `ngram` method has the same parameters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from localspec.drafters.base import Needs
from localspec.drafters.ngram_pick import Places
from localspec.drafters.ngram_tree import tree_of
from localspec.errors import UsageError
from localspec.types import EMPTY_DRAFT, Budget, Draft, Outcome


class NgramDrafter:
    """Finds the longest match of the trailing tokens in prompt and reply, and copies on from there.

    Among matches of one length the most recent wins, or the one that `pick` says. The index is a dictionary
    from every n-gram to the position after that occurrence: appending a token costs `max - min + 1`
    insertions, a look-up at most as many reads, whatever the length of the context.

    Where more than one branch may be drafted, other matches come in too: see `ngram_tree.tree_of`. For them
    the index is extended, from the first such draft on, by links from each occurrence of an n-gram to the one
    before it.

    Args:
        shortest: fewest trailing tokens that count as a match.
        longest: most trailing tokens looked for.
        pick: which match of one length wins: recent, frequent or first, see `ngram_pick`.
        min_hits: how often what is copied must have followed the match; a shorter match is tried otherwise.

    Raises:
        UsageError: lengths that are not 1 <= shortest <= longest, or a variant that there is not.
    """

    name = "ngram"
    needs = Needs.TOKENS
    remembers = False

    def __init__(self, shortest: int = 2, longest: int = 5, pick: str = "recent", min_hits: int = 1) -> None:
        check_lengths(shortest, longest)
        self._places = Places(pick, min_hits)
        self._lengths = range(longest, shortest - 1, -1)
        self._shortest = shortest
        self._log: list[int] = []
        self._index: dict[tuple[int, ...], int] = {}
        self._indexed = 0
        self._links: dict[int, dict[int, int]] | None = None
        self._latest: dict[tuple[int, ...], int] = {}

    def begin(self, tokens: Sequence[int]) -> None:
        """Index the prompt; only what is new where it extends what is known."""
        known = len(self._log)
        if known > len(tokens) or list(tokens[:known]) != self._log:
            self._log = []
            self._reset(linked=self._links is not None)
        self._log.extend(tokens[len(self._log) :])
        self._catch_up()

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:  # noqa: ARG002 - it keeps its own log
        """See `Drafter.propose`; the draft's confidence is left to whoever counts acceptance."""
        if budget.leaves > 1:
            return tree_of(self._continuations(budget.tokens), budget, source=self.name)
        log, size = self._log, len(self._log)
        for length in self._lengths:
            if length >= size:
                continue
            start = self._index.get(tuple(log[size - length :]))
            if start is None:
                continue
            return Draft.chain(self._copy(start, budget.tokens), source=self.name, match_length=length)
        return EMPTY_DRAFT

    def commit(self, outcome: Outcome) -> None:
        """Append the verified tokens and index them."""
        self._log.extend(outcome.tokens)
        self._catch_up()

    def close(self) -> None:
        """Forget everything."""
        self._log = []
        self._reset(linked=False)

    def _copy(self, start: int, count: int) -> list[int]:
        """`count` tokens from `start` on; past the end of the text they repeat with the same period."""
        log = self._log
        copied = log[start : start + count]
        period = len(log) - start
        while len(copied) < count:
            copied.append(copied[len(copied) - period])
        return copied

    def _continuations(self, count: int) -> Iterator[tuple[int, list[int]]]:
        """Match length and `count` next tokens of every match, the longest first.

        Of one length the one that was picked comes first, then the most recent.
        """
        if self._links is None:
            self._reset(linked=True)
            self._catch_up()
        log, seen = self._log, set[int]()
        for length in self._lengths:
            for start in self._starts(length) if length < len(log) else ():
                if start not in seen:
                    seen.add(start)
                    yield length, self._copy(start, count)

    def _starts(self, length: int) -> Iterator[int]:
        ngram = tuple(self._log[-length:])
        picked = self._index.get(ngram)
        if picked is None:
            return
        yield picked
        # Without variants the picked place is the last one.
        start = self._latest.get(ngram, picked)
        links = self._links[length] if self._links else {}
        while True:
            if self._places.allows(self._log, length, start):
                yield start
            if start not in links:
                return
            start = links[start]

    def _reset(self, *, linked: bool) -> None:
        self._index = {}
        self._latest = {}
        self._places.clear()
        self._indexed = 0
        self._links = {length: {} for length in self._lengths} if linked else None

    def _catch_up(self) -> None:
        """Index every n-gram that has a continuation: those ending before the last token."""
        log, index, links, places = self._log, self._index, self._links, self._places
        is_latest = places.is_latest
        # Links lead on from the last place, which the variants do not keep in the index.
        latest = index if is_latest else self._latest
        for end in range(max(self._indexed, self._shortest), len(log)):
            for length in self._lengths:
                if length <= end:
                    ngram = tuple(log[end - length : end])
                    if links is not None and (earlier := latest.get(ngram)) is not None:
                        links[length][end] = earlier
                    if is_latest:
                        index[ngram] = end
                        continue
                    if links is not None:
                        latest[ngram] = end
                    chosen = places.choose(log, length, end, index.get(ngram))
                    if chosen is not None:
                        index[ngram] = chosen
        self._indexed = max(len(log), self._shortest)


def check_lengths(shortest: int, longest: int) -> None:
    """Raise `UsageError` for match lengths that cannot be."""
    if not 1 <= shortest <= longest:
        raise UsageError(f"N-gram lengths must satisfy 1 <= min <= max, not min {shortest}, max {longest}.")
