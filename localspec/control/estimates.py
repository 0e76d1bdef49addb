"""How often draft tokens are accepted, learnt as they are: by source, confidence and place in the draft."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass

from localspec.types import Draft

PRIOR_WEIGHT = 15.0
"""Observations that a drafter's own estimate counts as."""

DECAY = 0.985
"""Weight of an observation relative to the next one of its bin, so that a change of topic shows."""

_NEAREST = 1e-3
_BINS = tuple(1 / (1 + math.exp(-odds)) for odds in (-2.0, -1.0, 0.0, 0.7, 1.4, 2.2, 3.0))
"""Limits of the bins of confidence."""

# A drafter without confidence is trusted by the length of its match: fitted to n-gram drafts.
_FIRST = (-1.6, 1.0)
_LATER = (-0.6, 0.9)

Key = tuple[str, bool, int]


@dataclass(slots=True)
class _Bin:
    accepted: float = 0.0
    asked: float = 0.0


class AcceptanceEstimates:
    """Conditional acceptance of draft tokens: that of a node once its parent is accepted.

    A node belongs to a bin by the draft's source, by whether it is the first of its branch, and by its own
    estimated probability; its calibrated probability is that estimate, corrected by what became of the bin's
    recent tokens (a Beta posterior whose past fades).
    """

    def __init__(self) -> None:
        self._bins: dict[Key, _Bin] = {}

    def survival(self, draft: Draft) -> list[float]:
        """Calibrated probability, for each node, that it and all before it are accepted."""
        survival: list[float] = []
        if not draft.tokens:
            return survival
        for chance, key, parent in zip(*self._nodes(draft), draft.parents, strict=True):
            before = survival[parent] if parent >= 0 else 1.0
            survival.append(before * self._calibrated(key, chance))
        return survival

    def learn(self, draft: Draft, node: int, said: int) -> int:
        """Compare the children of a node that was right with the token that followed, verified or not.

        Args:
            draft: the draft.
            node: index of the node, -1 for the root.
            said: the token that came after it.

        Returns:
            The child that says it, or -1.
        """
        right = -1
        for child, key in self._children(draft, node):
            hit = draft.tokens[child] == said
            self._observe(key, hit=hit)
            if hit:
                right = child
        return right

    def soften(self, factor: float) -> None:
        """Believe the past less: a new turn may be about something else."""
        for one in self._bins.values():
            one.accepted *= factor
            one.asked *= factor

    def _children(self, draft: Draft, node: int) -> list[tuple[int, Key]]:
        if draft.is_chain:
            child = node + 1
            return [(child, _key(draft, child, _chance(draft, child, child)))] if child < len(draft) else []
        depth = len(draft.path_to(node))
        return [
            (child, _key(draft, depth, _chance(draft, child, depth)))
            for child in range(node + 1, len(draft))
            if draft.parents[child] == node
        ]

    def _nodes(self, draft: Draft) -> tuple[list[float], list[Key]]:
        chances: list[float] = []
        keys: list[Key] = []
        depths: list[int] = []
        for node, parent in enumerate(draft.parents):
            depth = 0 if parent < 0 else depths[parent] + 1
            depths.append(depth)
            chances.append(_chance(draft, node, depth))
            keys.append(_key(draft, depth, chances[-1]))
        return chances, keys

    def _calibrated(self, key: Key, chance: float) -> float:
        seen = self._bins.get(key)
        if seen is None:
            return chance
        return (seen.accepted + PRIOR_WEIGHT * chance) / (seen.asked + PRIOR_WEIGHT)

    def _observe(self, key: Key, *, hit: bool) -> None:
        seen = self._bins.setdefault(key, _Bin())
        seen.accepted = seen.accepted * DECAY + hit
        seen.asked = seen.asked * DECAY + 1.0


def _chance(draft: Draft, node: int, depth: int) -> float:
    """The drafter's own estimate for a node whose parent is accepted."""
    if draft.confidence:
        parent = draft.parents[node]
        before = draft.confidence[parent] if parent >= 0 else 1.0
        chance = draft.confidence[node] / before if before > 0 else 0.0
    else:
        chance = _by_match(draft.match_length + depth, first=depth == 0)
    return min(max(chance, _NEAREST), 1 - _NEAREST)


def _key(draft: Draft, depth: int, chance: float) -> Key:
    return (draft.source, depth == 0, bisect_right(_BINS, chance))


def _by_match(length: int, *, first: bool) -> float:
    constant, slope = _FIRST if first else _LATER
    return 1 / (1 + math.exp(-(constant + slope * math.log2(max(length, 1)))))
