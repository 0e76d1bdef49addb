"""What drafters have in common that read the target's hidden states, and run a head with its own cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.drafters.base import Needs
from localspec.drafters.proof import Proof
from localspec.target import HeadContext, Tap
from localspec.types import EMPTY_DRAFT, Advice, Budget, Draft, Drawing, Outcome, Rows

States = NDArray[np.float32]

_BACKLOG = 256
"""States that wait at most: fed in passes over many of them, they cost least."""
_GLANCE = 16
"""States that are fed for a draft which may come to nothing: each costs a good part of a draft token."""
_PATIENCE = 12
"""Steps without a draft being wanted after which states are no longer copied."""

_REFUSAL = 3
"""Steps that one counts as in which a draft was refused."""


class HiddenDrafter(ABC):
    """Keeps a head's cache in step with the target's text.

    The target's states belong to positions of the text. They are copied once, when it is known that they stay
    (`observe`, `commit`), and wait until a draft is wanted or many have come together; then they are fed to
    the head. So nothing is drafted from stale states, however often drafting is switched off and on.

    Three places tell how far things are: the head has taken in what stands from `_first` to `_fed`, and from
    there to `_known` states are waiting. A drafter that comes in the middle of a text begins there, and has
    the next prompt read anew.

    While drafts do not come true, little is spent on them: of what waits for one that is only to learn from,
    or has waited for long, the newest states alone are fed, as if the text began with them; and where none is
    wanted for some steps, states are not even copied until one is, and there are enough of them again.

    Args:
        head: its passes and its cache.
        tap: the target's states.
        vocabulary: tokens of the target; rows of another width are cut or filled up to it.
        greedy: draws where the budget has no drawing.
        name: what telemetry calls it.
    """

    needs = Needs.LAYERS
    remembers = False
    _lag = 0
    """1 where a state goes into the head together with the token after it, else 0."""
    _shift = 0
    """How far beyond the position of its state a row stands in the head's cache."""

    def __init__(self, head: HeadContext, tap: Tap, *, vocabulary: int, greedy: Drawing, name: str) -> None:
        self.name = name
        self._head = head
        self._tap = tap
        self._vocabulary = vocabulary
        self._greedy = greedy
        self._tokens: list[int] = []
        self._waiting: list[States] = []
        self._first = self._fed = self._known = 0
        # The head may hold another drafter's text, which goes before the first state comes.
        self._ahead = True
        self._proof = Proof()
        # Whether it has left out what was said before `_first`.
        self._skipped = False
        self._asleep, self._idle = False, 0
        self._listening = False

    # --- the drafter's calls

    def observe(self, start: int, tokens: Sequence[int]) -> None:
        """See `FeatureDrafter.observe`."""
        self._forget_from(start + _shared(self._tokens[start:], tokens))
        if start == 0 and self._listening:
            self._skipped = False
        if self._fed > start:
            # They are fed once more; what stands before them stays.
            self._rewind(start)
        elif self._known > start:
            self._cut(start)
        if len(self._tokens) < start:
            # Nobody told of the tokens before: their states are missing too.
            self._tokens += [-1] * (start - len(self._tokens))
        self._tokens[start:] = tokens
        if self._listening:
            self._take(start, slice(0, len(tokens)), len(tokens))
            self._bound(worth=self._proof.expected)

    def begin(self, tokens: Sequence[int]) -> None:
        """See `Drafter.begin`."""
        self._forget_from(_shared(self._tokens, tokens))
        self._tokens = list(tokens)
        self._idle = -_GLANCE if self._skipped else 0
        if not self._asleep:
            self._listen(on=True)
        self._cut(len(tokens) - 1)
        if self._proof.expected:
            # A prompt is read where prompts are, so that a reply's first draft does not wait for it.
            self._catch_up(leave=self._lag)

    @abstractmethod
    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """See `Drafter.propose`."""

    def commit(self, outcome: Outcome) -> None:
        """See `Drafter.commit`."""
        root = len(self._tokens) - 1
        self._tokens.extend(outcome.tokens)
        self._proof.said(outcome.tokens)
        # Where others draft, it may be the next to.
        self._idle = 0 if outcome.drafted else self._idle + 1
        if self._idle > _PATIENCE and not (self._asleep or self._proof.given):
            self._asleep = True
            self._skipped = self._skipped or self._first == 0
            self._cut(self._fed)
            self._listen(on=False)
        if not self._listening:
            return
        kept = outcome.rows
        straight = kept[-1] == len(kept) - 1
        self._take(root, slice(0, len(kept)) if straight else kept, len(kept))
        self._bound(worth=self._proof.given)

    def holds(self, tokens: Sequence[int], advice: Advice | None = None) -> int:
        """See `FeatureDrafter.holds`."""
        slept, shared = self._asleep, _shared(self._tokens, tokens)
        hopeless = advice is not None and not advice.wants(self.name)
        if slept:
            # It wakes up for a text that is read from its beginning, or where drafts are to be expected.
            self._asleep = hopeless or (shared > 0 and not self._proof.expected)
        elif not self._listening and hopeless:
            # It does not even begin to listen.
            self._asleep = self._skipped = True
        if self._asleep:
            return len(tokens)
        self._listen(on=True)
        if self._first > 0 and not self._skipped:
            # What was said before it came is missing.
            return 0
        if slept:
            # Asked again before anything is read, it says the same.
            self._restart(shared)
            return len(tokens)
        if self._skipped and shared <= self._first:
            return len(tokens)
        fed = self._still_fed(shared)
        return fed if fed < self._fed else min(self._known, shared)

    def close(self) -> None:
        """Forget the text; whoever made the head closes it."""
        self._tokens = []
        self._restart(0)
        self._head.clear()
        self._ahead = self._skipped = self._asleep = False
        self._idle = 0
        self._listen(on=False)

    # --- for the methods

    @abstractmethod
    def _feed(self, start: int, tokens: Sequence[int], states: States) -> None:
        """One pass that takes in the states of `start` and on, which the `tokens` follow one by one.

        Args:
            start: position of the first state; the head's cache ends `_shift` beyond it.
            tokens: the text's tokens after each state; without a `_lag` the last one may be missing.
            states: shape [rows, width of the tap], `head.max_batch` rows at most.
        """

    def _ready(self, tokens: Sequence[int], budget: Budget) -> bool:
        """Whether the states of all `tokens` but the last are there, so that a draft can go on from them.

        A drafter that sleeps wakes up if a draft is wanted, and is ready once there are some states again.
        """
        if self._asleep:
            if budget.advice is None or budget.advice.wants(self.name):
                # It takes some states before there can be a draft.
                self._asleep, self._idle = False, -_GLANCE
                self._listen(on=True)
            return False
        if not self._first < len(tokens) - 1 == self._known:
            return False
        return not self._skipped or self._known - self._first >= min(_GLANCE, self._known)

    def _catch_up(self, leave: int = 0) -> None:
        """Feed what waits, but for the last `leave` states, and drop the cells of an earlier draft."""
        self._drop_drafted()
        end = min(self._known, len(self._tokens) - self._lag) - leave
        while self._fed < end:
            count = min(end - self._fed, self._head.max_batch)
            start, tokens, states = self._next(count)
            self._feed(start, tokens, states)

    def _next(self, count: int) -> tuple[int, list[int], States]:
        """The first `count` states that wait, their position and the tokens after them; they count as fed."""
        start, states = self._fed, self._waiting[0]
        if len(self._waiting) > 1:
            states = np.concatenate(self._waiting)
        self._waiting = [states[count:]] if count < len(states) else []
        self._fed += count
        return start, self._tokens[start + 1 : start + 1 + count], states[:count]

    def _newest(self) -> States:
        """The newest state that waits, shape [width of the tap]; it goes on waiting."""
        newest: States = self._waiting[-1][-1]
        return newest

    def _drafting(self) -> None:
        """From here on the head's cache holds a draft behind the text, which is dropped before it is fed."""
        self._ahead = True

    def _refused(self, advice: Advice) -> Draft:
        """No draft, since it was not agreed to: if none is wanted soon either, it may go to sleep sooner."""
        if not advice.wants(self.name):
            self._idle += _REFUSAL
        return EMPTY_DRAFT

    def _glance(self, budget: Budget) -> None:
        """Leave out most of what waits if the draft that was just agreed to is only to learn from."""
        looking = budget.advice is not None and budget.advice.looking
        if looking and not self._proof.given and self._known - self._fed > 2 * _GLANCE:
            self._skip(self._known - _GLANCE)

    def _made(self, draft: Draft) -> Draft:
        """A draft that was made; it will be seen whether it comes true."""
        self._idle = 0
        self._proof.drafted(draft.tokens)
        return draft

    def _row(self, number: int) -> Rows:
        """Logits of a row of the head's newest pass, as wide as the target's."""
        row: Rows = self._head.logits(number)
        if len(row) >= self._vocabulary:
            return row[: self._vocabulary]
        filled = np.full(self._vocabulary, -np.inf, np.float32)
        filled[: len(row)] = row
        return filled

    def _listen(self, *, on: bool) -> None:
        """Have the target's states kept from its next pass on, or no longer."""
        if on != self._listening:
            self._listening = on
            (self._tap.resume if on else self._tap.pause)()

    # --- places

    def _take(self, start: int, rows: Sequence[int] | slice, count: int) -> None:
        """States of the target's newest pass, which belong to `count` positions from `start` on."""
        if start > self._known:
            # Those between are missing: begin anew from here.
            self._restart(start)
        self._waiting.append(self._tap.rows(rows))
        self._known = start + count

    def _bound(self, *, worth: bool) -> None:
        """See to it that not too many states wait: they are fed where that is `worth` it, or left out."""
        if self._known - self._fed < _BACKLOG:
            return
        if worth:
            # What goes in with the token after it has the first row of the next draft.
            self._catch_up(leave=self._lag)
        else:
            self._skip(self._known - _GLANCE)

    def _still_fed(self, shared: int) -> int:
        """How much of what was fed is right still if only the first `shared` tokens are."""
        return min(self._fed, max(shared - self._lag, 0))

    def _forget_from(self, shared: int) -> None:
        """All after the first `shared` tokens is void."""
        fed = self._still_fed(shared)
        if fed < self._fed:
            # The states behind it are in the head, with a token that is not theirs any more.
            self._rewind(fed)
        else:
            self._cut(shared)

    def _rewind(self, fed: int) -> None:
        """Take back what was fed of the positions from `fed` on; no states wait then."""
        if fed <= self._first:
            self._restart(0 if fed < self._first else fed)
            return
        self._waiting = []
        self._fed = self._known = fed
        self._ahead = True

    def _cut(self, known: int) -> None:
        """Drop the states of positions from `known` on, which wait."""
        if known >= self._known:
            return
        if known < self._fed:
            self._rewind(known)
            return
        count = known - self._fed
        self._waiting = [np.concatenate(self._waiting)[:count]] if count else []
        self._known = known

    def _skip(self, place: int) -> None:
        """Leave out what waits before `place`, and with it all that was fed."""
        self._waiting = [np.concatenate(self._waiting)[place - self._fed :]]
        self._first = self._fed = place
        self._ahead = self._skipped = True

    def _restart(self, place: int) -> None:
        """No states are known, and the next ones are those of the position `place`."""
        self._waiting = []
        self._first = self._fed = self._known = place
        self._ahead = True

    def _drop_drafted(self) -> None:
        if not self._ahead:
            return
        self._ahead = False
        if self._fed > self._first:
            self._head.keep(self._fed + self._shift)
        else:
            self._head.clear()


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that both begin with."""
    count = min(len(one), len(other))
    if list(one[:count]) == list(other[:count]):
        return count
    return next(place for place in range(count) if one[place] != other[place])
