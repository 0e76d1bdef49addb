"""The draft length that promises most tokens a second, none included, from measured costs and acceptance.

The criterion is AdaSpec's goodput (arXiv 2503.05096) and TurboSpec's (arXiv 2406.14066): expected tokens of a
step over its time, here with acceptance learnt for each kind of draft token (`estimates`) and time as it is
(`live_cost`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.control.estimates import AcceptanceEstimates
from localspec.control.live_cost import LiveCost
from localspec.stats.theory import acceptance_for
from localspec.types import EMPTY_DRAFT, Budget, Draft, StepStats

MARGIN = 1.1
"""A draft must promise so much more than plain decoding: estimates err, and the best of many errs upwards."""

EXPLORATION = 0.01
"""Share of the time that drafting may cost where it gains nothing."""

_START = 6.0
"""Passes over one token that drafts may lose before speculation pauses for the first time."""
_RESERVE = 4.0
"""Passes that they may be in debt with at most: what has to be made good before it goes on."""
_CREDIT = 16.0
"""Passes that past gains may be worth: what they allow to be lost once the text has changed."""
_FOLLOW = 0.2
_NEW_TURN = 0.5


@dataclass(frozen=True, slots=True)
class _Plan:
    """The best length of a draft, the tokens that its pass is expected to emit, and whether that pays."""

    length: int
    expected: float
    pays: bool


class CostController:
    """Chooses before every step how much of a draft to verify.

    Every draft is compared with what was said, whether it was verified or not, so acceptance goes on being
    learnt while nothing is verified. What drafts gain and lose, in time, is booked: where they lose in spite
    of their estimates, speculation pauses until drafts that were only looked at would have made good for it.
    So the loss against plain decoding is bounded, whatever the text.

    Args:
        cost: T(n), which it keeps up to date.
        longest: draft tokens at most.
        leaves: branches at most.
    """

    def __init__(self, cost: LiveCost, *, longest: int, leaves: int = 1) -> None:
        self.cost = cost
        self.estimates = AcceptanceEstimates()
        self._plan: _Plan | None = None
        self._budget = Budget(longest, leaves)
        self._pending: list[tuple[int, Draft, int]] = []
        self._account = _START
        self._draft_s = 0.0
        self._proposed = False
        self._looks = 0.0
        self._position = 0

    def begin(self) -> None:
        """A new reply: drafts of the one before are no longer judged, and its acceptance counts less."""
        self._pending.clear()
        self.estimates.soften(_NEW_TURN)

    @property
    def reason(self) -> str:
        """What it expects of the newest draft, and what that would have to be at least."""
        if self._account < 0:
            return f"paused: drafts did not pay lately{self._expectation()}"
        if self._plan is None:
            return "on, at the length that pays"
        return f"{'on' if self._plan.pays else 'off'}{self._expectation()}"

    # --- the step

    def budget(self, tokens: Sequence[int]) -> Budget:
        """As much as may be useful; nothing while looking at drafts costs more than it may."""
        self._settle(tokens)
        self._position = len(tokens)
        self._proposed = False
        if self._account < 0 and self._looks > 0:
            return Budget(0)
        self._proposed = True
        return self._budget

    def trim(self, draft: Draft) -> Draft:
        """The beginning of `draft` that promises most tokens a second; empty where plain decoding does."""
        if not len(draft):
            return draft
        survival = self.estimates.survival(draft)
        length = self._best(survival)
        self._pending.append((self._position, draft, length))
        if self._account < 0:
            return EMPTY_DRAFT
        return draft.prefix(length) if length else EMPTY_DRAFT

    def update(self, stats: StepStats) -> None:
        """Learn what the step cost."""
        self.cost.observe(stats.drafted + 1, stats.verify_ns * 1e-9)
        one = self.cost(1)
        spent = stats.draft_ns * 1e-9
        if self._proposed:
            self._draft_s += _FOLLOW * (spent - self._draft_s)
            self._book(-spent / one)
        # Looking at drafts is paid from a share of all time; what it costs beyond waits.
        self._looks = max(self._looks + (spent if self._proposed else 0.0) / one - EXPLORATION, 0.0)

    # --- inner steps

    def _best(self, survival: Sequence[float]) -> int:
        """Nodes to verify."""
        cost, draft_s = self.cost, self._draft_s if self.cost.known else 0.0
        plan, best_rate = None, 0.0
        expected = 1.0
        for length, chance in enumerate(survival, start=1):
            expected += chance
            rate = expected / (draft_s + cost(length + 1))
            if rate > best_rate:
                best_rate, plan = rate, (length, expected)
        pays = best_rate > MARGIN / (draft_s + cost(1))
        length, expected = plan or (0, 1.0)
        self._plan = _Plan(length, expected, pays=pays)
        return length if pays else 0

    def _expectation(self) -> str:
        """Acceptance as expected and at break-even, of the newest draft at its best length."""
        plan = self._plan
        if plan is None or not plan.length:
            return ""
        # What drafting takes is spent whether the draft is verified or not, as in the choice itself.
        draft_s = self._draft_s if self.cost.known else 0.0
        needed = (draft_s + self.cost(plan.length + 1)) / (draft_s + self.cost(1)) * MARGIN
        alpha, least = acceptance_for(plan.expected, plan.length), acceptance_for(needed, plan.length)
        even = "beyond 100 %" if least is None else f"{100 * least:.0f} %"
        tokens = f"{plan.length} {'tokens' if plan.length > 1 else 'token'}"
        return f", {tokens}: acceptance {100 * (alpha or 0.0):.0f} %, break-even {even}"

    def _settle(self, tokens: Sequence[int]) -> None:
        """Compare earlier drafts with what has been said since, once enough has been said to judge them."""
        waiting: list[tuple[int, Draft, int]] = []
        for position, draft, length in self._pending:
            if position > len(tokens):
                # Another text: a new turn, or one that was edited.
                continue
            said = tokens[position : position + len(draft) + 1]
            kept = _common(draft, said)
            if kept == len(said) and kept < len(draft):
                waiting.append((position, draft, length))
                continue
            self.estimates.learn(draft, said)
            if length:
                gained = min(kept, length) - (self.cost(length + 1) / self.cost(1) - 1)
                self._book(gained)
        self._pending = waiting

    def _book(self, gained: float) -> None:
        self._account = min(max(self._account + gained, -_RESERVE), _CREDIT)


def _common(draft: Draft, said: Sequence[int]) -> int:
    """Tokens of `said` that a branch of the draft says too, from the start on."""
    node, count = -1, 0
    for token in said:
        node = draft.child_with(node, token)
        if node < 0:
            break
        count += 1
    return count
