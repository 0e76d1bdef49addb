"""DFlash and DSpark: one pass makes a block."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.control import Controller, CostController, FixedLength, LiveCost, Off
from localspec.control.base import NoAdvice
from localspec.cost import CostCurve
from localspec.drafters.dflash import DFlashDrafter
from localspec.drafters.dspark import DSparkDrafter
from localspec.drafters.none import NoDrafter
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.types import EMPTY_DRAFT, Budget, Draft, Outcome, SamplingParams, StepStats
from localspec.verify import GreedyDrawing, RejectionVerifier, RuleDrawing, Verifier
from tests.core.scripted_heads import Cell, ScriptedHead, ScriptedTap, TappedModel, state_of

SIZE, MASK, PROMPT = 32, 31, [5, 6, 7, 8] * 8
GREEDY = SamplingParams(temperature=0)
SEEDED = SamplingParams(temperature=0.8, top_k=0, top_p=1.0, min_p=0.0, seed=3)
TARGET = TappedModel(order=1, spread=4.0)


def successor(token: int) -> int:
    return int(TARGET.row([token]).argmax())


def answer(anchor: bool, wrong_at: int) -> object:
    """Logits of a head that knows what the target says, but not at the place `wrong_at` of its drafts."""

    def logits(start: int, tokens: Sequence[int], row: int) -> NDArray[np.float32]:
        before = tokens[0]
        for _ in range(row if anchor else row - 1):
            before = successor(before)
        found = np.array(TARGET.row([before]), np.float32)
        if row - (0 if anchor else 1) == wrong_at:
            found = np.roll(found, 1)
        return found

    return logits


def sure(start: int, tokens: Sequence[int], row: int) -> float:
    return 0.9 - row / 10


class Rig:
    """A session with a block drafter over the scripted target."""

    def __init__(self, kind: str, *, block: int = 6, wrong_at: int = 3, confident: bool = True) -> None:
        self.model = TappedModel(order=1, spread=4.0)
        self.tap = ScriptedTap(self.model)
        anchor = kind == "dspark"
        self.head = ScriptedHead(answer(anchor, wrong_at), sure)
        common = {"vocabulary": SIZE, "greedy": GreedyDrawing(), "block": block, "mask": MASK}
        if kind == "dflash":
            self.drafter: DFlashDrafter = DFlashDrafter(self.head, self.tap, **common)
        else:
            self.drafter = DSparkDrafter(
                self.head,
                self.tap,
                from_anchor=anchor,
                has_confidence=confident,
                **common,
            )
        self.session = Session(
            self.model, self.model, drafter=self.drafter, controller=FixedLength(block), verifier=None
        )

    def say(
        self,
        tokens: int,
        params: SamplingParams = GREEDY,
        controller: Controller | None = None,
        verifier: Verifier | None = None,
    ) -> list[StepStats]:
        if controller is not None:
            self.session.controller = controller
        if verifier is not None:
            self.session.verifier = verifier
        rules = StopRules(max_tokens=tokens, ignore_eos=True)
        return [emission.stats for emission in self.session.reply(Sampler(params), rules)]


def plain(tokens: int, params: SamplingParams = GREEDY, verifier: Verifier | None = None) -> list[int]:
    model = TappedModel(order=1, spread=4.0)
    session = Session(model, model, drafter=NoDrafter(), controller=Off(), verifier=verifier)
    session.prefill(PROMPT)
    for _ in session.reply(Sampler(params), StopRules(max_tokens=tokens, ignore_eos=True)):
        pass
    return session.tokens


KINDS = pytest.mark.parametrize("kind", ["dflash", "dspark", "masks"])
"""The third is a DSpark head whose first row gives no draft token, as a DFlash head's."""


@KINDS
@pytest.mark.parametrize("params", [GREEDY, SEEDED])
def test_the_reply_is_the_plain_one(kind: str, params: SamplingParams) -> None:
    rig = Rig(kind)
    rig.session.prefill(PROMPT)
    steps = rig.say(80, params)
    assert rig.session.tokens == plain(80, params)
    assert sum(step.accepted for step in steps) > 20


@KINDS
def test_a_block_is_one_pass_behind_the_states_of_the_text(kind: str) -> None:
    rig = Rig(kind)
    rig.session.prefill(PROMPT)
    rig.say(40)
    longest = 6 if kind == "dspark" else 5
    blocks = [one for one in rig.head.passes if one[1] is not None]
    assert all(outputs == "all" for *_, outputs in blocks)
    assert {tokens[1:] for _, tokens, _, _ in blocks[:3] if tokens} == {(MASK,) * 5}
    fed = [count for _, tokens, count, outputs in rig.head.passes if tokens is None and outputs == "none"]
    # Every position of the text went in once, whatever was drafted.
    assert sum(fed) == rig.tap.copied - (rig.drafter._known - rig.drafter._fed)
    text = rig.session.tokens
    held = rig.head.cells[: rig.drafter._fed]
    assert held == [Cell(None, state_of(text[: place + 1])) for place in range(rig.drafter._fed)]
    first = next(one for one in rig.head.passes if one[1] is not None)
    assert first[0] == len(PROMPT) - 1
    assert first[2] == longest + (kind != "dspark")


@KINDS
def test_drafts_are_right_up_to_the_wrong_place(kind: str) -> None:
    rig = Rig(kind, wrong_at=3)
    rig.session.prefill(PROMPT)
    steps = [step for step in rig.say(60) if step.drafted > 3]
    assert steps
    assert all(step.accepted == 3 for step in steps)
    assert all(step.source == ("dflash" if kind == "dflash" else "dspark") for step in steps)


@KINDS
@pytest.mark.parametrize("most", [1, 2, 4])
def test_a_smaller_budget_makes_a_shorter_block(kind: str, most: int) -> None:
    rig = Rig(kind)
    rig.session.prefill(PROMPT)
    draft = rig.drafter.propose(rig.session.tokens, Budget(most))
    assert len(draft) == most
    assert rig.head.passes[-1][2] == most + (kind != "dspark")
    assert list(draft.confidence) == sorted(draft.confidence, reverse=True)
    assert draft.tokens[0] == successor(PROMPT[-1])


class Declines(NoAdvice):
    """Nothing is worth a pass; notes what was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def block(self, source: str) -> bool:
        self.asked.append(source)
        return False


@KINDS
def test_it_asks_once_whether_a_block_is_worth_its_pass(kind: str) -> None:
    rig, advice = Rig(kind), Declines()
    rig.session.prefill(PROMPT)
    read = list(rig.head.passes)
    assert rig.drafter.propose(rig.session.tokens, Budget(4, advice=advice)) is EMPTY_DRAFT
    assert advice.asked == [rig.drafter.name]
    assert rig.head.passes == read


@KINDS
def test_without_the_states_of_the_text_there_is_no_draft(kind: str) -> None:
    rig = Rig(kind)
    rig.drafter.begin(PROMPT)
    assert rig.drafter.propose(PROMPT, Budget(4)) is EMPTY_DRAFT
    assert Rig(kind, block=1).drafter.propose(PROMPT, Budget(0)) is EMPTY_DRAFT


def test_second_candidates_of_a_block_are_branches() -> None:
    rig = Rig("dflash")
    rig.session.controller = FixedLength(6, leaves=3)
    rig.session.prefill(PROMPT)
    steps = rig.say(60)
    assert rig.session.tokens == plain(60)
    assert max(step.leaves for step in steps) > 1


def test_judged_by_rejection_the_draft_hands_out_what_it_drew_from() -> None:
    rig = Rig("dspark")
    rig.session.prefill(PROMPT)
    rule = RejectionVerifier()
    steps = rig.say(60, SEEDED, verifier=rule)
    assert sum(step.accepted for step in steps) > 5
    assert len(rig.session.tokens) == len(PROMPT) + 60


def test_switched_off_and_on_it_costs_one_piece_and_drafts_from_the_text() -> None:
    rig = Rig("dflash")
    rig.session.prefill(PROMPT)
    rig.say(10)
    passes = len(rig.head.passes)
    rig.say(12, controller=Off())
    assert len(rig.head.passes) == passes
    steps = rig.say(20, controller=FixedLength(3))
    assert rig.session.tokens == plain(42)
    assert any(step.accepted == 3 for step in steps)


# --- DSpark's confidence


def test_the_confidence_head_says_how_sure_a_draft_is() -> None:
    rig = Rig("dspark")
    rig.session.prefill(PROMPT)
    draft = rig.drafter.propose(rig.session.tokens, Budget(3))
    assert draft.confidence == pytest.approx((0.9, 0.9 * 0.8, 0.9 * 0.8 * 0.7), rel=1e-5)


def test_without_a_confidence_head_its_distributions_do() -> None:
    rig = Rig("dspark", confident=False)
    rig.session.prefill(PROMPT)
    draft = rig.drafter.propose(rig.session.tokens, Budget(1))
    row = TARGET.row([PROMPT[-1]])
    assert draft.confidence[0] == pytest.approx(1 / np.exp(row - row.max()).sum(), rel=1e-4)


def test_what_became_of_its_tokens_calibrates_each_place() -> None:
    rig = Rig("dspark", wrong_at=2)
    assert isinstance(rig.drafter, DSparkDrafter)
    rig.session.prefill(PROMPT)
    rig.say(200)
    first, second, third, *later = rig.drafter._temperatures.values
    # Always right: sharper; always wrong: flatter; never reached: as it was.
    assert first < 1
    assert second < 1
    assert third > 1.5
    assert later == [1.0, 1.0, 1.0]
    draft = rig.drafter.propose(rig.session.tokens, Budget(3))
    assert draft.confidence[1] > 0.9 * 0.8
    assert draft.confidence[2] / draft.confidence[1] < 0.65


def test_drafts_that_were_not_verified_calibrate_too() -> None:
    rig = Rig("dspark", wrong_at=0)
    assert isinstance(rig.drafter, DSparkDrafter)
    rig.session.prefill(PROMPT)
    for _ in range(10):
        draft = rig.drafter.propose(rig.session.tokens, Budget(3))
        said = successor(rig.session.tokens[-1])
        assert draft.tokens[0] != said
        rig.model.decode([rig.session.tokens[-1]], "all")
        rig.session.tokens.append(said)
        rig.drafter.commit(Outcome((said,), 0, 0))
    assert rig.drafter._temperatures.values[0] > 1.5


def test_nothing_is_learnt_of_places_behind_a_wrong_one() -> None:
    rig = Rig("dspark", wrong_at=9)
    assert isinstance(rig.drafter, DSparkDrafter)
    rig.session.prefill(PROMPT)
    draft = rig.drafter.propose(rig.session.tokens, Budget(3))
    # What another member of a cascade has drafted was right instead.
    said = ((draft.tokens[0] + 1) % SIZE, draft.tokens[1])
    rig.model.decode([rig.session.tokens[-1], said[0]], "all")
    rig.drafter.commit(Outcome(said, 1, 1, (0, 1)))
    first, second, *_ = rig.drafter._temperatures.values
    assert first > 1
    assert second == 1


def test_a_draft_whose_step_came_to_nothing_teaches_nothing() -> None:
    rig = Rig("dspark")
    assert isinstance(rig.drafter, DSparkDrafter)
    rig.session.prefill(PROMPT)
    rig.drafter.propose(rig.session.tokens, Budget(3))
    rig.session.prefill([9, 9, 9, 9])
    rig.say(1, controller=Off())
    assert rig.drafter._temperatures.values == (1.0,) * 6


def test_a_draft_ends_behind_a_token_that_the_later_places_do_not_know_of() -> None:
    rig = Rig("dspark", wrong_at=9)
    rig.session.prefill(PROMPT)
    lengths = set()
    for seed in range(20):
        sampler = Sampler(SamplingParams(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=seed))
        drawing = RuleDrawing(sampler, rig.session.verifier)
        draft = rig.drafter.propose(rig.session.tokens, Budget(6, drawing=drawing))
        lengths.add(len(draft))
        before = rig.session.tokens[-1]
        for token in draft.tokens[:-1]:
            assert token == successor(before)
            before = token
    assert len(lengths) > 2


def test_the_cost_controller_verifies_as_much_as_the_confidence_is_worth() -> None:
    def cost(nine: float) -> CostController:
        curve = CostCurve({1: 1.0, 9: nine})
        return CostController(LiveCost(curve, 1e-3), longest=6)

    rig = Rig("dspark", wrong_at=2)
    rig.session.prefill(PROMPT)
    chances = rig.drafter.propose(rig.session.tokens, Budget(6)).confidence
    draft = Draft.chain(list(range(6)), source="dspark", confidence=chances)
    cheap, dear = cost(1.1).trim(draft), cost(6.0).trim(draft)
    assert len(cheap) > len(dear)

    def rate(length: int, nine: float) -> float:
        return (1 + sum(chances[:length])) / (1 + (nine - 1) * length / 8)

    assert len(cheap) == max(range(7), key=lambda length: rate(length, 1.1))
