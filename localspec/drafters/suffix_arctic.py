"""The published SuffixDecoding, to compare with: exact counts of every earlier occurrence, one match length.

Oliaro et al., "SuffixDecoding", arXiv 2411.04975, as Snowflake's ArcticInference and vLLM run it. With
count(w) the occurrences of w, overlapping ones included, a token t follows w with the probability
p(t | w) = count(wt) / count(w). For every number m of trailing tokens w that occur, the most probable tokens
after w are drafted; the m whose draft promises most accepted tokens (the sum of the cumulative p) wins.

The original keeps suffix trees. Here each draft scans the text for the last token and keeps, token by token
backwards, the places that still match: nothing to build, cut or evict, and the same counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from localspec.drafters.base import Needs
from localspec.errors import UsageError
from localspec.memory.index import SEPARATOR, Places, Tokens
from localspec.trees import best_first
from localspec.types import EMPTY_DRAFT, Budget, Draft, Outcome

if TYPE_CHECKING:
    from localspec.memory.index import TokenIndex
    from localspec.memory.memory import Memory

_NOTHING: Tokens = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True)
class _Limits:
    """What a draft for one match length may be: nodes, branches, depth, and the least cumulative p."""

    nodes: int
    leaves: int
    depth: int
    p_min: float


@dataclass(frozen=True, slots=True)
class _Speculation:
    """A draft after one match length; `counts` are occurrences of match and path, `matches` of the match."""

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    matches: int = 1
    length: int = 0

    @property
    def score(self) -> float:
        """Accepted tokens to expect; one division of whole numbers, so that equal scores are equal floats."""
        return sum(self.counts) / self.matches


class ArcticDrafter:
    """Drafts what followed the trailing tokens most often, here or in the newest earlier replies.

    Two sources are asked: the present text, prompt included and the present occurrence counted, so that what
    was seen once before has p = 0.5; and the memory. The higher score wins; of equals, the present text, and
    within a source the longer match. Of tokens that followed equally often, the one that did so last comes
    first; of nodes that are equally likely, the one that was found first.

    After m matching tokens a draft has at most `m * factor + offset` nodes, and is at most `depth - m` deep.
    One branch is the published chain, more are the published tree; it knows no limit on branches, so a node
    that would open one too many is passed over here. The confidence is the cumulative p.

    Args:
        memory: earlier replies; None drafts from the present text alone.
        depth: tokens of a match and its continuation together.
        factor: draft tokens for each matching token, 0 or more.
        offset: draft tokens added to these.
        p_min: cumulative p from which on a token is drafted.
        requests: newest documents of the memory that count.

    Raises:
        UsageError: a setting that cannot be.
    """

    name = "suffix:arctic"
    needs = Needs.TOKENS
    remembers = True

    def __init__(
        self,
        memory: Memory | None = None,
        *,
        depth: int = 64,
        factor: float = 1.0,
        offset: float = 0.0,
        p_min: float = 0.1,
        requests: int = 10_000,
    ) -> None:
        if depth < 2 or factor < 0 or not 0 <= p_min <= 1 or requests < 0:
            raise UsageError(
                "Suffix decoding needs a depth of 2 or more, a p_min from 0 to 1, and no negative factor or "
                f"number of requests, not depth {depth}, p_min {p_min}, factor {factor}, requests {requests}."
            )
        self._memory = memory
        self._depth = depth
        self._factor = factor
        self._offset = offset
        self._p_min = p_min
        self._requests = requests
        self._text = _NOTHING
        self._index: TokenIndex | None = None
        self._indexed = 0
        self._past = _NOTHING

    def begin(self, tokens: Sequence[int]) -> None:
        """Take the prompt as the present text."""
        self._text = np.array(tokens, np.int32)

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:  # noqa: ARG002 - it keeps its own text
        """See `Drafter.propose`."""
        best = _Speculation()
        for source in (self._text, self._remembered()):
            found = self._best(source, budget)
            if found.score > best.score:
                best = found
        if not best.tokens:
            return EMPTY_DRAFT
        return Draft(
            tokens=best.tokens,
            parents=best.parents,
            confidence=tuple(count / best.matches for count in best.counts),
            source=self.name,
            match_length=best.length,
        )

    def commit(self, outcome: Outcome) -> None:
        """Append the verified tokens."""
        self._text = np.concatenate((self._text, np.array(outcome.tokens, np.int32)))

    def close(self) -> None:
        """Forget the present text."""
        self._text = self._past = _NOTHING
        self._index = None

    # --- inner steps

    def _remembered(self) -> Tokens:
        """The newest documents of the memory as it is now."""
        if self._memory is None:
            return _NOTHING
        index = self._memory.index
        if index is not self._index or len(index) != self._indexed:
            self._index, self._indexed = index, len(index)
            separators = np.flatnonzero(index.tokens == SEPARATOR)
            evicted = len(separators) - self._requests
            first = len(index) if not self._requests else separators[evicted] if evicted > 0 else 0
            self._past = index.tokens[first:]
        return self._past

    def _best(self, source: Tokens, budget: Budget) -> _Speculation:
        """The draft with the highest score of all match lengths, the longest first."""
        best = _Speculation()
        longer = 0
        for length, ends in reversed(list(self._matches(source))):
            depth = self._depth - length
            nodes = max(0, min(int(length * self._factor + self._offset), budget.tokens))
            # The longer match stood at the same places and could draft as much: it is at least as good.
            repeated = longer == len(ends) and nodes < depth
            longer = len(ends)
            # At every depth the p of all nodes add up to 1 at most, so a score is at most the depth.
            if repeated or best.score >= min(nodes, depth):
                continue
            found = _grown(source, ends, length, _Limits(nodes, budget.leaves, depth, self._p_min))
            if found.score > best.score:
                best = found
        return best

    def _matches(self, source: Tokens) -> Iterator[tuple[int, Places]]:
        """Match lengths 1, 2, ... with the indices after each occurrence in `source`, ascending."""
        trailing = self._text[-self._depth :].tolist()
        if len(trailing) < 2:
            return
        ends = np.flatnonzero(source == trailing[-1]) + 1
        for length in range(1, len(trailing)):
            if length > 1:
                ends = ends[np.searchsorted(ends, length) :]
                ends = ends[source[ends - length] == trailing[-length]]
            # What occurs only at the end of the source has nothing to say, nor has any longer match.
            if not len(ends) or ends[0] == len(source):
                return
            yield length, ends


def _grown(source: Tokens, matches: Places, length: int, limits: _Limits) -> _Speculation:
    """The most probable nodes after a match, the best first: a chain where one branch is allowed."""

    def below(ends: Places, depth: int) -> list[tuple[int, tuple[int, int, Places, int]]]:
        if depth == limits.depth:
            return []
        return [
            (-count, (token, count, places, depth + 1))
            for count, token, places in _children(source, ends, len(matches), limits.p_min)
        ]

    taken = best_first(
        below(matches, 0),
        lambda node: below(node[2] + 1, node[3]),
        nodes=limits.nodes,
        leaves=limits.leaves,
    )
    return _Speculation(
        tokens=tuple(token for _, (token, *_) in taken),
        parents=tuple(parent for parent, _ in taken),
        counts=tuple(count for _, (_, count, *_) in taken),
        matches=len(matches),
        length=length,
    )


def _children(source: Tokens, ends: Places, matches: int, p_min: float) -> list[tuple[int, int, Places]]:
    """Count, token and places of what follows `ends` in `p_min` of all `matches`, the most frequent first."""
    if ends[-1] == len(source):
        ends = ends[:-1]
    said = source[ends]
    if not len(said):
        return []
    if (said == said[-1]).all():
        values, numbers = said[-1:], np.array([len(said)])
    else:
        values, numbers = np.unique(said, return_counts=True)
    kept = (values != SEPARATOR) & (numbers / matches >= p_min)
    options = zip(values[kept].tolist(), numbers[kept].tolist(), strict=True)
    found = [(count, token, ends[said == token]) for token, count in options]
    # Equally frequent ones by their last place, the most recent first.
    return sorted(found, key=lambda child: (child[0], int(child[2][-1])), reverse=True)
