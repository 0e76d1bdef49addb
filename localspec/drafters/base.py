"""What a drafter is: something that guesses the next tokens from the verified ones."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Protocol, cast

from localspec.types import Advice, Budget, Draft, Outcome


class Needs(Enum):
    """What a drafter must be given of the target."""

    TOKENS = "tokens"
    HIDDEN = "hidden"
    LAYERS = "layers"


class Drafter(Protocol):
    """A drafting method. It sees only verified tokens and may be wrong: the verifier decides.

    The order of calls is `begin`, then any number of `propose` and `commit` in turn; `commit` follows every
    step, also those for which nothing was proposed, so a drafter that was off knows what was said.

    Attributes:
        name: the method, as telemetry names it.
        needs: what it must be given of the target.
        remembers: whether it keeps what was said in earlier replies, beyond the present sequence.
    """

    name: str
    needs: Needs
    remembers: bool

    def begin(self, tokens: Sequence[int]) -> None:
        """Start a reply on `tokens` (the prompt); they often extend the sequence of the reply before."""

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """Guess what follows `tokens`, with at most `budget.tokens` nodes."""

    def commit(self, outcome: Outcome) -> None:
        """Take in the tokens that a step added, and what became of the draft."""

    def close(self) -> None:
        """Free what the drafter holds."""


class FeatureDrafter(Drafter, Protocol):
    """A drafter that reads the target's hidden states, of every token that the target's cache holds.

    They are there only until the target's next pass. So such a drafter is told of every pass over a prompt as
    it happens (`observe`; `begin` follows once all of it is read), and of every step by `commit`, whose
    outcome names the rows. It takes a copy, once, of the rows that are kept.
    """

    def observe(self, start: int, tokens: Sequence[int]) -> None:
        """The newest pass read `tokens`, which stand at `start` and on; what was known beyond is void."""

    def holds(self, tokens: Sequence[int], advice: Advice | None = None) -> int:
        """How many of the leading `tokens` need not pass through the target again for this drafter's sake.

        Asked before a prompt is read: from then on the drafter has the states of every pass kept, unless
        there is `advice` that no draft of its is wanted.
        """


def feature_drafter(drafter: Drafter) -> FeatureDrafter | None:
    """`drafter` itself where it reads hidden states, else None."""
    return None if drafter.needs is Needs.TOKENS else cast("FeatureDrafter", drafter)
