"""The vote of a few places, one by one: what `suffix_votes.Ballot` is for many.

Calls on arrays take a microsecond each however short these are, and ten where a pass of the target has left
nothing of them in the caches; a ballot makes some forty. Where a handful of places vote, loops take less.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

from localspec.drafters.suffix_votes import CERTAIN, LOCAL, MOST_RECENT_FIRST, REMEMBERED, SATURATED
from localspec.memory.index import Tokens
from localspec.types import EMPTY_DRAFT, Draft

MOST = 6
"""Places up to which loops take less."""


class FewVotes:
    """Places of one source, newest first, and what each of them says next.

    Args:
        following: tokens after each place; where the lists differ in length, some have no more to say.
        lengths: tokens that match before each place.
        leader: index of the place that a chain copies.
        source: its name.
        remembered: whether it is the memory.
    """

    def __init__(
        self,
        following: Sequence[Sequence[int]],
        lengths: Sequence[int],
        leader: int,
        source: str,
        *,
        remembered: bool = False,
    ) -> None:
        self._following = following
        self._weights = _weights(lengths)
        self._leader = leader
        self._length = lengths[leader]
        self._source = source
        self._reliability = REMEMBERED if remembered else LOCAL

    @cached_property
    def survival(self) -> list[float]:
        """Estimated probability that the leader's tokens are accepted up to each depth."""
        following, weights, length = self._following, self._weights, self._length
        constant, slope, trust = self._reliability.first
        # A single place is no proof: as if another of the heaviest's weight had said something else.
        asked = sum(weights) + max(weights)
        agreeing: Sequence[int] = range(len(following))
        survival: list[float] = []
        chance = 1.0
        for depth, token in enumerate(following[self._leader]):
            if depth and len(agreeing) == 1:
                share = 1.0
            else:
                # Who has no more to say does not vote against what others say.
                speaking = [place for place in agreeing if depth < len(following[place])]
                if depth:
                    asked = sum(weights[place] for place in speaking)
                agreeing = [place for place in speaking if following[place][depth] == token]
                share = sum(weights[place] for place in agreeing) / asked
            known = min(max(share, 1 - CERTAIN), CERTAIN)
            odds = constant + slope * math.log2(length + depth) + trust * math.log(known / (1 - known))
            chance /= 1.0 + math.exp(-odds)
            survival.append(chance)
            if not depth:
                constant, slope, trust = self._reliability.later
        return survival

    @cached_property
    def score(self) -> float:
        """Accepted tokens that the leader's chain promises."""
        return sum(self.survival)

    def chain(self, floor: float) -> Draft:
        """The leader's tokens as long as they survive with probability `floor`."""
        confidence = tuple(chance for chance in self.survival if chance >= floor)
        if not confidence:
            return EMPTY_DRAFT
        return Draft.chain(
            tuple(self._following[self._leader][: len(confidence)]),
            source=self._source,
            confidence=confidence,
            match_length=self._length,
        )


def local_votes(
    tokens: Tokens, places: Sequence[int], tail: Sequence[int], count: int, source: str
) -> FewVotes:
    """Of places in the present text.

    Args:
        tokens: the text.
        places: indices of the tokens that followed its last ones before, the newest first.
        tail: its last tokens.
        count: tokens of a draft.
        source: its name.
    """
    lengths = _lengths(tokens, places, tail)
    leader = _leader([int(tokens[place]) for place in places], lengths)
    copied: list[int] = tokens[places[leader] : places[leader] + count].tolist()
    # Past the end of the text the copy goes on with itself: a text that repeats, repeats.
    copied = (copied * (count // len(copied) + 1))[:count]
    following = []
    for place in places:
        known: list[int] = tokens[place : place + count].tolist()
        following.append(known + copied[: count - len(known)])
    return FewVotes(following, lengths, leader, source)


def remembered_votes(
    tokens: Tokens, places: Sequence[int], tail: Sequence[int], count: int, source: str, least: int
) -> FewVotes | None:
    """Of places in the memory, whose documents a negative token parts; None where no `least` tokens match."""
    lengths = _lengths(tokens, places, tail)
    real = [index for index, length in enumerate(lengths) if length >= least]
    if not real:
        return None
    following = []
    for index in real:
        said: list[int] = tokens[places[index] : places[index] + count].tolist()
        end = next((place for place, token in enumerate(said) if token < 0), len(said))
        following.append(said[:end])
    lengths = [lengths[index] for index in real]
    leader = _leader([said[0] if said else -1 for said in following], lengths)
    return FewVotes(following, lengths, leader, source, remembered=True)


def _lengths(tokens: Tokens, places: Sequence[int], tail: Sequence[int]) -> list[int]:
    """Tokens before each place that are the last ones of `tail`, all of it at most."""
    lengths = []
    for place in places:
        length = 0
        before: list[int] = tokens[max(place - len(tail), 0) : place].tolist()
        for one, other in zip(reversed(before), reversed(tail), strict=False):
            if one != other:
                break
            length += 1
        lengths.append(length)
    return lengths


def _weights(lengths: Sequence[int]) -> list[float]:
    """What the vote of each place weighs."""
    longest = min(max(lengths), SATURATED)
    return [
        2.0 ** (min(length, SATURATED) - longest) * MOST_RECENT_FIRST**place
        for place, length in enumerate(lengths)
    ]


def _leader(first: Sequence[int], lengths: Sequence[int]) -> int:
    """The heaviest place among those that say the token with the most weight."""
    weights = _weights(lengths)
    votes: dict[int, float] = {}
    for token, weight in zip(first, weights, strict=True):
        votes[token] = votes.get(token, 0.0) + weight
    # Of equals the smallest, as where many vote.
    chosen = min(votes, key=lambda token: (-votes[token], token))
    return max((place for place, token in enumerate(first) if token == chosen), key=weights.__getitem__)
