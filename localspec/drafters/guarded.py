"""A drafter that may break down: the reply goes on without it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from localspec.drafters.base import Drafter, feature_drafter
from localspec.errors import IncompatibleError, LocalspecError
from localspec.types import EMPTY_DRAFT, Advice, Budget, Draft, Outcome

logger = logging.getLogger(__name__)


class GuardedDrafter:
    """Passes every call on to `inner` until one raises; from then on it proposes nothing.

    Drafts are guesses, so nothing of a reply is lost with them.

    Args:
        inner: the drafter.
        vocabulary: how many tokens the model has; a draft with any other one counts as a failure, since the
            model could not read it. None lets all pass.

    Attributes:
        problem: what was raised, in a sentence; None while all is well.
    """

    def __init__(self, inner: Drafter, vocabulary: int | None = None) -> None:
        self.inner = inner
        self._vocabulary = vocabulary
        self.name = inner.name
        self.needs = inner.needs
        self.remembers = inner.remembers
        self.problem: str | None = None

    def begin(self, tokens: Sequence[int]) -> None:
        """See `Drafter.begin`."""
        self._guard(lambda: self.inner.begin(tokens))

    def observe(self, start: int, tokens: Sequence[int]) -> None:
        """See `FeatureDrafter.observe`."""
        reader = feature_drafter(self.inner)
        if reader is not None:
            self._guard(lambda: reader.observe(start, tokens))

    def holds(self, tokens: Sequence[int], advice: Advice | None = None) -> int:
        """See `FeatureDrafter.holds`; all of it once it has failed."""
        reader, held = feature_drafter(self.inner), len(tokens)

        def ask() -> None:
            nonlocal held
            if reader is not None:
                held = reader.holds(tokens, advice)

        self._guard(ask)
        return held

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """See `Drafter.propose`; the empty draft once it has failed."""
        proposed = EMPTY_DRAFT

        def ask() -> None:
            nonlocal proposed
            draft = self.inner.propose(tokens, budget)
            self._check(draft)
            proposed = draft

        self._guard(ask)
        return proposed

    def commit(self, outcome: Outcome) -> None:
        """See `Drafter.commit`."""
        self._guard(lambda: self.inner.commit(outcome))

    def close(self) -> None:
        """See `Drafter.close`."""
        self._guard(self.inner.close, always=True)

    def _check(self, draft: Draft) -> None:
        if self._vocabulary is None or not draft.tokens:
            return
        for token in (min(draft.tokens), max(draft.tokens)):
            if not 0 <= token < self._vocabulary:
                raise IncompatibleError(
                    f"it proposed the token {token}, and the model has {self._vocabulary} tokens"
                )

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
            if not always:
                self._release()

    def _release(self) -> None:
        """Close what has failed: the target is to keep no states for it."""
        try:
            self.inner.close()
        except Exception:
            logger.exception("the drafter %s could not be closed", self.name)
