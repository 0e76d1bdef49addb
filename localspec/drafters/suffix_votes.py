"""How places of a suffix drafter vote, and what their votes promise."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from localspec.memory.index import Places, Tokens
from localspec.trees import best_first
from localspec.types import EMPTY_DRAFT, Budget, Draft

CERTAIN = 0.98
"""A share of votes counts as at most this, and at least as what is left: few votes are no proof."""
MOST_RECENT_FIRST = 0.97
"""Weight of a place relative to the next newer one."""
SATURATED = 16
"""Tokens of a match beyond which a longer one says no more about what comes next."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """Probability that a drafted token is accepted once all before it are, fitted to recorded replies.

    A logistic function of log2 of the match length (what was drafted before the token included) and of the
    log-odds of the token's share of the votes; one set of (constant, length, share) for the first token of a
    draft, where a match may be chance, and one for later ones, where it has held.
    """

    first: tuple[float, float, float]
    later: tuple[float, float, float]

    def of(self, lengths: NDArray[np.float64], shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Conditional probabilities of tokens at depth 1, 2, ...; both arrays have shape [depth]."""
        odds = self._odds(self.later, lengths, shares)
        odds[:1] = self._odds(self.first, lengths[:1], shares[:1])
        return np.asarray(1.0 / (1.0 + np.exp(-odds)), np.float64)

    def chance(self, length: float, share: float, *, first: bool) -> float:
        """Conditional probability of one token."""
        lengths, shares = np.array([length]), np.array([share])
        odds = self._odds(self.first if first else self.later, lengths, shares)
        return float(1.0 / (1.0 + np.exp(-odds[0])))

    @staticmethod
    def _odds(
        weights: tuple[float, float, float], lengths: NDArray[np.float64], shares: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        known = np.clip(shares, 1 - CERTAIN, CERTAIN)
        return weights[0] + weights[1] * np.log2(lengths) + weights[2] * np.log(known / (1 - known))


LOCAL = Reliability(first=(-0.9, 0.9, 1.6), later=(-2.7, 0.7, 0.7))
REMEMBERED = Reliability(first=(-2.1, 0.6, 0.7), later=(-2.8, 0.7, 0.7))


@dataclass(frozen=True)
class Ballot:
    """Places of one source and what each of them says next.

    Attributes:
        continuations: token ids, shape [places, depth]; negative where a place has no more to say.
        lengths: tokens that match before each place.
        weights: of each place's vote.
        leader: index of the place that a chain copies.
        reliability: what votes of this source are worth.
        source: its name.
    """

    continuations: Tokens
    lengths: Places
    weights: NDArray[np.float64]
    leader: int
    reliability: Reliability
    source: str

    @cached_property
    def survival(self) -> NDArray[np.float64]:
        """Estimated probability that the leader's tokens are accepted up to each depth."""
        said = self.continuations[self.leader]
        agreeing = np.logical_and.accumulate(self.continuations == said, axis=1)
        weights = self.weights
        agreed = weights @ agreeing
        asked = np.empty_like(agreed)
        # A single place is no proof: as if another of the heaviest's weight had said something else.
        asked[0] = weights.sum() + weights.max()
        # Who has no more to say does not vote against what others say.
        asked[1:] = weights @ (agreeing[:, :-1] & (self.continuations[:, 1:] >= 0))
        shares = agreed / np.maximum(asked, 1e-12)
        lengths = self.lengths[self.leader] + np.arange(len(said), dtype=np.float64)
        chances = self.reliability.of(lengths, shares)
        chances[said < 0] = 0.0
        return np.asarray(np.cumprod(chances), np.float64)

    @cached_property
    def score(self) -> float:
        """Accepted tokens that the leader's chain promises."""
        return float(self.survival.sum())

    def chain(self, floor: float) -> Draft:
        """The leader's tokens as long as they survive with probability `floor`."""
        survival = self.survival
        size = int((survival >= floor).sum())
        if not size:
            return EMPTY_DRAFT
        return Draft.chain(
            self.continuations[self.leader, :size].tolist(),
            source=self.source,
            confidence=tuple(survival[:size].tolist()),
            match_length=int(self.lengths[self.leader]),
        )


@dataclass(frozen=True, slots=True)
class _Node:
    """A token of a tree: how likely it survives, the places that say its path, and its depth, from 1."""

    token: int
    survival: float
    places: NDArray[np.intp]
    depth: int


def grown(ballot: Ballot, budget: Budget, floor: float) -> Draft:
    """A tree of the most promising tokens: nodes are taken by confidence, the best first.

    Every node holds the places that say what its path says; they vote for its children as for a chain.
    """

    def below(survival: float, places: NDArray[np.intp], depth: int) -> list[tuple[float, _Node]]:
        if depth == ballot.continuations.shape[1]:
            return []
        said = ballot.continuations[places, depth]
        speaking = said >= 0
        places, said = places[speaking], said[speaking]
        if not len(places):
            return []
        options, which = np.unique(said, return_inverse=True)
        votes = np.bincount(which, ballot.weights[places], len(options))
        asked = votes.sum() + (ballot.weights.max() if depth == 0 else 0.0)
        found = []
        for number, token in enumerate(options.tolist()):
            agreeing = places[which == number]
            length = float(ballot.lengths[agreeing].max() + depth)
            chance = survival * ballot.reliability.chance(length, votes[number] / asked, first=depth == 0)
            if chance >= floor:
                found.append((-chance, _Node(token, chance, agreeing, depth + 1)))
        return found

    taken = best_first(
        below(1.0, np.arange(len(ballot.lengths)), 0),
        lambda node: below(node.survival, node.places, node.depth),
        nodes=budget.tokens,
        leaves=budget.leaves,
    )
    if not taken:
        return EMPTY_DRAFT
    return Draft(
        tokens=tuple(node.token for _, node in taken),
        parents=tuple(parent for parent, _ in taken),
        confidence=tuple(node.survival for _, node in taken),
        source=ballot.source,
        match_length=int(ballot.lengths[ballot.leader]),
    )
