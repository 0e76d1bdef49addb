"""What heads have in common that draft token by token from a hidden state and the token after it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from localspec.drafters.growing import grown
from localspec.drafters.hidden import HiddenDrafter, States
from localspec.target import Outputs
from localspec.types import EMPTY_DRAFT, Budget, Draft, Rows

_SEEDS = 16
"""States whose pass gives the first row of a draft at most: logits are made for all rows of such a pass."""


class ChainDrafter(HiddenDrafter):
    """Every row of the head's cache comes of a state and the token after it; the newest one begins a draft.

    What the last step brought (the accepted tokens and the target's own) goes into the first pass of a draft.
    Each further token is a pass of one row, which reads the state that the head made of the row before.
    """

    _lag = 1

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """See `Drafter.propose`."""
        advice = budget.advice
        if budget.tokens < 1 or not self._ready(tokens, budget):
            return EMPTY_DRAFT
        if advice is not None and not advice.more(Draft(source=self.name)):
            return self._refused(advice)
        self._glance(budget)
        self._catch_up(leave=min(_SEEDS, self._head.max_batch))
        if self._fed == self._known:
            # An earlier draft has used the newest state, and then its step came to nothing.
            return EMPTY_DRAFT
        return self._made(self._drafted(tokens, budget))

    def _drafted(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """A draft after `tokens`; one to `_SEEDS` states wait."""
        return self._chain(tokens, budget, self._seed())

    def _seed(self) -> int:
        """The pass over the states that wait, whose last row begins the draft; returns its number."""
        start, following, states = self._next(self._known - self._fed)
        self._pass(start, following, states, "all")
        self._drafting()
        return len(states) - 1

    def _chain(self, tokens: Sequence[int], budget: Budget, last: int) -> Draft:
        """A draft whose first row is the row `last` of the newest pass."""
        end = self._fed + self._shift

        def next_row(token: int) -> Rows:
            nonlocal last, end
            self._head.decode(end, [token], self._head.state(last)[None], "all")
            last, end = 0, end + 1
            return self._row(0)

        return grown(
            tokens, budget, source=self.name, greedy=self._greedy, row=self._row(last), following=next_row
        )

    def _feed(self, start: int, tokens: Sequence[int], states: States) -> None:
        self._pass(start, tokens, states, "none")

    def _pass(self, start: int, tokens: Sequence[int], states: States, outputs: Outputs) -> None:
        """One pass over the states of the positions `start` and on, and the tokens after them."""
        self._head.decode(start + self._shift, tokens, self._inputs(states), outputs)

    @abstractmethod
    def _inputs(self, states: States) -> States:
        """What the head reads of the target's states, shape [rows, width of the head]."""
