"""A drafter that may break down: the reply goes on without it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from localspec.drafters.base import Drafter
from localspec.errors import LocalspecError
from localspec.types import EMPTY_DRAFT, Budget, Draft, Outcome

logger = logging.getLogger(__name__)


class GuardedDrafter:
    """Passes every call on to `inner` until one raises; from then on it proposes nothing.

    Drafts are guesses, so nothing of a reply is lost with them.

    Attributes:
        problem: what was raised, in a sentence; None while all is well.
    """

    def __init__(self, inner: Drafter) -> None:
        self.inner = inner
        self.name = inner.name
        self.needs = inner.needs
        self.remembers = inner.remembers
        self.problem: str | None = None

    def begin(self, tokens: Sequence[int]) -> None:
        """See `Drafter.begin`."""
        self._guard(lambda: self.inner.begin(tokens))

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """See `Drafter.propose`; the empty draft once it has failed."""
        proposed = EMPTY_DRAFT

        def ask() -> None:
            nonlocal proposed
            proposed = self.inner.propose(tokens, budget)

        self._guard(ask)
        return proposed

    def commit(self, outcome: Outcome) -> None:
        """See `Drafter.commit`."""
        self._guard(lambda: self.inner.commit(outcome))

    def close(self) -> None:
        """See `Drafter.close`."""
        self._guard(self.inner.close, always=True)

    def _guard(self, call: Callable[[], None], *, always: bool = False) -> None:
        if self.problem is not None and not always:
            return
        try:
            call()
        except Exception as error:
            logger.exception("the drafter %s failed", self.name)
            # Our own errors are sentences; of others the class says most.
            own = isinstance(error, LocalspecError)
            self.problem = str(error) if own else f"{type(error).__name__}: {error}"
