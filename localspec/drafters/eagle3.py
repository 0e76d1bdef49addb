"""EAGLE-3: one layer drafts from the states of three layers of the target.

Li et al., arXiv 2503.01840, section 3. The states of a low, a middle and a high layer of the target are
turned into one (the head's encoder); that and the embedding of the token after it go into a decoder layer of
its own, whose result stands for the target's next state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from localspec.drafters.growing_tree import grown_tree
from localspec.drafters.hidden import States
from localspec.drafters.hidden_chain import ChainDrafter
from localspec.target import Tap, TreeHead
from localspec.types import Budget, Draft, Drawing, Rows


class Eagle3Drafter(ChainDrafter):
    """Drafts with an EAGLE-3 head; the row of position p holds the token of p + 1 and the state of p.

    With more than one branch it drafts a tree whose shape follows what the head is sure of (EAGLE-2).
    """

    _head: TreeHead

    def __init__(
        self, head: TreeHead, tap: Tap, *, vocabulary: int, greedy: Drawing, name: str = "eagle3"
    ) -> None:
        super().__init__(head, tap, vocabulary=vocabulary, greedy=greedy, name=name)

    def _inputs(self, states: States) -> States:
        return self._head.encode(states)

    def _drafted(self, tokens: Sequence[int], budget: Budget) -> Draft:
        head, last = self._head, self._seed()
        leaves = min(budget.leaves, head.sequences)
        if leaves == 1:
            return self._chain(tokens, budget, last)
        drawing = budget.drawing or self._greedy
        first = drawing.draw(self._row(last), tokens, (), leaves)
        if first.probs is not None:
            return self._chain(tokens, budget, last)

        def following(nodes: Sequence[int], parents: Sequence[int]) -> list[Rows]:
            states = [head.state(last if parent < 0 else parent) for parent in parents]
            head.decode_nodes(nodes, np.stack(states), parents)
            return [self._row(place) for place in range(len(nodes))]

        return grown_tree(
            tokens,
            replace(budget, leaves=leaves),
            source=self.name,
            drawing=drawing,
            first=first,
            following=following,
            most=head.max_nodes,
        )
