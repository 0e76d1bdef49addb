"""DSpark: a block drafter whose tokens know of one another, and which says how sure it is of each.

Like DFlash's, one pass makes a block. Inside it a Markov head goes from left to right: the logits of a place
are shifted by the likeliest token of the place before. A confidence head estimates for every place whether
its token will be accepted if those before it are; calibrated, that decides how much of the block is verified.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.drafters.dflash import DFlashDrafter
from localspec.drafters.temperature import Temperatures
from localspec.target import HeadContext, Tap
from localspec.types import Budget, Draft, Drawing, Outcome


class DSparkDrafter(DFlashDrafter):
    """Drafts with a DSpark head, whose confidence is calibrated by what became of its tokens.

    Args:
        head: its passes.
        tap: the states of the target's layers that it reads.
        vocabulary: tokens of the target.
        greedy: draws where the budget has no drawing.
        name: what telemetry calls it.
        block: tokens of a block.
        mask: the token that stands for one to be filled in.
        from_anchor: whether the first row, of the last token that was said, gives a draft token already.
        has_confidence: whether it has a confidence head; else its distributions tell how sure it is.
    """

    def __init__(
        self,
        head: HeadContext,
        tap: Tap,
        *,
        vocabulary: int,
        greedy: Drawing,
        name: str = "dspark",
        block: int,
        mask: int,
        from_anchor: bool = True,
        has_confidence: bool = True,
    ) -> None:
        super().__init__(head, tap, vocabulary=vocabulary, greedy=greedy, name=name, block=block, mask=mask)
        self._first_row = 0 if from_anchor else 1
        self._has_confidence = has_confidence
        self._temperatures = Temperatures(block)
        self._asked: list[tuple[int, float]] = []

    def begin(self, tokens: Sequence[int]) -> None:
        """See `Drafter.begin`."""
        super().begin(tokens)
        # A draft whose step came to nothing is not held against another text.
        self._asked.clear()

    def commit(self, outcome: Outcome) -> None:
        """See `Drafter.commit`; what was said tells how the tokens of a draft fared, verified or not."""
        super().commit(outcome)
        for place, ((token, confidence), said) in enumerate(zip(self._asked, outcome.tokens, strict=False)):
            self._temperatures.learn(place, confidence, right=token == said)
            if token != said:
                break
        self._asked.clear()

    def _drawn(self, tokens: Sequence[int], budget: Budget) -> Draft:
        drawing = budget.drawing or self._greedy
        chain: list[int] = []
        chances: list[float] = []
        probs = []
        self._asked.clear()
        while len(chain) < budget.tokens:
            place = self._first_row + len(chain)
            row = self._row(place)
            found = drawing.draw(row, tokens, chain, 1)
            if not found.tokens:
                break
            likeliest = found.tokens[0] == int(row.argmax())
            chance = found.chances[0]
            # Where the distribution is judged too, a chance must not depend on what was drawn from it.
            if self._has_confidence and (likeliest or found.probs is not None):
                chance = float(self._head.state(place)[0])
            calibrated = self._temperatures.chance(len(chain), chance)
            chances.append((chances[-1] if chances else 1.0) * calibrated)
            chain.append(found.tokens[0])
            if found.probs is not None:
                probs.append(found.probs)
            if not likeliest:
                # The places behind it were filled in after another token.
                break
            self._asked.append((chain[-1], chance))
        return Draft(
            tokens=tuple(chain),
            parents=tuple(range(-1, len(chain) - 1)),
            confidence=tuple(chances),
            probs=tuple(probs),
            source=self.name,
        )
