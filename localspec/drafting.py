"""The engine's side of speculation: which drafter and which policy, on or off, and what they have learnt."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.control import Controller, LiveCost, Off, check_policy, make_controller
from localspec.control.estimates import AcceptanceEstimates
from localspec.draft_models import DraftModels
from localspec.drafters import (
    DEFAULT_LENGTH,
    LONGEST,
    check_spec,
    has_probs,
    make_drafter,
    remembers,
)
from localspec.drafters.guarded import GuardedDrafter
from localspec.drafters.none import NoDrafter
from localspec.errors import EngineError, LocalspecError
from localspec.memory.memory import Memory
from localspec.session import Session
from localspec.target import TargetContext
from localspec.types import DraftOptions, EngineOptions, Trial
from localspec.verify import check_verify


def memory_of(options: EngineOptions, fingerprint: str) -> Memory | None:
    """The memory of earlier replies for a tokenizer, not read yet; None where nothing is to be remembered."""
    if options.memory is None or not fingerprint:
        return None
    return Memory.of_file(Path(options.memory), fingerprint, options.memory_capacity)


class Drafting:
    """Makes drafters and controllers. Costs and acceptance outlive both: what was learnt stays learnt.

    Args:
        options: the drafter and the policy to start with.
        verify: the rule of verification, which has to be able to judge the drafter.
        memory: earlier replies; read here where the drafter remembers.
        enabled: whether speculation starts switched on.
        vocabulary: how many tokens the model has; None does not check drafts.

    Raises:
        UsageError: an unknown drafter or policy, or one that the rule cannot judge.
    """

    def __init__(
        self,
        options: DraftOptions,
        verify: str,
        memory: Memory | None,
        *,
        enabled: bool,
        vocabulary: int | None = None,
    ) -> None:
        self.check(options, verify)
        self._verify = verify
        self._vocabulary = vocabulary
        self._memory = memory
        self.options = options
        self._models: DraftModels | None = None
        self._enabled = enabled
        self._estimates = AcceptanceEstimates()
        self._controller: Controller | None = None
        self._told = False
        self._absent: str | None = None
        self._recall(options)

    @staticmethod
    def check(options: DraftOptions, verify: str) -> None:
        """Raise `UsageError` for a drafter or policy that there is not, or that `verify` cannot judge."""
        check_spec(options)
        check_policy(options.policy)
        check_verify(verify, drafter=options.spec, has_probs=has_probs(options))

    def attach(
        self,
        context: TargetContext,
        cost: LiveCost,
        models: DraftModels | None = None,
        *,
        needed: bool = True,
    ) -> None:
        """Take the context and its costs, and make the drafter, before anything else is asked for.

        Args:
            context: the target's.
            cost: T(n) there.
            models: loads draft models; None where there can be none.
            needed: whether a draft model that cannot be had is an error; else there are no drafts.

        Raises:
            LocalspecError: a draft model that is needed cannot be had, see `DraftModels.drafter`.
        """
        self._context = context
        self._cost = cost
        self._models = models
        try:
            self.drafter = self._make(self.options)
        except LocalspecError as error:
            if needed:
                raise
            self._absent = str(error)
            self.drafter = GuardedDrafter(NoDrafter())

    @property
    def enabled(self) -> bool:
        """Whether speculation is on and possible."""
        return self._why_off() is None

    def switch(self, enabled: bool) -> None:
        """Switch speculation on or off; `controller` is another one then."""
        self._enabled = enabled

    def use(self, options: DraftOptions) -> GuardedDrafter:
        """Another drafter and policy; the drafter is returned, the one before is to be closed.

        Raises:
            LocalspecError: as for the constructor and for `attach`; all is as before then.
        """
        self.drafter = self._make(options)
        if _files(options) != _files(self.options):
            # Another file may go by the name of one before.
            self._cost.drafting.clear()
        self.options = options
        self._enabled = True
        self._controller = None
        self._told = False
        self._absent = None
        return self.drafter

    def controller(self) -> Controller:
        """The controller for things as they are."""
        off = self._why_off()
        if off is not None:
            return Off(off)
        if self._controller is None:
            self._controller = self._made_controller(self.options, self._estimates)
        return self._controller

    def begin(self) -> None:
        """A new reply begins, whether drafts are on or not."""
        if self._controller is not None:
            self._controller.begin()

    def take_problem(self) -> str | None:
        """What ended the drafter, the first time it is asked after that; `controller` is another one then."""
        if self._told:
            return None
        if self._absent is not None:
            self._told = True
            return self._absent
        if self.drafter.problem is None:
            return None
        self._told = True
        return f"The drafter {self.options.spec} failed ({self.drafter.problem.rstrip('.')})."

    @contextmanager
    def lend(self, session: Session, trial: Trial) -> Iterator[None]:
        """Have `session` make one reply with the drafter and the policy of `trial`.

        What was learnt so far is known to both, and they teach nothing.

        Raises:
            LocalspecError: as for `use`; all is as before then.
            EngineError: the drafter failed in the middle of the reply, which says nothing of it then.
        """
        options = trial.draft
        # It may share a draft model, whose cache is for one text.
        session.drafter.close()
        session.drafter = drafter = self._make(options, trial.verify)
        if options.spec == "none" or not self._context.can_trim:
            session.controller = Off("no drafter was chosen")
        else:
            session.controller = self._made_controller(options, copy.deepcopy(self._estimates))
        try:
            yield
        finally:
            session.drafter.close()
            # Those of now: they may have been changed meanwhile.
            session.drafter, session.controller = self.drafter, self.controller()
        if drafter.problem is not None:
            raise EngineError(f"The drafter {options.spec} failed ({drafter.problem.rstrip('.')}).")

    # --- inner steps

    def _why_off(self) -> str | None:
        if self.options.spec == "none":
            return "no drafter was chosen"
        if not self._context.can_trim:
            return "this model's state cannot be rolled back"
        if self._absent is not None:
            return "the draft model cannot be used"
        if self.drafter.problem is not None:
            return "the drafter failed"
        return None if self._enabled else "switched off"

    def _make(self, options: DraftOptions, verify: str | None = None) -> GuardedDrafter:
        self.check(options, verify or self._verify)
        self._recall(options)
        models = self._models
        if models is None:
            return GuardedDrafter(make_drafter(options, self._memory), self._vocabulary)
        made = make_drafter(
            options,
            self._memory,
            lambda name: models.drafter(name, options),
            lambda name: models.companion(name, options),
        )
        return GuardedDrafter(made, self._vocabulary)

    def _recall(self, options: DraftOptions) -> None:
        """Read what is remembered, where a drafter has use for it."""
        if self._memory is not None and remembers(options.spec):
            self._memory.load()

    def _made_controller(self, options: DraftOptions, estimates: AcceptanceEstimates) -> Controller:
        usual = DEFAULT_LENGTH if options.policy.partition(":")[0] == "fixed" else LONGEST
        return make_controller(
            options.policy,
            self._cost,
            longest=options.length or usual,
            leaves=min(options.leaves, self._context.max_leaves),
            estimates=estimates,
        )


def _files(options: DraftOptions) -> tuple[object, ...]:
    """What decides how long drafting takes."""
    return (options.spec, options.files, options.companions, options.window, options.gpu_layers)
