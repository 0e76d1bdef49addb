"""A simulation takes the very steps that a session takes on the same text."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.bench.driver import Driver, Reply
from localspec.control import FixedLength
from localspec.cost import CostCurve
from localspec.drafters import make_drafter
from localspec.simulate import Simulated, replay
from localspec.stats.metrics import Tally
from localspec.testing import OracleDrafter, RandomDrafter, ScriptedModel, TranscriptVerifier
from localspec.types import DraftOptions, StepStats

CURVE = CostCurve({1: 0.010, 2: 0.012, 9: 0.020})

Counted = list[tuple[object, ...]]


def counted(steps: tuple[StepStats, ...]) -> Counted:
    return [
        (
            *(s.index, s.position, s.budget, s.drafted, s.accepted, s.emitted, s.kind),
            *(s.source, s.match_length, s.leaves, s.depth),
        )
        for s in steps
    ]


def both(
    prompt: list[int], text: list[int], options: DraftOptions, *, stops: bool = False
) -> tuple[Counted, Counted]:
    model = ScriptedModel(vocabulary=16)
    reply = Reply(tuple(prompt), tokens=len(text), forced=tuple(text), stops=stops)
    verifier = TranscriptVerifier([*prompt, *text])
    driver, length = Driver(model, model), options.length or 8
    run = driver.run(reply, make_drafter(options), FixedLength(length, leaves=options.leaves), verifier)
    ends = model.eog_tokens if stops else ()
    drafter, controller = make_drafter(options), FixedLength(length, leaves=options.leaves)
    simulated = replay(prompt, text, drafter, controller, CURVE, max_rows=model.max_rows, ends=ends)
    return counted(run.steps), counted(simulated.steps)


@given(
    tokens=st.lists(st.integers(4, 7), min_size=2, max_size=80),
    cut=st.integers(1, 79),
    length=st.integers(1, 9),
    leaves=st.integers(1, 4),
    pick=st.sampled_from(["recent", "frequent", "first"]),
)
def test_the_same_steps_as_a_session_takes(tokens, cut, length, leaves, pick):
    cut = min(cut, len(tokens) - 1)
    options = DraftOptions("ngram", length, leaves=leaves, ngram_pick=pick)
    real, simulated = both(tokens[:cut], tokens[cut:], options)
    assert simulated == real


def test_a_draft_ends_where_a_reply_would():
    real, simulated = both([5, 6, 0, 9, 9, 5, 6], [9, 10, 11, 12], DraftOptions("ngram", 8), stops=True)
    assert simulated == real
    assert simulated[0][3] == 1


def test_times_are_the_curves_and_the_drafters_own():
    ticks = itertools.count(0, 1000)
    text = [5, 6, 7, 8, 9, 10]
    drafter = OracleDrafter([4, *text])
    found = replay([4], text, drafter, FixedLength(2), CURVE, clock=lambda: next(ticks))
    assert [step.emitted for step in found.steps] == [3, 3]
    assert [step.verify_ns for step in found.steps] == [round(CURVE(3) * 1e9)] * 2
    assert found.plain_ns == 60_000_000
    assert (found.begin_ns, found.propose_ns) == (1000, (1000, 1000))
    assert [step.draft_ns for step in found.steps] == [3000, 3000]
    assert found.speedup == pytest.approx(0.06 / (2 * CURVE(3) + 6e-6))


def test_without_drafts_it_is_plain_decoding():
    found = replay([4], [5, 6, 7], make_drafter(DraftOptions("none")), FixedLength(0), CURVE)
    assert [step.emitted for step in found.steps] == [1, 1, 1]
    assert found.propose_ns == ()
    assert Tally(found.steps).verify_ns == found.plain_ns


@given(seed=st.integers(0, 99), branches=st.booleans())
def test_whatever_is_drafted_the_text_is_said_once(seed, branches):
    text = [4 + (number * number) % 5 for number in range(30)]
    drafter = RandomDrafter(9, seed, branches=branches)
    found: Simulated = replay([4], text, drafter, FixedLength(6, leaves=4), CURVE)
    assert sum(step.emitted for step in found.steps) == len(text)
    assert all(step.emitted == step.accepted + 1 for step in found.steps)
    assert all(step.accepted <= step.drafted <= step.budget <= 6 for step in found.steps)
