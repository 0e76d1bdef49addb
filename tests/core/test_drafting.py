"""Drafters that fail, and what outlives a change of the drafter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.control import CostController, FixedLength, LiveCost, Off
from localspec.cost_presets import CURVES
from localspec.drafters import METHODS, make_drafter
from localspec.drafters.guarded import GuardedDrafter
from localspec.drafting import Drafting
from localspec.engine import Engine
from localspec.errors import LocalspecError, StorageError, UsageError
from localspec.messages import Event, Generate, Note, SpeculationChanged, Step
from localspec.testing import OracleDrafter, ScriptedModel
from localspec.types import (
    EMPTY_DRAFT,
    Budget,
    ChatMessage,
    Draft,
    DraftOptions,
    EngineOptions,
    Outcome,
    SamplingParams,
)


class Breaking(OracleDrafter):
    """Fails in one of its methods, after a few calls that go well."""

    name = "breaking"

    def __init__(self, where: str, error: Exception, after: int = 0) -> None:
        super().__init__([])
        self.where, self.error, self.left = where, error, after
        self.calls: list[str] = []

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if name == self.where:
            self.left -= 1
            if self.left < 0:
                raise self.error

    def begin(self, tokens: Sequence[int]) -> None:
        self._call("begin")

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        self._call("propose")
        return Draft.chain(list(tokens[-2:]), source=self.name)

    def commit(self, outcome: Outcome) -> None:
        self._call("commit")

    def close(self) -> None:
        self._call("close")


ERRORS = [StorageError("The draft's file is gone."), ZeroDivisionError("division by zero"), MemoryError()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("where", ["begin", "propose", "commit", "close"])
def test_a_drafter_that_failed_is_asked_no_more(where: str, error: Exception) -> None:
    inner = Breaking(where, error)
    drafter = GuardedDrafter(inner)
    assert (drafter.name, drafter.needs, drafter.remembers) == (inner.name, inner.needs, inner.remembers)
    drafter.begin([1, 2])
    first = drafter.propose([1, 2], Budget(4))
    assert len(first) == (0 if where in ("begin", "propose") else 2)
    drafter.commit(Outcome((3,), 0, 0))
    if where == "close":
        assert drafter.problem is None
    else:
        # The target is to keep no states for it.
        assert inner.calls[-1] == "close"
        said = len(inner.calls)
        assert drafter.propose([1, 2, 3], Budget(4)) is EMPTY_DRAFT
        drafter.begin([1])
        assert len(inner.calls) == said
    drafter.close()
    assert inner.calls[-1] == "close"
    assert drafter.problem is not None
    own = isinstance(error, LocalspecError)
    assert drafter.problem == str(error) if own else drafter.problem.startswith(type(error).__name__)


@pytest.mark.parametrize("token", [-1, 10, 2**31 - 1])
def test_a_draft_that_the_model_cannot_read_is_a_failure(token: int) -> None:
    """Such as from a memory that somebody made by hand: llama.cpp would refuse the whole pass."""
    drafter = GuardedDrafter(Breaking("never", ValueError()), vocabulary=10)
    assert drafter.propose([0, 9], Budget(4)).tokens == (0, 9)
    assert drafter.problem is None
    assert drafter.propose([3, token], Budget(4)) is EMPTY_DRAFT
    assert drafter.problem == f"it proposed the token {token}, and the model has 10 tokens"


def drafting(options: DraftOptions, *, can_trim: bool = True) -> Drafting:
    made = Drafting(options, "coupled", None, enabled=True)
    made.attach(ScriptedModel(can_trim=can_trim), LiveCost(CURVES["gpu"]))
    return made


def test_costs_and_acceptance_outlive_drafters_and_switching() -> None:
    made = drafting(DraftOptions())
    first = made.controller()
    assert isinstance(first, CostController)
    made.switch(False)
    assert isinstance(made.controller(), Off)
    assert made.controller().reason == "switched off"
    made.switch(True)
    assert made.controller() is first
    made.use(DraftOptions("ngram", 12))
    second = made.controller()
    assert isinstance(second, CostController)
    assert second is not first
    assert (second.cost, second.estimates) == (first.cost, first.estimates)
    assert (first.budget([1]).tokens, second.budget([1]).tokens) == (48, 12)


def test_the_policy_and_its_length() -> None:
    assert drafting(DraftOptions("ngram", policy="fixed")).controller().budget([]) == Budget(8)
    assert drafting(DraftOptions("ngram", 5, policy="fixed")).controller().budget([]) == Budget(5)
    assert drafting(DraftOptions("ngram", 5, policy="fixed:3")).controller().budget([]) == Budget(3)
    assert isinstance(drafting(DraftOptions(policy="fixed")).controller(), FixedLength)
    assert drafting(DraftOptions(policy="off")).controller().budget([]) == Budget(0)
    assert drafting(DraftOptions("none")).controller().reason == "no drafter was chosen"
    stuck = drafting(DraftOptions(), can_trim=False)
    assert not stuck.enabled
    assert "cannot be rolled back" in stuck.controller().reason
    for options in (DraftOptions(policy="luck"), DraftOptions(policy="cost:3"), DraftOptions("luck")):
        with pytest.raises(UsageError, match=r"luck|cost"):
            drafting(options)
        kept = drafting(DraftOptions("ngram"))
        with pytest.raises(UsageError):
            kept.use(options)
        assert kept.options.spec == "ngram"


def test_auto_drafts_by_suffixes_and_says_so() -> None:
    drafter = make_drafter(DraftOptions("auto"))
    drafter.begin([1, 2, 3, 4, 5, 6, 7, 8, 9, 3, 4, 5])
    draft = drafter.propose([], Budget(4))
    assert draft.tokens[:2] == (6, 7)
    assert (draft.source, drafter.name, drafter.remembers) == ("suffix", "suffix", True)
    assert DraftOptions() == DraftOptions("auto", policy="cost")


@pytest.mark.model
@pytest.mark.parametrize(("where", "after"), [("begin", 0), ("propose", 0), ("propose", 4), ("commit", 2)])
def test_a_reply_goes_on_without_its_drafter_and_says_so_once(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, after: int
) -> None:
    monkeypatch.setitem(METHODS, "breaking", lambda *given: Breaking(where, ZeroDivisionError("oh"), after))

    def said(spec: str) -> tuple[list[tuple[int, ...]], list[Event]]:
        events: list[Event] = []
        options = EngineOptions(context=256, threads=1, draft=DraftOptions(spec, policy="fixed:2"))
        engine = Engine(smollm2_path, "smollm2", options)
        try:
            asked = (ChatMessage("user", "Name three rivers."),)
            replies = [
                engine.generate(Generate(n, asked, None, SamplingParams(seed=5), 12), events.append).reply
                for n in range(2)
            ]
            if spec == "breaking":
                assert not engine.speculation.enabled
                assert not engine.calibrate()
                # Another drafter is a new start.
                assert engine.set_drafter(DraftOptions("ngram")).enabled
        finally:
            engine.close()
        return [reply.token_ids for reply in replies], events

    plain, _ = said("none")
    broken, events = said("breaking")
    assert broken == plain
    notes = [event.text for event in events if isinstance(event, Note)]
    assert notes == ["The drafter breaking failed (ZeroDivisionError: oh). The chat goes on without drafts."]
    changes = [event for event in events if isinstance(event, SpeculationChanged) and not event.enabled]
    assert {(change.draft, change.reason) for change in changes} == {("breaking", "the drafter failed")}
    steps = [event.stats for event in events if isinstance(event, Step)]
    assert not any(step.drafted for step in steps[-12:])
