"""What drafts may lose: stakes, proof by looks, and what a draft model has to show before it is tried."""

from __future__ import annotations

import pytest

from localspec.control import CostController, LiveCost
from localspec.control.account import Account
from localspec.control.passes import DraftPasses
from localspec.cost import CostCurve
from localspec.types import Draft
from tests.core.paying import controlled, run


def test_a_leap_is_half_a_pass_at_first_and_two_after_proof() -> None:
    account = Account()
    # Of an unsure draft the average counts, a quarter of the account.
    assert account.stakes(0.6) == pytest.approx((0.625, 0.625))
    assert account.stakes(0.999) == pytest.approx((1.0, 1.5))
    account.look(9.0)
    assert account.stakes(0.999) == pytest.approx((2.5, 4.5))
    account.book(-2.5)
    assert account.stakes(0.999) == (0.0, 0.0)


def sure(tokens: int) -> Draft:
    """A draft that is nearly certain of all its tokens."""
    return Draft.chain(tuple(range(10, 10 + tokens)), source="sure", confidence=(0.99,) * tokens)


def test_a_draft_that_pays_within_the_account_comes_before_a_better_one_beyond_it() -> None:
    # Two tokens pay and cost one pass more; eight are faster by far and cost one and a half.
    cheap = CostCurve({1: 1.0, 2: 1.6, 3: 2.0, 9: 2.5})
    controller = CostController(LiveCost(cheap, 1.0), longest=16)
    controller.budget([1, 2, 3])
    assert len(controller.trim(sure(8))) == 2
    # Where nothing within the account pays, a leap is allowed.
    steep = CostCurve({1: 1.0, 2: 2.1, 9: 2.5})
    controller = CostController(LiveCost(steep, 1.0), longest=16)
    controller.budget([1, 2, 3])
    assert len(controller.trim(sure(8))) == 8


def test_a_streak_ends_with_the_first_wrong_token() -> None:
    passes = DraftPasses("model", 0.4)
    for right, streak in ((True, 1), (True, 2), (False, 0), (True, 1)):
        passes.learn(first=True, right=right)
        assert passes.streak == streak


def test_a_model_that_would_hardly_pay_is_tried_once_a_look_came_true() -> None:
    # With a graphics card's passes and 0.4 of one for a token, 1.36 times were 85 % of them right.
    text = range(10, 310)
    assert run(controlled("gpu"), 1.0, 0.4, "gpu", text=text).speedup > 1.2
    wrong = run(controlled("gpu"), 0.0, 0.4, "gpu", text=text)
    assert sum(step.draft_ns > 0 for step in wrong.steps) == 1


def test_what_cannot_pay_is_not_wanted_when_a_prompt_is_read() -> None:
    controller = controlled("cpu-q4_1")
    assert controller.wants("head")
    controller = controlled("cpu-q4_1")
    controller.cost.drafting["head"] = 0.3 * controller.cost(1)
    assert not controller.wants("head")


def test_what_cannot_pay_is_looked_at_later_than_what_hardly_does() -> None:
    looked = []
    # Were 85 % of its tokens right, half a pass for one would be faster with a graphics card's passes.
    for curve in ("gpu", "cpu-q4_1"):
        controller = controlled(curve)
        controller.cost.drafting["paying"] = 0.5 * controller.cost(1)
        found = run(controller, 0.0, 0.5, curve).steps
        looked.append(next(place for place, step in enumerate(found) if step.draft_ns))
    assert 290 < looked[0] < 320
    assert 890 < looked[1] < 930


def test_drafts_that_were_only_looked_at_leave_no_debt() -> None:
    account = Account()
    account.look(-3.0)
    assert account.passes == 0.0
    assert account.empty
    account.look(0.5)
    assert account.passes == 0.5
    # What was really lost stays lost.
    account.book(-2.0)
    account.look(-3.0)
    assert account.passes == -1.5
