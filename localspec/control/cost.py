"""The draft length that promises most tokens a second, none included, from measured costs and acceptance.

The criterion is AdaSpec's goodput (arXiv 2503.05096) and TurboSpec's (arXiv 2406.14066): expected tokens of a
step over its time, here with acceptance learnt for each kind of draft token (`estimates`) and time as it is
(`live_cost`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from localspec.control.account import START, Account
from localspec.control.comparing import Comparison
from localspec.control.estimates import AcceptanceEstimates
from localspec.control.live_cost import LiveCost
from localspec.control.looks import Looks
from localspec.control.passes import DraftPasses
from localspec.control.plan import Plan
from localspec.types import EMPTY_DRAFT, Budget, Draft, StepStats

MARGIN = 1.1
"""A draft must promise so much more than plain decoding: estimates err, and the best of many errs upwards."""

_CHEAP_LOOKS, _MODEL_LOOKS = 0.005, 0.0033
"""Shares of the time that looks at drafts may cost: at cheap ones, and at those of draft models. What an
unknown model's trials take (`passes`) and what returns of lost passes (`account`) is besides."""

_FIRST_DRAFT = 3
"""Tokens of a draft model's first drafts, before it is known whether they come true."""
_HOPE = 0.85
"""Acceptance that an unknown draft model may have."""
_WORTH = 1.4
"""Times as fast that this would have to be for a model to be tried; any other one is only looked at."""
_CONVINCING = 2
"""Tokens in a row that have to come true before it is even so: those of one look."""
_AFTER_PAUSE = 3.0
"""How much more the next look at a draft model's draft may cost than this one."""
_EARLY_LOOKS = 0.4
"""Passes that looks at cheap drafts may take in a row: a reply that copies does so from its beginning."""
_LEAST_LOOK, _NO_LOOK = 0.02, 0.05
"""Passes that a look which finds nothing counts as at least beside a draft model: to ask takes time too. And
before a cheap drafter has found anything at all: there may be none."""
_RECHECK = 4
"""Tokens after which it is found out anew whether a draft model's drafts are expected to pay."""
_LOOK = 2
"""Tokens of a draft model's drafts that are not expected to pay."""
_HEAD_START = 4
"""Steps of a reply before one is made that is not: a reply that copies shows by then that it does."""
_BESIDE = 16
"""Steps of a reply before one is looked at although a cheaper drafter has found something."""
_OUTLIER = 3.0
"""A cheap draft that took so many times its usual time read text besides, or the machine paused."""
_LONGEST_LOOK = 1.0
"""Passes that a look counts as at most."""
_REST = 3
"""Steps for which nothing is asked once nothing is due: to find that out takes half a per cent of a pass."""
_SHORT_S = 0.02
"""Seconds of a pass from which on that does not matter."""
_FOLLOW = 0.2
"""Weight of the newest draft in the time that drafting takes."""
_NOTHING = Budget(0)
_NEW_TURN = 0.5
"""Weight of what was learnt of acceptance before, in a new reply."""


class CostController:
    """Chooses before every step how much of a draft to verify.

    Every draft is compared with what was said, whether it was verified or not, so acceptance goes on being
    learnt while nothing is verified. What drafts gain and lose, in time, is booked, and no draft may lose
    much more than the account holds: it begins with one pass, and grows with what was gained. Where it is
    empty, speculation pauses until drafts that were only looked at would have filled it. So the loss against
    plain decoding is bounded, whatever the text.

    A draft model pays for every token: it is asked for one more only while that raises the expected tokens a
    second, and now and then for a single one where it does not, within the share of time for exploration.

    Args:
        cost: T(n), which it keeps up to date.
        estimates: acceptance as it was learnt before, likewise; None begins anew.
        longest: draft tokens at most.
        leaves: branches at most.
    """

    def __init__(
        self,
        cost: LiveCost,
        estimates: AcceptanceEstimates | None = None,
        *,
        longest: int,
        leaves: int = 1,
    ) -> None:
        self.cost = cost
        self.estimates = AcceptanceEstimates() if estimates is None else estimates
        self._plan: Plan | None = None
        self._budget = Budget(longest, leaves)
        self._account = Account()
        self._comparison = Comparison(cost, self.estimates, self._account, self._learn)
        self._draft_s = 0.0
        self._proposed = self._earned = False
        self._looks = Looks(_CHEAP_LOOKS, credit=_EARLY_LOOKS)
        self._model_looks = Looks(_MODEL_LOOKS)
        self._position = 0
        self._models: dict[str, DraftPasses] = {}
        self._drafting: DraftPasses | None = None
        self._passes = self._steps = 0
        # Steps until something is asked again, and those that `update` has not seen to.
        self._resting = self._waited = 0
        self._looking = self._trying = self._mixed = False
        self._checked_at: int | None = None
        self._hopeful = True
        self._found = self._cheap = False
        self._made: list[Draft] = []
        self._declined: DraftPasses | None = None

    def begin(self) -> None:
        """A new reply: drafts of the one before are no longer judged, and its acceptance counts less."""
        self._comparison.clear()
        self._made.clear()
        for model in self._models.values():
            model.streak = 0
        self._steps = self._resting = 0
        self.estimates.soften(_NEW_TURN)

    @property
    def reason(self) -> str:
        """What it expects of the newest draft, and what that would have to be at least."""
        plan = self._plan
        if self._account.empty:
            # What is expected of the newest draft is a reason only where it says the same.
            told = "" if plan is None or plan.pays else plan.expectation
            return f"paused: drafts did not pay lately{told}"
        if self._declined is not None:
            return f"off{self._declined.price(self.cost(1))}"
        if plan is None:
            return "on, at the length that pays"
        return f"{'on' if plan.pays else 'off'}{plan.expectation}"

    # --- the step

    def budget(self, tokens: Sequence[int]) -> Budget:
        """As much as may be useful; nothing while looking at drafts costs more than it may."""
        self._position = len(tokens)
        if self._resting:
            self._resting -= 1
            return _NOTHING
        self._comparison.settle(tokens)
        self._proposed = False
        self._drafting, self._passes = None, 0
        self._looking = self._trying = self._mixed = False
        looked = self._looks.due or self._comparison.hopeful
        self._earned = self._account.earned
        if not self._earned and not looked and not self._any_model_asked():
            # What the way back from another width takes is learnt first.
            if not self._comparison.pending and self.cost.width == 1 and self.cost(1) < _SHORT_S:
                self._resting = _REST
            return _NOTHING
        self._proposed = True
        return self._budget

    def more(self, draft: Draft) -> bool:
        """See `Advice.more`."""
        model, size = self._model(draft.source), len(draft)
        before = (self._drafting, self._passes, self._looking, self._trying)
        if not size:
            self._looking, self._trying, self._passes = False, False, 0
            self._meet(model, asked=True)
        wanted = self._pays(model, draft)
        if not wanted and self._affordable(model, size):
            wanted = True
            self._trying = self._trying or not size
        # What does not pay is still looked at, a little of it.
        if not wanted and ((size == 0 and self._may_look) or (self._looking and size < _LOOK)):
            wanted = self._looking = True
        self._declined = None if wanted or size else model
        if wanted:
            self._mixed = self._mixed or self._drafting not in (None, model)
            self._drafting = model
            self._passes += 1
        elif not size:
            # Another one may have drafted before: that is still to be paid for.
            self._drafting, self._passes, self._looking, self._trying = before
        return wanted

    def block(self, source: str) -> bool:
        """See `Advice.block`."""
        model = self._model(source)
        model.whole = True
        return self.more(model.nothing)

    def wants(self, source: str) -> bool:
        """See `Advice.wants`."""
        model = self._model(source)
        self._meet(model, asked=False)
        return self._model_looks.due or self._wanted(model)

    @property
    def looking(self) -> bool:
        """See `Advice.looking`."""
        return self._looking

    def rate(self, draft: Draft) -> float:
        """See `Advice.rate`."""
        if draft.source in self._models and not any(one is draft for one in self._made):
            # Whether it is chosen or not, it is compared with what is said.
            self._made.append(draft)
        costs = self.cost.up_to(len(draft) + 1)
        expected, best = 1.0, 1.0 / costs[0]
        for length, chance in enumerate(self.estimates.survival(draft), start=1):
            expected += chance
            best = max(best, expected / costs[length])
        return best

    def prospect(self, source: str) -> float:
        """See `Advice.prospect`; a model whose draft is to be looked at is given the chance to."""
        model = self._model(source)
        if self._may_look and self._steps >= _BESIDE and not self._pays(model, model.nothing):
            return math.inf
        if model.seconds is None:
            return 0.0
        return model.best_ahead(model.nothing, (), self._costs_ahead(), math.inf)[1]

    def trim(self, draft: Draft) -> Draft:
        """The beginning of `draft` that promises most tokens a second; empty where plain decoding does."""
        self._found = len(draft) > 0
        if self._found:
            self._declined = None
            self._cheap = self._cheap or draft.source not in self._models
        for one in self._made:
            if one is not draft:
                self._comparison.add(self._position, one, 0, verified=False)
        self._made.clear()
        if not self._found:
            return draft
        survival = self.estimates.survival(draft)
        if draft.probs:
            # To choose among drawn tokens by what came of them would change the distribution they follow.
            self._comparison.add(self._position, draft, len(draft), verified=True)
            self._plan = Plan(len(draft), 1.0 + sum(survival), self._needed(len(draft)), settled=True)
            return draft
        within, beyond = self._account.stakes(survival[0])
        if draft.source in self._models:
            # How far it may go was settled while it was drafted: what it took is spent.
            within = beyond
        length = self._best(survival, within)
        if not length and beyond > within:
            length = self._best(survival, beyond)
        # What the account does not allow, or no longer, is only looked at.
        wanted = length or self._best(survival, math.inf)
        self._comparison.add(self._position, draft, wanted, verified=length > 0)
        return draft.prefix(length) if length else EMPTY_DRAFT

    def update(self, stats: StepStats) -> None:
        """Learn what the step cost."""
        self._waited += 1
        if self._resting:
            return
        steps, self._waited = self._waited, 0
        moved = self.cost.moving(stats.drafted + 1)
        self.cost.observe(stats.drafted + 1, stats.verify_ns * 1e-9)
        one = self.cost(1)
        if stats.drafted:
            self._account.book(-moved / one)
        spent = stats.draft_ns * 1e-9
        looked = model_looked = 0.0
        if self._drafting is not None:
            # Those before it in a cascade were asked too; what they take is known about.
            own = spent - min(self._draft_s, spent / 2)
            if not self._mixed:
                # Of two that drafted it is not known what each of them took.
                self.cost.drafting[self._drafting.nothing.source] = self._drafting.took(own, self._passes)
            if self._looking:
                # It has to read what was said meanwhile: its next look costs more than this one did.
                model_looked = _AFTER_PAUSE * own / one
                if stats.drafted and self._plan is not None and self._plan.settled:
                    # Drawn tokens are verified even so.
                    model_looked += max(self.cost(stats.drafted + 1) - one, 0.0) / one
            elif self._trying and not self._earned:
                self._drafting.tried(own / one)
            else:
                self._account.book(-own / one)
            spent -= own
        elif self._proposed:
            usual = self._draft_s or spent
            self._draft_s += _FOLLOW * (min(spent, _OUTLIER * usual) - self._draft_s)
        if self._proposed:
            # Looks have their own share of the time, so that they do not keep others from drafting.
            if self._earned:
                self._account.book(-spent / one)
            else:
                looked = min(spent / one, _LONGEST_LOOK)
                if self._models and not self._found:
                    looked = max(looked, _LEAST_LOOK if self._cheap else _NO_LOOK)
        self._account.recover(steps)
        self._steps += steps
        self._looks.step(looked, steps)
        self._model_looks.step(model_looked, steps)
        for model in self._models.values():
            model.step(steps)

    # --- inner steps

    @property
    def _may_look(self) -> bool:
        """Whether a draft model may draft what is only looked at."""
        return self._model_looks.due and self._steps >= _HEAD_START

    def _model(self, source: str) -> DraftPasses:
        model = self._models.get(source)
        if model is None:
            model = self._models[source] = DraftPasses(source, self.cost.drafting.get(source))
        return model

    def _meet(self, model: DraftPasses, *, asked: bool) -> None:
        """What will hardly pay is not looked at first of all."""
        if not model.met and model.seconds is not None:
            # Until it is asked for a draft, one pass of it may turn out to make a whole one.
            costs = self._costs_ahead()
            model.met = not model.may_pay(costs, _HOPE, whole=not asked, least=_WORTH)
            if model.met:
                # One that cannot pay at all waits as long as after a look.
                could = model.may_pay(costs, _HOPE, whole=not asked)
                look = 0.0 if could else _AFTER_PAUSE * _LOOK * model.seconds / costs[0]
                self._model_looks.step(max(look, _LONGEST_LOOK), 0)
        model.met = model.met or asked

    def _costs_ahead(self) -> list[float]:
        return self.cost.up_to(self._budget.tokens + 1)

    def _promising(self, model: DraftPasses, draft: Draft) -> bool:
        """Whether one more token, or some more, raise the expected tokens a second."""
        costs = self._costs_ahead()
        survival = self.estimates.survival(draft)
        most = costs[0] * (1.0 + self._account.stakes(survival[0] if survival else model.chance)[1])
        here, there = model.best_ahead(draft, survival, costs, most)
        return there > here * (1.0 if survival else MARGIN)

    def _any_model_asked(self) -> bool:
        """Whether one would be asked for the first token of a draft; found out once in a few steps."""
        if not self._models or self._model_looks.due:
            return bool(self._models)
        if self._checked_at is None or not 0 <= self._position - self._checked_at < _RECHECK:
            self._checked_at = self._position
            self._hopeful = any(self._wanted(model) for model in self._models.values())
        return self._hopeful

    def _wanted(self, model: DraftPasses) -> bool:
        """Whether the first token of a draft is expected to pay, or may be tried since that is not known."""
        return self._pays(model, model.nothing) or self._affordable(model, 0)

    def _pays(self, model: DraftPasses, draft: Draft) -> bool:
        """Whether one more token is expected to pay; of one that never drafted a look tells what it takes."""
        return model.seconds is not None and not self._account.empty and self._promising(model, draft)

    def _affordable(self, model: DraftPasses, size: int) -> bool:
        """Whether one more token of an unknown model may be tried."""
        if model.known or model.seconds is None or size >= _FIRST_DRAFT or self._steps < _HEAD_START:
            return False
        # What was gained may be spent on it too.
        most = max(model.trial, self._account.passes - START)
        dear = (size + 1) * model.seconds / self.cost(1) > most
        least = 1.0 if model.streak >= _CONVINCING else _WORTH
        return not dear and model.may_pay(self._costs_ahead(), _HOPE, least=least)

    def _best(self, survival: Sequence[float], stake: float) -> int:
        """Nodes to verify, whose verification costs `stake` passes over one token at most."""
        costs = self.cost.up_to(len(survival) + 1)
        one, draft_s = costs[0], self._spent_s
        best, best_rate, promised = 0, 0.0, 1.0
        expected, most = 1.0, (1.0 + stake) * one
        for length, chance in enumerate(survival, start=1):
            expected += chance
            cost = costs[length] + self.cost.moving(length + 1)
            # No end of the search: sixteen tokens may cost less than nine.
            if cost <= most and expected / (draft_s + cost) > best_rate:
                best, best_rate, promised = length, expected / (draft_s + cost), expected
        self._plan = Plan(best, promised, self._needed(best))
        return best if self._plan.pays else 0

    def _needed(self, length: int) -> float:
        """Tokens that a pass over a draft of `length` has to emit to pay."""
        # What drafting takes is spent whether the draft is verified or not.
        draft_s, widths = self._spent_s, (length + 1, 1)
        drafted, plain = (draft_s + self.cost(width) + self.cost.moving(width) for width in widths)
        return MARGIN * drafted / plain

    @property
    def _spent_s(self) -> float:
        """Seconds that the newest draft took; 0 while it is not known what a second is worth."""
        if not self.cost.known:
            return 0.0
        if self._drafting is not None:
            return self._passes * (self._drafting.seconds or 0.0)
        return self._draft_s

    def _learn(self, draft: Draft, node: int, child: int) -> None:
        """A node of a draft was right, and so was its `child`, or none of them."""
        if draft.source in self._models and node in draft.parents:
            self._models[draft.source].learn(first=node < 0, right=child >= 0)
