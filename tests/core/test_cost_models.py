"""The cost controller with draft models: drafts that cost time for every token, simulated."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence

import pytest

from localspec.control import FixedLength, LiveCost
from localspec.control.adaspec import ConfidenceGoodput
from localspec.control.heuristic import CONFIDENCE, Heuristic
from localspec.control.passes import DraftPasses
from localspec.cost import CostCurve
from localspec.cost_presets import CURVES, TOKEN_MS
from localspec.drafters.cascade import CascadeDrafter
from localspec.drafters.suffix import SuffixDrafter
from localspec.simulate.replay import replay
from localspec.testing import OracleDrafter
from localspec.types import Budget, Draft
from tests.core.paying import LONGEST, TOKENS, Clock, Paying, controlled, run


@pytest.mark.parametrize("curve", ["gpu", "cpu-bf16", "cpu-q4_0", "cpu-q4_1"])
@pytest.mark.parametrize("ratio", [0.05, 0.15, 0.4])
def test_a_draft_model_never_costs_much_and_gains_what_it_can(curve: str, ratio: float) -> None:
    shares = []
    for chance in (0.0, 0.3, 0.6, 0.8, 0.95):
        found = run(controlled(curve), chance, ratio, curve).speedup
        fixed = (run(FixedLength(length), chance, ratio, curve).speedup for length in (1, 2, 4, 8, 16))
        assert found >= 0.975
        shares.append(found / max(1.0, *fixed))
    # To find the length costs a little, and so does the margin that a draft must promise.
    assert min(shares) >= 0.8
    assert statistics.geometric_mean(shares) >= 0.92


def test_what_does_not_pay_is_looked_at_rarely() -> None:
    controller = controlled("cpu-bf16")
    found = run(controller, 0.1, 0.5, "cpu-bf16")
    spent = sum(step.draft_ns for step in found.steps[400:])
    assert spent <= 0.015 * sum(step.total_ns for step in found.steps[400:])
    assert controller.reason.startswith(("off", "paused"))


def test_what_its_tokens_take_is_known_to_the_next_controller() -> None:
    first, second = controlled("cpu-q4_1"), controlled("cpu-q4_1")
    # A text of a few sentences: one that hardly pays is looked at once, to learn what it takes.
    text = range(10, 138)
    assert sum(step.draft_ns > 0 for step in run(first, 0.9, 1.5, "cpu-q4_1", text=text).steps) == 1
    (seconds,) = first.cost.drafting.values()
    assert seconds == pytest.approx(1.5 * first.cost(1), rel=0.05)
    second.cost.drafting = first.cost.drafting
    assert not any(step.draft_ns for step in run(second, 0.9, 1.5, "cpu-q4_1", text=text).steps)


def test_nothing_is_tried_in_the_first_steps_of_a_reply() -> None:
    found = run(controlled("gpu"), 0.95, 0.05, "gpu")
    assert not any(step.draft_ns for step in found.steps[:4])
    assert any(step.draft_ns for step in found.steps[4:6])


def test_it_comes_back_when_drafts_come_true() -> None:
    class Turning(Paying):
        def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
            self._chance = 0.05 if len(tokens) < 700 else 0.95
            return super().propose(tokens, budget)

    cost = CURVES["gpu"].scaled(TOKEN_MS["gpu"] * 1e-3)
    clock = Clock()
    text = list(range(TOKENS))
    drafter = Turning(text, 0.05, 0.1 * cost(1), clock)
    found = replay(text[:10], text[10:], drafter, controlled("gpu"), cost, clock=clock)
    late = [step for step in found.steps if step.position > 1100]
    assert sum(step.emitted for step in late) > 2.5 * len(late)


def test_drafts_that_were_drawn_at_random_are_left_whole() -> None:
    import numpy as np

    controller = controlled("cpu-q4_1")
    draft = Draft((1, 2), (-1, 0), (0.01, 0.0001), (np.ones(3, np.float32),) * 2, "model")
    controller.budget([5])
    assert controller.trim(draft) is draft


def test_a_cascade_is_as_fast_as_its_best_member() -> None:
    """Text that repeats for a while, then does not, in turns; the model is right half of the time."""
    dice = random.Random(2)
    passage = [dice.randrange(50_000) for _ in range(150)]
    text = list(passage[:20])
    while len(text) < TOKENS:
        text += passage
        text += [dice.randrange(50_000) for _ in range(150)]
    cost = CURVES["gpu"].scaled(TOKEN_MS["gpu"] * 1e-3)
    speeds = {}
    for name in ("suffix", "paying", "suffix+paying"):
        clock = Clock()
        members = {
            "suffix": lambda clock=clock: [SuffixDrafter()],
            "paying": lambda clock=clock: [Paying(text, 0.6, 0.15 * cost(1), clock)],
            "suffix+paying": lambda clock=clock: [SuffixDrafter(), Paying(text, 0.6, 0.15 * cost(1), clock)],
        }[name]()
        drafter = members[0] if len(members) == 1 else CascadeDrafter(members)
        found = replay(text[:10], text[10:], drafter, controlled("gpu"), cost, clock=clock)
        speeds[name] = found.speedup
    assert speeds["suffix+paying"] >= 0.99 * max(speeds.values())
    assert speeds["suffix+paying"] > 1.05 * min(speeds.values())


@pytest.mark.parametrize("curve", ["gpu", "cpu-bf16", "cpu-q4_1"])
@pytest.mark.parametrize(("first", "second"), [(0.3, 0.9), (0.9, 0.3), (0.6, 0.6)])
def test_two_draft_models_in_one(curve: str, first: float, second: float) -> None:
    """Where one has drafted and the other is refused, what the first has taken is booked all the same."""
    cost = CURVES[curve].scaled(TOKEN_MS[curve] * 1e-3)
    clock, text = Clock(), list(range(10, 10 + TOKENS))
    one = Paying(text, first, 0.1 * cost(1), clock)
    other = Paying(text, second, 0.2 * cost(1), clock, seed=2)
    other.name = "other"
    controller = controlled(curve)
    found = replay(text[:10], text[10:], CascadeDrafter([one, other]), controller, cost, clock=clock)
    assert one.passes > 0
    assert found.speedup >= 0.96


def test_the_cost_of_a_pass_is_learnt_and_one_long_pause_is_not_believed() -> None:
    passes = DraftPasses("model")
    passes.took(0.02, 4)
    assert passes.seconds == pytest.approx(0.005)
    passes.took(4.0, 1)
    assert passes.seconds == pytest.approx(0.005 + 0.2 * 0.01)
    # One that was far too high, of another device or another file, is not believed for long either.
    slow = DraftPasses("model", 0.4)
    slow.took(0.005, 1)
    slow.took(0.005, 1)
    assert slow.seconds < 0.1


def test_the_heuristic_stops_below_its_threshold() -> None:
    policy = Heuristic(longest=8)
    assert policy.more(Draft())
    assert policy.more(Draft.chain([1], confidence=(CONFIDENCE,)))
    assert not policy.more(Draft.chain([1], confidence=(CONFIDENCE - 1e-9,)))
    # The token's own confidence counts, not that of the whole draft.
    assert policy.more(Draft.chain([1, 2], confidence=(0.5, 0.5 * CONFIDENCE)))
    assert not policy.more(Draft.chain([1, 2], confidence=(0.9, 0.9 * CONFIDENCE - 1e-9)))


def test_adaspec_stops_where_the_goodput_would_fall() -> None:
    policy = ConfidenceGoodput(LiveCost(CostCurve({1: 1.0, 2: 1.5, 3: 2.0})), longest=8)
    policy.mean = 0.5
    # (1 + .5) / 1.5 = 1 / 1: no worse.
    assert policy.more(Draft())
    policy.mean = 0.5 - 1e-9
    assert not policy.more(Draft())
    # (1 + c + c m) / 2 against (1 + c) / 1.5, with m = 0.8: even at c = 0.7143.
    policy.mean = 0.8
    assert policy.more(Draft.chain([1], confidence=(0.72,)))
    assert not policy.more(Draft.chain([1], confidence=(0.71,)))


def test_the_reason_says_what_a_draft_model_costs_where_it_is_not_asked() -> None:
    controller = controlled("cpu-bf16")
    run(controller, 0.5, 0.6, "cpu-bf16")
    controller.budget([1, 2, 3])
    assert not controller.more(Draft(source="paying"))
    assert controller.reason.startswith("off, a draft token takes 0.6")
    assert controller.reason.endswith("does not pay")


def test_no_draft_is_tried_of_a_model_that_could_not_pay_if_it_were_right() -> None:
    passes = DraftPasses("model")
    costs = CURVES["cpu-q4_1"].scaled(1.0)
    table = [costs(n) for n in range(1, LONGEST + 2)]
    passes.took(costs(1), 1)
    assert not passes.may_pay(table, 0.85)
    passes.took(1e-9, 1)
    gpu = [CURVES["gpu"](n) for n in range(1, LONGEST + 2)]
    assert DraftPasses("other").may_pay(gpu, 0.85)
    # Drafts that cost a pass a token are looked at, two tokens now and then, and not tried beyond that.
    found = run(controlled("cpu-q4_1"), 1.0, 1.0, "cpu-q4_1")
    assert found.speedup >= 0.985


def test_the_first_reply_of_a_model_that_does_not_pay_costs_next_to_nothing() -> None:
    short = run(controlled("cpu-q4_1"), 0.45, 0.1, "cpu-q4_1", text=range(10, 10 + 138))
    assert short.speedup >= 0.99


def test_members_that_cost_little_are_looked_at_rarely_beside_a_model_too() -> None:
    """A drafter that takes a twentieth of a pass and is always wrong, before a model that does not pay."""

    class Wrong(OracleDrafter):
        name = "wrong"
        asked = 0

        def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
            del tokens, budget
            clock.ns += round(0.05e9 * cost(1))
            self.asked += 1
            return Draft.chain([60_000] * 8, source=self.name, confidence=tuple(0.9**n for n in range(1, 9)))

    cost = CURVES["cpu-q4_1"].scaled(TOKEN_MS["cpu-q4_1"] * 1e-3)
    clock = Clock()
    text = list(range(10, 10 + TOKENS))
    wrong = Wrong(text)
    drafter = CascadeDrafter([wrong, Paying(text, 0.3, 0.2 * cost(1), clock)])
    found = replay(text[:10], text[10:], drafter, controlled("cpu-q4_1"), cost, clock=clock)
    assert found.speedup >= 0.975
    assert wrong.asked < TOKENS / 2
