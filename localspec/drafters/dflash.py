"""DFlash: a head that drafts a whole block in one pass, from the states of some layers of the target.

Block diffusion for drafting: what was said stands in the head's cache as the target's own states, and behind
it goes a block of the last token and then masks, each of which is filled in without knowledge of the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from localspec.drafters.growing import grown
from localspec.drafters.hidden import HiddenDrafter, States
from localspec.target import HeadContext, Tap
from localspec.types import EMPTY_DRAFT, Budget, Draft, Drawing, Rows


class DFlashDrafter(HiddenDrafter):
    """Drafts with a DFlash head; its cache holds the target's states at the target's positions.

    Args:
        head: its passes.
        tap: the states of the target's layers that it reads.
        vocabulary: tokens of the target.
        greedy: draws where the budget has no drawing.
        name: what telemetry calls it.
        block: tokens of a block, the last one that was said included.
        mask: the token that stands for one to be filled in.
    """

    _first_row = 1
    """Row of the block's pass that gives the draft's first token: row 0 stands for one that was said."""

    def __init__(
        self,
        head: HeadContext,
        tap: Tap,
        *,
        vocabulary: int,
        greedy: Drawing,
        name: str = "dflash",
        block: int,
        mask: int,
    ) -> None:
        super().__init__(head, tap, vocabulary=vocabulary, greedy=greedy, name=name)
        self._block = block
        self._mask = mask

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """See `Drafter.propose`."""
        most = min(budget.tokens, self._block - self._first_row)
        if most < 1 or not self._ready(tokens, budget):
            return EMPTY_DRAFT
        # One pass makes all of the draft, so there is one question: whether to make it.
        advice = budget.advice
        if advice is not None and not advice.block(self.name):
            return self._refused(advice)
        self._glance(budget)
        self._catch_up()
        self._drafting()
        masks = most + self._first_row - 1
        self._head.decode(len(tokens) - 1, [tokens[-1], *[self._mask] * masks], None, "all")
        return self._made(self._drawn(tokens, replace(budget, tokens=most, advice=None)))

    def _drawn(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """A draft of `budget.tokens` places, from the rows of the block's pass."""
        row = self._first_row

        def next_row(_: int) -> Rows:
            nonlocal row
            row += 1
            return self._row(row)

        return grown(
            tokens, budget, source=self.name, greedy=self._greedy, row=self._row(row), following=next_row
        )

    def _feed(self, start: int, tokens: Sequence[int], states: States) -> None:  # noqa: ARG002 - states alone
        self._head.decode(start, None, states, "none")
