"""Replies that grow side by side on a scripted target: what they say, what they count, who failed."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from localspec.bench.driver import Driver, Reply
from localspec.bench.records import Configuration
from localspec.bench.rounds import plain_beside, side_by_side
from localspec.bench.slices import SLICE
from localspec.drafters import Needs
from localspec.drafters.ngram import NgramDrafter
from localspec.errors import EngineError
from localspec.target import Outputs
from localspec.testing import ScriptedModel
from localspec.types import Advice, Budget, Draft, Outcome, Rows

PROMPT = (5, 6, 7, 8, 5, 6, 7)
FORCED = tuple([9, 10, 11, 12, 13] * 12)
PLAIN = None
CONTESTANTS = {
    "plain": PLAIN,
    "2": Configuration(draft="ngram", length=2),
    "8": Configuration(draft="suffix", length=8),
    "cost": Configuration(draft="suffix", policy="cost"),
}


def driver_of(model: ScriptedModel, hush: list[bool] | None = None) -> Driver:
    ticks = itertools.count(0, 1000)
    said = hush if hush is not None else []
    costs = {1: 0.001, 9: 0.002, 64: 0.004}
    return Driver(model, model, clock=lambda: next(ticks), pass_ms=costs, hush=said.append)


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("prompt", [PROMPT, PROMPT[:1], PROMPT * 30])
def test_every_reply_takes_the_steps_that_it_takes_alone(number: int, prompt: tuple[int, ...]) -> None:
    driver = driver_of(ScriptedModel())
    reply = Reply(prompt, tokens=60, forced=FORCED)
    driver.prefill(prompt)
    runs, failed = driver.together(reply, CONTESTANTS, {}, number)
    assert not failed
    assert list(runs) == list(CONTESTANTS)
    for name, configuration in CONTESTANTS.items():
        alone = driver.plain(reply) if configuration is None else driver.speculative(reply, configuration)
        assert runs[name].token_ids == alone.token_ids == FORCED
        taken, steps = runs[name].steps, alone.steps
        assert [(s.position, s.drafted, s.accepted) for s in taken] == [
            (s.position, s.drafted, s.accepted) for s in steps
        ]
    assert len(runs["8"].steps) < len(runs["2"].steps) < len(runs["plain"].steps)


def test_time_of_others_is_not_counted() -> None:
    driver = driver_of(ScriptedModel())
    reply = Reply(PROMPT, tokens=60, forced=FORCED)
    runs, _ = driver.together(reply, CONTESTANTS, {})
    alone = driver.plain(reply)
    # The clock ticks a microsecond a reading; the bench reads it twice a step, which counts within a slice.
    slices = (len(FORCED) - 1) // SLICE
    assert runs["plain"].seconds == pytest.approx(alone.seconds - slices * 1e-6)
    for run in runs.values():
        times = [step.time_ns for step in run.steps]
        assert times == sorted(times)
        # Coming back reads it some times a slice.
        assert times[-1] * 1e-9 <= run.seconds + slices * 6e-6


def test_a_slice_begins_with_a_pass_as_wide_as_the_last_one() -> None:
    model = ScriptedModel()
    driver = driver_of(model)
    driver.prefill(PROMPT)
    before = len(model.passes)
    driver.together(Reply(PROMPT, tokens=60, forced=FORCED), {"plain": PLAIN, "a": CONTESTANTS["8"]}, {})
    passes = model.passes[before:]
    # Plain: one of its own and eight that count. Then the other one, which nothing was drafted for yet.
    assert passes[: 2 * (1 + SLICE)][: 1 + SLICE] == [1] * (1 + SLICE)
    wide = [place for place, width in enumerate(passes) if width == 9]
    assert len(wide) >= 4
    # Where it comes back after a draft of eight, a pass of nine over what is there already goes before.
    assert any(passes[place - 1] == 9 for place in wide[1:])


class Broken(ScriptedModel):
    """Fails in its n-th pass."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self._nth = nth

    def decode(self, tokens: Sequence[int], outputs: Outputs) -> Rows:
        if len(self.passes) == self._nth:
            self.passes.append(0)
            raise EngineError("The pass failed.")
        return super().decode(tokens, outputs)


@pytest.mark.parametrize("nth", range(1, 60))
def test_who_fails_is_out_and_the_others_say_all(nth: int) -> None:
    driver = driver_of(Broken(nth))
    driver.prefill(PROMPT)
    reply = Reply(PROMPT, tokens=60, forced=FORCED)
    runs, failed = driver.together(reply, CONTESTANTS, {})
    assert len(failed) == 1
    assert runs.keys() | failed.keys() == CONTESTANTS.keys()
    assert all(run.token_ids == FORCED for run in runs.values())
    assert driver.plain(reply).token_ids == FORCED


class Reading(NgramDrafter):
    """Drafts from the text, and looks whether states are kept when it is shown some."""

    needs = Needs.LAYERS

    def __init__(self, model: ScriptedModel, hushed: list[bool]) -> None:
        super().__init__()
        self.model, self.hushed = model, hushed
        self.shown: list[int] = []
        self.closed = False

    def observe(self, start: int, tokens: Sequence[int]) -> None:
        assert not self.hushed or not self.hushed[-1]
        assert self.model.cached[start:] == tuple(tokens)
        self.shown[start:] = tokens

    def holds(self, tokens: Sequence[int], advice: Advice | None = None) -> int:
        return min(len(self.shown), len(tokens))

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        assert not self.hushed[-1]
        assert self.shown == list(tokens[:-1])
        return super().propose(tokens, budget)

    def commit(self, outcome: Outcome) -> None:
        # The newest pass is the step's own.
        assert not self.hushed[-1]
        assert self.model.passes[-1] == 1 + outcome.drafted
        self.shown = list(self.model.cached)
        super().commit(outcome)

    def close(self) -> None:
        self.closed = True
        super().close()


def test_a_drafter_that_reads_states_is_the_only_one_they_are_kept_for() -> None:
    hushed: list[bool] = []
    model = ScriptedModel()
    driver = driver_of(model, hushed)
    driver.prefill(PROMPT)
    reader = Reading(model, hushed)
    contestants = {"plain": PLAIN, "head": Configuration(draft="ngram", length=4)}
    runs, failed = driver.together(Reply(PROMPT, 60, forced=FORCED), contestants, {"head": reader})
    assert not failed
    assert runs["head"].token_ids == FORCED
    assert len(runs["head"].steps) < 30
    assert reader.closed
    assert reader.shown == [*PROMPT, *FORCED][: len(reader.shown)]
    # Switched only where another reply goes on: a switch makes the next pass slow.
    assert all(one != other for one, other in itertools.pairwise(hushed[2:-1]))
    # All is as it was.
    assert hushed[-1] is False


def test_those_with_a_model_have_a_plain_decoding_of_their_own() -> None:
    names = {
        "0": Configuration(draft="suffix", length=8),
        "1": Configuration(draft="suffix+Q4_0", length=8),
        "2": Configuration(draft="ngram", length=2),
        "3": Configuration(draft="Q4_0", length=8),
    }
    assert side_by_side(names) == [
        {"plain": None, "0": names["0"], "2": names["2"]},
        {plain_beside("1"): None, "1": names["1"]},
        {plain_beside("3"): None, "3": names["3"]},
    ]
    assert side_by_side({"1": names["1"]}) == [{plain_beside("1"): None, "1": names["1"]}]
    assert side_by_side({}) == []
