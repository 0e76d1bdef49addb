"""The cost controller on replayed texts: what it can lose, how fast it comes on, what a new reply changes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from localspec.control import CostController, LiveCost
from localspec.cost import CostCurve
from localspec.cost_presets import CURVES, TOKEN_MS, likely_curve
from localspec.drafters.suffix import SuffixDrafter
from localspec.simulate.replay import Simulated, replay
from localspec.testing import OracleDrafter
from localspec.types import EMPTY_DRAFT, Budget, Draft, StepStats

LONGEST = 48


def curve(name: str) -> CostCurve:
    return CURVES[name].scaled(TOKEN_MS[name] * 1e-3)


def replayed(
    controller: CostController,
    drafter: OracleDrafter | SuffixDrafter,
    prompt: Sequence[int],
    reply: Sequence[int],
    cost: CostCurve,
) -> Simulated:
    """With a clock by which every look at it takes a microsecond."""
    ticks = itertools.count(0, 1000)
    return replay(prompt, reply, drafter, controller, cost, max_rows=128, clock=lambda: next(ticks))


class Boaster(OracleDrafter):
    """Sure of what is wrong; `right` says at which lengths of the text it tells the truth."""

    name = "boaster"

    def __init__(self, sequence: Sequence[int], right: range = range(0), surest: float = 0.95) -> None:
        super().__init__(sequence)
        self._text = list(sequence)
        self._right = right
        self._surest = surest

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        at = len(tokens)
        ahead = self._text[at : at + budget.tokens]
        if at not in self._right:
            ahead = [token + 1_000_000 for token in ahead]
        if not ahead:
            return EMPTY_DRAFT
        confidence = tuple(self._surest ** (n + 1) for n in range(len(ahead)))
        return Draft.chain(ahead, source=self.name, confidence=confidence)


def lost(found: Simulated, cost: CostCurve) -> float:
    """Passes over one token beyond plain decoding."""
    return (sum(step.total_ns for step in found.steps) - found.plain_ns) * 1e-9 / cost(1)


@pytest.mark.parametrize("name", sorted(CURVES))
@pytest.mark.parametrize("surest", [0.5, 0.95, 0.999])
def test_the_loss_to_drafts_that_are_always_wrong_is_bounded(name: str, surest: float) -> None:
    cost = curve(name)
    text = list(range(3000))
    controller = CostController(LiveCost(CURVES[name]), longest=LONGEST)
    found = replayed(controller, Boaster(text, surest=surest), text[:10], text[10:], cost)
    # What the account begins with, and the share of exploration.
    assert lost(found, cost) <= 2 + 0.012 * 3000
    assert not any(step.drafted for step in found.steps[300:])


@pytest.mark.parametrize("name", sorted(CURVES))
def test_gains_of_the_past_allow_no_more_than_a_bounded_loss(name: str) -> None:
    cost = curve(name)
    text = list(range(2400))
    controller = CostController(LiveCost(CURVES[name]), longest=LONGEST)
    drafter = Boaster(text, right=range(1200), surest=0.98)
    found = replayed(controller, drafter, text[:10], text[10:], cost)
    after = [step for step in found.steps if step.position >= 1200]
    spent = sum(step.total_ns for step in after) * 1e-9
    plain = sum(step.emitted for step in after) * cost(1)
    assert (spent - plain) / cost(1) <= 16 + 0.012 * 1200
    before = [step for step in found.steps if step.position < 1200]
    assert sum(step.emitted for step in before) * cost(1) > 1.3 * sum(step.total_ns for step in before) * 1e-9


@pytest.mark.parametrize("name", sorted(CURVES))
def test_it_comes_on_within_eight_steps_of_text_that_is_copied_and_off_after(name: str) -> None:
    cost = curve(name)
    dice = random.Random(5)
    passage = [dice.randrange(50_000) for _ in range(150)]
    prose = [dice.randrange(50_000) for _ in range(400)]
    reply = [*prose[:200], *passage, *prose[200:]]
    controller = CostController(LiveCost(CURVES[name]), longest=LONGEST)
    found = replayed(controller, SuffixDrafter(), passage, reply, cost)
    copying = [step for step in found.steps if 350 <= step.position < 500]
    # Two tokens have to match before there is anything to draft.
    assert not any(step.drafted for step in copying[:2])
    assert any(step.drafted for step in copying[2:10])
    assert max(step.drafted for step in copying[2:12]) >= 8
    assert len(copying) < 60
    after = [step for step in found.steps if step.position >= 510]
    assert sum(step.drafted for step in after[8:]) == 0
    assert found.speedup > 1


def test_what_was_right_all_along_is_drafted_at_full_length() -> None:
    cost = curve("gpu")
    text = list(range(1500))
    controller = CostController(LiveCost(CURVES["gpu"]), longest=LONGEST)
    found = replayed(controller, Boaster(text, right=range(1500), surest=0.9), text[:10], text[10:], cost)
    assert found.steps[20].drafted >= 24
    assert found.steps[-2].accepted == found.steps[-2].drafted


def test_it_does_not_flap_where_drafts_just_do_not_pay() -> None:
    """A draft of one that comes true as often as it costs: hardly ever is it switched."""
    cost = CostCurve({1: 0.01, 2: 0.016, 3: 0.022})
    dice = random.Random(3)
    text = list(range(2000))

    class Coin(Boaster):
        def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
            right = dice.random() < 0.55
            self._right = range(len(tokens), len(tokens) + 1) if right else range(0)
            return super().propose(tokens, Budget(min(budget.tokens, 1)))

    controller = CostController(LiveCost(cost), longest=4)
    found = replayed(controller, Coin(text, surest=0.6), text[:10], text[10:], cost)
    states = [bool(step.drafted) for step in found.steps]
    assert sum(a != b for a, b in itertools.pairwise(states)) < len(states) * 0.05
    assert lost(found, cost) < 40


def stats(drafted: int = 0) -> StepStats:
    return StepStats(
        0, 0, 0, 8, drafted, 0, 1, "bonus", "", 0, 1, draft_ns=0, verify_ns=10**7, sample_ns=0, other_ns=0
    )


def test_a_new_reply_drops_what_waits_to_be_judged_and_believes_the_past_less() -> None:
    controller = CostController(LiveCost(likely_curve("BF16", on_gpu=False)), longest=8)
    draft = Draft.chain([7, 8], source="s", confidence=(0.6, 0.36))
    tokens = [1, 2, 3]
    for _ in range(60):
        controller.budget(tokens)
        controller.trim(draft)
        tokens += [7, 8, 9]
        controller.update(stats())
    controller.budget(tokens)
    (sure, _) = controller.estimates.survival(draft)
    assert sure > 0.8
    controller.trim(draft)
    controller.begin()
    (less, _) = controller.estimates.survival(draft)
    assert 0.6 < less < sure
    # Another text in the place of what was drafted says nothing about it.
    controller.budget([*tokens, 100, 101, 102])
    assert controller.estimates.survival(draft)[0] == less


def test_without_a_budget_nothing_is_drafted_and_time_that_stands_still_is_no_harm() -> None:
    controller = CostController(LiveCost(likely_curve("", on_gpu=True)), longest=0)
    assert controller.budget([1, 2]).tokens == 0
    standing = StepStats(
        0, 0, 0, 0, 0, 0, 1, "bonus", "", 0, 1, draft_ns=0, verify_ns=0, sample_ns=0, other_ns=0
    )
    controller.update(standing)
    assert controller.trim(EMPTY_DRAFT) == EMPTY_DRAFT
    assert controller.budget([1, 2, 3]).tokens == 0


@pytest.mark.parametrize(
    ("kind", "on_gpu", "name"),
    [
        ("Q4_K_M", True, "gpu"),
        ("BF16", False, "cpu-bf16"),
        ("F16", False, "cpu-bf16"),
        ("Q8_0", False, "cpu-q4_0"),
        ("Q4_0", False, "cpu-q4_0"),
        ("Q4_K_M", False, "cpu-q4_0"),
        ("Q4_1", False, "cpu-q4_1"),
        ("Q6_K", False, "cpu-q4_1"),
        ("", False, "cpu-q4_1"),
    ],
)
def test_the_likely_curve_is_that_of_the_nearest_kind(kind: str, on_gpu: bool, name: str) -> None:
    assert likely_curve(kind, on_gpu=on_gpu).points == CURVES[name].points
