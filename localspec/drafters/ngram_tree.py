"""N-gram drafts with branches: several places where the same words stood before, and what followed each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from localspec.trees import Trie, best_first
from localspec.types import EMPTY_DRAFT, Budget, Draft

PLACES = 32
"""Matches looked at for one draft; more would cost time and add little."""

SURVIVAL = 0.7
"""Part of the copies that are still right one token further on."""


def tree_of(continuations: Iterable[tuple[int, Sequence[int]]], budget: Budget, *, source: str) -> Draft:
    """A tree of the most promising tokens among the continuations of several matches.

    The continuations are merged into a trie, where each weighs one over its rank: what followed a longer or a
    more recent match counts more, and what followed often counts often. The confidence of a node at depth d
    is the share of the weight that runs through it, times `SURVIVAL` to the power of d. Nodes are taken
    by confidence, so a tree is deep where the matches agree and wide where they do not.

    Args:
        continuations: match length and next tokens, the most promising match first.
        budget: nodes and branches at most.
        source: name of the drafter.

    Returns:
        The draft, whose match length is the longest; the empty one without continuations.
    """
    trie = Trie()
    match_length = 0
    for rank, (length, tokens) in enumerate(islice(continuations, PLACES), start=1):
        match_length = match_length or length
        trie.add(tokens, 1 / rank)
    if not trie.tokens:
        return EMPTY_DRAFT
    return _most_confident(trie, budget, source, match_length)


def _most_confident(trie: Trie, budget: Budget, source: str, match_length: int) -> Draft:
    children: dict[int, list[int]] = {}
    confidence: list[float] = []
    for node, parent in enumerate(trie.parents):
        children.setdefault(parent, []).append(node)
        before, weight = (confidence[parent], trie.weights[parent]) if parent >= 0 else (1.0, trie.weight)
        confidence.append(SURVIVAL * before * trie.weights[node] / weight)

    def below(parent: int) -> list[tuple[tuple[float, int], int]]:
        # Of equals the one that an earlier match brought in.
        return [((-confidence[node], node), node) for node in children.get(parent, ())]

    taken = best_first(below(-1), below, nodes=budget.tokens, leaves=budget.leaves)
    return Draft(
        tokens=tuple(trie.tokens[node] for _, node in taken),
        parents=tuple(parent for parent, _ in taken),
        confidence=tuple(confidence[node] for _, node in taken),
        source=source,
        match_length=match_length,
    )
