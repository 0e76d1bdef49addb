"""Shapes of draft trees: their branches, and how they are cut to what a pass can verify."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, TypeVar

from localspec.types import Draft

Node = TypeVar("Node")

MAX_LEAVES = 16
"""Branches of a draft at most: every branch is a sequence of its own in the target's cache."""


class Trie:
    """A tree grown from token strings, which share the nodes of common beginnings.

    Attributes:
        tokens: token of each node, in the order in which nodes were made.
        parents: parent of each node, -1 for children of the root.
        weights: sum of the weights of the strings through each node.
        weight: sum of the weights of all strings.
    """

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.weights: list[float] = []
        self.weight = 0.0
        self._nodes: dict[tuple[int, int], int] = {}

    def add(self, string: Sequence[int], weight: float = 1.0) -> None:
        """Add one string from the root."""
        self.weight += weight
        parent = -1
        for token in string:
            node = self._nodes.setdefault((parent, token), len(self.tokens))
            if node == len(self.tokens):
                self.tokens.append(token)
                self.parents.append(parent)
                self.weights.append(0.0)
            self.weights[node] += weight
            parent = node


def best_first(
    roots: Iterable[tuple[Any, Node]],
    children: Callable[[Node], Iterable[tuple[Any, Node]]],
    *,
    nodes: int,
    leaves: int,
) -> list[tuple[int, Node]]:
    """Grow a tree by its most promising nodes.

    Args:
        roots: nodes at the first depth, each with a rank: the lowest is taken first, of equals the elder.
        children: those of a node that was taken, with their ranks.
        nodes: how many to take at most.
        leaves: branches at most; a node that would open one more is passed over.

    Returns:
        For each node taken, in order, the index of its parent among them (-1: the root), and itself.
    """
    numbers = itertools.count()
    waiting: list[tuple[Any, int, int, Node]] = []
    taken: list[tuple[int, Node]] = []
    grown: set[int] = set()
    open_leaves = 0

    def wait(parent: int, offered: Iterable[tuple[Any, Node]]) -> None:
        for rank, node in offered:
            heapq.heappush(waiting, (rank, next(numbers), parent, node))

    if nodes > 0:
        wait(-1, roots)
    while waiting and len(taken) < nodes:
        _, _, parent, node = heapq.heappop(waiting)
        # The first child of a node continues its branch, every other one opens a branch.
        opens = parent < 0 or parent in grown
        if opens and open_leaves == leaves:
            continue
        open_leaves += opens
        grown.add(parent)
        taken.append((parent, node))
        if len(taken) < nodes:
            wait(len(taken) - 1, children(node))
    return taken


def leaves_of(draft: Draft) -> list[int]:
    """Indices of the nodes without children, ascending."""
    inner = set(draft.parents)
    return [node for node in range(len(draft)) if node not in inner]


def depths_of(draft: Draft) -> list[int]:
    """For each node its distance from the root; 1 for a child of the root."""
    depths: list[int] = []
    for parent in draft.parents:
        depths.append(1 if parent < 0 else depths[parent] + 1)
    return depths


def branches_through(draft: Draft) -> list[list[int]]:
    """For each node the numbers of the branches that it lies on, ascending; branch n ends at the nth leaf."""
    branches: list[list[int]] = [[] for _ in draft.tokens]
    for number, leaf in enumerate(leaves_of(draft)):
        for node in draft.path_to(leaf):
            branches[node].append(number)
    return branches


def with_leaves(draft: Draft, most: int) -> Draft:
    """The draft on its `most` most promising branches, or itself where it has no more than that.

    Branches are chosen one after the other, each for the accepted tokens that it is expected to add: the sum
    of the confidence of its nodes that no chosen branch has. Without confidence every node counts alike, so
    the deepest branch is the first. One branch alone is `Draft.best_chain`.

    Where tokens were drawn at random, a choice by how likely they are would change the distribution that they
    follow; there the eldest branches stay, and of any node the eldest children.
    """
    leaves = leaves_of(draft)
    if len(leaves) <= most:
        return draft
    if most == 1:
        return draft.best_chain()
    paths = {leaf: draft.path_to(leaf) for leaf in leaves}
    kept: set[int] = set()
    if draft.probs:
        # Children are ordered by index, so in the order of paths come elder branches first.
        for leaf in sorted(leaves, key=paths.__getitem__)[:most]:
            kept.update(paths[leaf])
        return draft.subtree(sorted(kept))
    worth = draft.confidence or (1.0,) * len(draft)
    for _ in range(most):
        gains = {leaf: sum(worth[node] for node in path if node not in kept) for leaf, path in paths.items()}
        best = max(gains, key=lambda leaf: (gains[leaf], len(paths[leaf]), -leaf))
        kept.update(paths.pop(best))
    return draft.subtree(sorted(kept))


def refused_branch(draft: Draft, path: Sequence[int]) -> tuple[int, ...]:
    """Nodes that a draft went on with below the accepted `path`, by the most confident child at each depth.

    Args:
        draft: a tree or a chain.
        path: node indices downwards from a child of the root; may be empty.
    """
    if draft.is_chain:
        return tuple(range(len(path), len(draft)))
    worth, node = draft.confidence, path[-1] if path else -1
    branch: list[int] = []
    while children := [index for index in range(node + 1, len(draft)) if draft.parents[index] == node]:
        node = max(children, key=lambda child: (worth[child], -child)) if worth else children[0]
        branch.append(node)
    return tuple(branch)


def cut_below(draft: Draft, tokens: Collection[int]) -> Draft:
    """The draft without the nodes below those that carry one of `tokens`."""
    ends = [token in tokens for token in draft.tokens]
    if not any(ends):
        return draft
    kept: list[int] = []
    below: set[int] = set()
    for node, parent in enumerate(draft.parents):
        if parent >= 0 and (ends[parent] or parent in below):
            below.add(node)
        else:
            kept.append(node)
    return draft if len(kept) == len(draft) else draft.subtree(kept)
