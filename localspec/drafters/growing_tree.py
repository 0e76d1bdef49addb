"""A draft tree that grows depth by depth, as long as it pays, by a drafter that reads many branches a pass.

EAGLE-2, Li et al., arXiv 2406.16858, section 4: of every depth the most likely nodes are followed, by the
product of the chances on their way; in the end all nodes are ranked anew and the best of them are the draft.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from localspec.trees import best_first
from localspec.types import Budget, Draft, Drawing, Drawn, Rows

Following = Callable[[Sequence[int], Sequence[int]], Sequence[Rows]]


@dataclass(slots=True, eq=False)
class _Node:
    """A candidate, or the root.

    Attributes:
        path: tokens after the root, down to its own.
        confidence: for each of them the chance that it and all before it come true.
        row: its place in the newest pass, once it was followed there.
        children: candidates after it, most likely first.
    """

    path: tuple[int, ...] = ()
    confidence: tuple[float, ...] = ()
    row: int = -1
    children: list[_Node] = field(default_factory=list)


def grown_tree(
    tokens: Sequence[int],
    budget: Budget,
    *,
    source: str,
    drawing: Drawing,
    first: Drawn,
    following: Following,
    most: int,
) -> Draft:
    """Follow the best nodes, depth after depth, while that may change the draft and its advice agrees.

    Not for rules that need the distribution of a token: to choose among drawn tokens by what they led to
    would change the distribution that they follow.

    Args:
        tokens: the session's.
        budget: at least one token; its advice has agreed to the first one already, and is asked before every
            further depth about the most likely branch.
        source: the drafter's name.
        drawing: how candidates are drawn, as many for each node as there may be branches.
        first: candidates for the place after `tokens`.
        following: runs the drafter on nodes of one depth, given the token of each and the row of the newest
            pass that it follows (-1 for those of the first depth); returns the row after each node, which the
            next pass may overwrite.
        most: nodes that may be followed in all.
    """
    advice, root = budget.advice, _Node()
    newest = _candidates(root, first)
    while True:
        taken = best_first(_ranked(root), _ranked, nodes=budget.tokens, leaves=budget.leaves)
        # What comes after the last node of a full draft would rank behind it.
        leading = {id(node) for _, node in taken[: budget.tokens - 1]}
        followed = [(parent, node) for parent, node in newest if id(node) in leading]
        most -= len(followed)
        if not followed or most < 0:
            break
        if advice is not None:
            _, best = max(followed, key=lambda pair: pair[1].confidence[-1])
            if not advice.more(Draft.chain(best.path, source=source, confidence=best.confidence)):
                break
        rows = following([node.path[-1] for _, node in followed], [parent.row for parent, _ in followed])
        newest = []
        for place, ((_, node), row) in enumerate(zip(followed, rows, strict=True)):
            node.row = place
            newest += _candidates(node, drawing.draw(row, tokens, node.path, budget.leaves))
    return Draft(
        tokens=tuple(node.path[-1] for _, node in taken),
        parents=tuple(parent for parent, _ in taken),
        confidence=tuple(node.confidence[-1] for _, node in taken),
        source=source,
        replacement=False,
    )


def _candidates(parent: _Node, found: Drawn) -> list[tuple[_Node, _Node]]:
    """New nodes below `parent`, each after it; those that cannot come true are left out."""
    before = parent.confidence[-1] if parent.confidence else 1.0
    parent.children = [
        _Node((*parent.path, token), (*parent.confidence, before * chance))
        for token, chance in zip(found.tokens, found.chances, strict=True)
        if chance > 0.0
    ]
    return [(parent, child) for child in parent.children]


def _ranked(node: _Node) -> list[tuple[float, _Node]]:
    return [(-child.confidence[-1], child) for child in node.children]
