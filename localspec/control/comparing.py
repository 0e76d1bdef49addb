"""Drafts compared with what is said, verified or not: acceptance is learnt, gains and losses are booked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.control.account import Account
from localspec.control.estimates import AcceptanceEstimates
from localspec.control.live_cost import LiveCost
from localspec.types import Draft

_HOPEFUL = 2
"""Tokens that were right in a row after which a draft may go on like that."""

Learn = Callable[[Draft, int, int], None]


@dataclass(slots=True)
class _Pending:
    """A draft that is being compared with what is said.

    Attributes:
        position: tokens before it.
        draft: all of it.
        length: nodes that were verified, or would have been.
        verified: whether they were.
        node: the last one that was right, -1 for none.
        right: how many were.
    """

    position: int
    draft: Draft
    length: int
    verified: bool
    node: int = -1
    right: int = 0


class Comparison:
    """Goes through drafts token by token, as the text comes.

    Args:
        cost: T(n).
        estimates: acceptance, which it keeps up to date.
        account: what drafts have gained.
        learn: told of a draft, its node that was right (-1 for the root) and the child that was (-1: none).
    """

    def __init__(
        self, cost: LiveCost, estimates: AcceptanceEstimates, account: Account, learn: Learn
    ) -> None:
        self._cost, self._estimates, self._account = cost, estimates, account
        self._learn = learn
        self._pending: list[_Pending] = []

    def clear(self) -> None:
        """What was drafted is not judged any more."""
        self._pending.clear()

    def add(self, position: int, draft: Draft, length: int, *, verified: bool) -> None:
        """Compare `draft`, which was made after `position` tokens.

        Args:
            position: of its first token.
            draft: all of it.
            length: nodes that are verified, or would be if that paid; 0 books nothing.
            verified: whether they are.
        """
        self._pending.append(_Pending(position, draft, length, verified))

    @property
    def pending(self) -> bool:
        """Whether some draft is neither wrong nor at its end."""
        return bool(self._pending)

    @property
    def hopeful(self) -> bool:
        """Whether a draft is coming true just now, be it verified or not."""
        return any(one.right >= _HOPEFUL for one in self._pending)

    def settle(self, tokens: Sequence[int]) -> None:
        """Compare earlier drafts with what has been said since."""
        self._pending = [one for one in self._pending if self._goes_on(one, tokens)]

    def _goes_on(self, one: _Pending, tokens: Sequence[int]) -> bool:
        """Whether a draft is right so far and not at its end."""
        draft = one.draft
        while one.position + one.right < len(tokens):
            child = self._estimates.learn(draft, one.node, tokens[one.position + one.right])
            self._learn(draft, one.node, child)
            if child < 0:
                # What was not reached has cost its share of the pass all the same.
                self._book(one, 0, one.length - one.right)
                return False
            one.node = child
            # Of a tree the path that was said may lie beyond what counts.
            self._book(one, int(child < one.length), min(one.length - one.right, 1))
            one.right += 1
        return one.position <= len(tokens) and one.right < len(draft)

    def _book(self, one: _Pending, gained: int, places: int) -> None:
        """Tokens gained at some places of the part of a draft that counts, and the share that these cost."""
        if places > 0:
            spent = self._cost(one.length + 1) / self._cost(1) - 1
            (self._account.book if one.verified else self._account.look)(gained - spent * places / one.length)
