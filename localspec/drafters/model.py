"""Draft model: a smaller model of the same vocabulary says what the target is likely to say.

Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from localspec.drafters.base import Needs
from localspec.drafters.growing import grown
from localspec.drafters.proof import Proof
from localspec.target import Outputs, TargetContext
from localspec.types import EMPTY_DRAFT, Budget, Draft, Drawing, Outcome, Rows

_GLANCE = 32
"""Tokens that are read for a draft after a pause: to read all that was said may cost many passes."""
_ROWS = 4
"""Tokens to catch up with beyond which they are read by themselves: a row of logits for each costs more."""
_NARROWEST = 64
"""Tokens of the smallest window: below it nothing is known of the text."""


class ModelDrafter:
    """Drafts with a model of its own, token by token, as long as the budget's advice says that it pays.

    Its cache follows the target's text: what was refused is dropped with the next `commit`, and the tokens
    that it has not seen yet (one as a rule, two after full acceptance) go into the first pass of the next
    draft. After a pause it looks back on little at first, and on everything once its drafts come true.

    With more than one branch, the second candidate of every place becomes a sibling of the first where it is
    likelier than what the draft would gain at its end. Second candidates cost the draft model nothing.

    Args:
        context: the draft model's cache.
        vocabulary: tokens of the target; rows of another width are cut or filled up to it.
        greedy: draws where the budget has no drawing.
        name: what telemetry calls it.
        window: tokens that it looks back on at most; None: as many as its cache holds.
        known: tokens that the draft model has; it reads another one in the place of those beyond. None: all.
    """

    needs = Needs.TOKENS
    remembers = False

    def __init__(
        self,
        context: TargetContext,
        vocabulary: int,
        greedy: Drawing,
        *,
        name: str = "model",
        window: int | None = None,
        known: int | None = None,
    ) -> None:
        self.name = name
        self._context = context
        self._vocabulary = vocabulary
        self._greedy = greedy
        self._window = min(max(window or context.capacity, _NARROWEST), context.capacity)
        self._tokens: list[int] = []
        self._known = vocabulary if known is None else known
        self._start = 0
        self._ahead: list[int] = []
        self._glancing = False
        self._proof = Proof()

    def begin(self, tokens: Sequence[int]) -> None:
        """Keep of the cache what `tokens` begin with; read the rest, unless drafts were not wanted lately."""
        held = self._tokens[: self._end]
        shared = next(
            (place for place, (one, two) in enumerate(zip(held, tokens, strict=False)) if one != two),
            min(len(held), len(tokens)),
        )
        self._tokens = list(tokens)
        self._ahead.clear()
        self._keep(min(shared, len(tokens) - 1))
        if self._proof.expected:
            if self._glancing:
                self._start_anew(0)
            self._read(len(tokens) - 1)

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """See `Drafter.propose`."""
        advice = budget.advice
        most = min(budget.tokens, self._window // 2)
        if advice is not None and not advice.more(Draft(source=self.name)):
            return EMPTY_DRAFT

        def following(token: int) -> Rows:
            row = self._row(self._decode([token], "all"))
            self._ahead.append(token)
            return row

        draft = grown(
            tokens,
            replace(budget, tokens=most),
            source=self.name,
            greedy=self._greedy,
            row=self._catch_up(most),
            following=following,
        )
        self._proof.drafted(draft.tokens)
        return draft

    def commit(self, outcome: Outcome) -> None:
        """Drop from the cache what was refused, and take note of what was said."""
        said = outcome.tokens
        right = 0
        while right < min(len(self._ahead), len(said)) and self._ahead[right] == said[right]:
            right += 1
        before = len(self._tokens)
        self._tokens.extend(said)
        if self._ahead:
            self._ahead.clear()
            # The last token is never in the cache: its row is the next draft's first.
            self._keep(min(before + right, len(self._tokens) - 1))
        self._proof.said(said)

    def cut(self, length: int) -> None:
        """Forget all after the first `length` tokens of the text, which then goes on otherwise."""
        held = self._end
        self._ahead.clear()
        del self._tokens[length:]
        self._keep(min(held, length - 1))

    def close(self) -> None:
        """Forget the text; whoever made the context closes it."""
        self._tokens = []
        self._ahead = []
        self._start = 0
        self._context.clear()

    # --- the cache, which holds the tokens from `_start` to `_end`, and then those `_ahead` of them

    @property
    def _end(self) -> int:
        return self._start + self._context.length - len(self._ahead)

    def _keep(self, count: int) -> None:
        """Drop from the cache all that comes after the first `count` tokens of the text."""
        if count <= self._start:
            self._context.clear()
            self._start = 0
        else:
            self._context.keep(count - self._start)

    def _read(self, count: int) -> None:
        """Bring the cache up to the first `count` tokens, the oldest left out where they do not fit."""
        if count - self._start > self._window - 1:
            # Half a window anew, so that it does not have to slide with every token.
            self._context.clear()
            self._start = max(count - self._window // 2, 0)
        while self._end < count:
            piece = self._tokens[self._end : min(count, self._end + self._context.max_batch)]
            self._decode(piece, "none")

    def _catch_up(self, ahead: int) -> Rows:
        """The row after the last token, with room for `ahead` more."""
        size = len(self._tokens)
        if self._glancing and self._proof.given:
            self._start_anew(0)
        elif not self._proof.given and size - self._end > _GLANCE:
            self._start_anew(size - _GLANCE, whole=False)
        if size + ahead - self._start > self._window:
            self._start_anew(max(size - self._window // 2, 0), whole=not self._glancing)
        missing = size - self._end
        if missing > _ROWS:
            self._read(size - 1)
            missing = 1
        return self._row(self._decode(self._tokens[size - missing :], "all"))

    def _start_anew(self, start: int, *, whole: bool = True) -> None:
        """Empty the cache, which then begins at the token `start`: with `whole`, at all there is to read."""
        self._context.clear()
        self._start = start
        self._glancing = not whole

    def _decode(self, tokens: Sequence[int], outputs: Outputs) -> Rows:
        if self._known < self._vocabulary:
            # What the draft model has no token for, hardly ever said, it reads as its first one.
            tokens = [token if token < self._known else 0 for token in tokens]
        return self._context.decode(tokens, outputs)

    def _row(self, rows: Rows) -> Rows:
        """The last row, as wide as the target's."""
        row: Rows = rows[-1]
        if len(row) >= self._vocabulary:
            return row[: self._vocabulary]
        filled = np.full(self._vocabulary, -np.inf, np.float32)
        filled[: len(row)] = row
        return filled
