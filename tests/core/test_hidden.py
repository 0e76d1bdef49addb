"""What drafters share that read hidden states: a head's cache that is always that of the text."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from localspec.control import FixedLength, Off
from localspec.drafters.hidden import HiddenDrafter, States
from localspec.drafters.none import NoDrafter
from localspec.session import Session
from localspec.types import EMPTY_DRAFT, Budget, Draft
from localspec.verify import GreedyDrawing
from tests.core.happenings import HAPPENINGS, Happening, happen, say
from tests.core.scripted_heads import Cell, ScriptedHead, ScriptedTap, TappedModel, state_of

ORACLE = TappedModel(order=1, spread=6.0)
"""Says what every target of these tests says."""


class Plainly(HiddenDrafter):
    """Feeds states alone; before it drafts, all must be there. Its drafts are right, wrong and trees."""

    def __init__(self, head: ScriptedHead, tap: ScriptedTap) -> None:
        super().__init__(head, tap, vocabulary=32, greedy=GreedyDrawing(), name="plainly")
        self.cells = head
        self.drafts = 0

    def _feed(self, start: int, tokens: Sequence[int], states: States) -> None:
        self._head.decode(start, None, states, "none")

    def _draft(self, tokens: Sequence[int], budget: Budget) -> Draft:
        self.drafts += 1
        self._drafting()
        self._head.decode(len(tokens) - 1 + self._shift, [1] * budget.tokens, None, "all")
        right = int(ORACLE.row([tokens[-1]]).argmax())
        if budget.leaves > 1 and budget.tokens > 2:
            # The second branch is the right one.
            return Draft(tokens=((right + 1) % 32, right, 6), parents=(-1, -1, 1), source=self.name)
        return Draft.chain([right, 7, 8][: budget.tokens], source=self.name)

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        if not self._ready(tokens, budget):
            return EMPTY_DRAFT
        self._catch_up()
        expected = [self._cell(tokens, place) for place in range(self._first, len(tokens) - 1)]
        assert self.cells.cells == expected
        assert self.cells.start == self._first + self._shift
        return self._made(self._draft(tokens, budget))

    def _cell(self, tokens: Sequence[int], place: int) -> Cell:
        return Cell(None, state_of(tokens[: place + 1]))


class Paired(Plainly):
    """Feeds every state with the token after it, one position on."""

    _lag = 1
    _shift = 1

    def _feed(self, start: int, tokens: Sequence[int], states: States) -> None:
        assert len(tokens) == len(states)
        self._head.decode(start + self._shift, tokens, states, "none")

    def _cell(self, tokens: Sequence[int], place: int) -> Cell:
        return Cell(tokens[place + 1], state_of(tokens[: place + 1]))


def made(kind: type[Plainly], *, max_batch: int = 16) -> tuple[TappedModel, Plainly, Session]:
    model = TappedModel(order=1, spread=6.0, max_batch=64)
    drafter = kind(ScriptedHead(max_batch=max_batch), ScriptedTap(model))
    return model, drafter, Session(model, model, drafter=drafter, controller=FixedLength(3, leaves=2))


KINDS = pytest.mark.parametrize("kind", [Plainly, Paired])


@KINDS
def test_a_reply_is_drafted_from_the_states_of_its_text(kind: type[Plainly]) -> None:
    model, drafter, session = made(kind)
    session.prefill([5, 6, 7] * 40)
    say(session, 60)
    assert drafter.drafts > 20
    # Every state was copied once.
    assert drafter._tap.copied == model.length


@KINDS
def test_a_prompt_is_fed_where_it_is_read_and_what_no_draft_was_wanted_after_is_not(
    kind: type[Plainly],
) -> None:
    model, drafter, session = made(kind, max_batch=200)
    session.controller = Off()
    session.prefill([5, 6, 7])
    fed = [(drafter._shift, 2 - drafter._lag)]
    assert [(start, count) for start, _, count, _ in drafter.cells.passes] == fed
    say(session, 300)
    assert len(drafter.cells.passes) == len(fed)
    copied = drafter._tap.copied
    say(session, 10)
    assert drafter._tap.copied == copied
    # Nor does the target keep them.
    assert drafter._tap.users == 0
    # Once drafts are wanted it waits for some states, and goes on from these.
    session.controller = FixedLength(3)
    say(session, 14)
    assert drafter.drafts == 0
    say(session, 8)
    assert drafter.drafts > 0
    assert drafter._tap.users == 1
    assert 300 < drafter.cells.start < len(session.tokens)
    # What it has left out is no reason for the target to read it again.
    passes = len(model.passes)
    assert session.prefill([*session.tokens, 9]).cached >= len(session.tokens) - 3
    assert sum(model.passes[passes:]) < 5


@KINDS
def test_whose_drafts_came_true_is_fed_in_large_pieces_while_none_is_wanted(kind: type[Plainly]) -> None:
    _, drafter, session = made(kind, max_batch=200)
    session.controller = FixedLength(3)
    session.prefill([5, 6, 7])
    say(session, 80)
    passes = len(drafter.cells.passes)
    session.controller = Off()
    say(session, 250)
    assert len(drafter.cells.passes) == passes
    say(session, 20)
    assert [count for _, _, count, _ in drafter.cells.passes[passes:]] == [200, 56 - drafter._lag]
    assert drafter.cells.start == drafter._shift


class Hopeless(FixedLength):
    """Wants no draft of anybody for some time."""

    wanted = False

    def wants(self, source: str) -> bool:
        return self.wanted


@KINDS
def test_one_of_whom_no_draft_is_wanted_does_not_even_begin_to_listen(kind: type[Plainly]) -> None:
    model, drafter, session = made(kind)
    session.controller = hopeless = Hopeless(3)
    session.prefill([5, 6, 7, 8] * 5)
    say(session, 40)
    assert (drafter._tap.users, drafter._tap.copied, drafter.drafts) == (0, 0, 0)
    # The next prompt need not be read again for it.
    passes = len(model.passes)
    session.prefill([*session.tokens, 9])
    assert sum(model.passes[passes:]) <= 2
    hopeless.wanted = True
    say(session, 40)
    assert drafter.drafts > 0
    assert drafter._tap.users == 1


@KINDS
def test_asked_twice_before_a_prompt_is_read_it_says_the_same(kind: type[Plainly]) -> None:
    _, drafter, session = made(kind)
    session.controller = Off()
    session.prefill([5, 6, 7])
    say(session, 40)
    assert drafter._asleep
    prompt = [*session.tokens, 9]
    assert drafter.holds(prompt) == len(prompt)
    assert drafter.holds(prompt) == len(prompt)
    session.prefill(prompt)
    session.controller = FixedLength(3)
    say(session, 30)
    assert drafter.drafts > 0


class Looking(FixedLength):
    """Wants to learn how drafts fare."""

    looking = True


@KINDS
def test_for_a_draft_that_is_looked_at_the_newest_states_do(kind: type[Plainly]) -> None:
    _, drafter, session = made(kind)
    session.prefill([5, 6, 7])
    session.controller = Off()
    drafter._idle = -100
    say(session, 100)
    drafter._glance(Budget(3, advice=FixedLength(3)))
    assert drafter._first == 0
    drafter._glance(Budget(3, advice=Looking(3)))
    assert drafter._known - drafter._first == 16
    session.controller = FixedLength(3)
    say(session, 20)
    assert drafter.drafts > 0


@KINDS
def test_a_text_that_is_read_from_its_beginning_wakes_it(kind: type[Plainly]) -> None:
    _, drafter, session = made(kind)
    session.controller = Off()
    session.prefill([5, 6, 7])
    say(session, 100)
    assert drafter._tap.users == 0
    # Going on with the same text it sleeps on.
    session.prefill([*session.tokens, 9])
    assert drafter._tap.users == 0
    session.prefill([9, 5, 6, 7])
    session.controller = FixedLength(3)
    say(session, 4)
    assert drafter.drafts > 0
    assert (drafter._first, drafter.cells.start) == (0, drafter._shift)
    assert not drafter._skipped


@KINDS
def test_a_drafter_that_comes_in_the_middle_begins_there(kind: type[Plainly]) -> None:
    model, drafter, session = made(kind)
    session.drafter = NoDrafter()
    session.prefill([5, 6, 7, 8])
    say(session, 10)
    session.use_drafter(drafter)
    say(session, 10)
    assert drafter.drafts > 0
    assert drafter.cells.start >= 13
    # The next prompt is read anew, so that all of its states are there.
    passes = len(model.passes)
    prompt = list(session.tokens)
    assert session.prefill(prompt).cached == 0
    assert sum(model.passes[passes:]) == len(prompt) - 1
    say(session, 5)
    assert drafter.cells.start == drafter._shift
    assert session.prefill([*session.tokens, 9, 9]).cached >= len(prompt)


@KINDS
def test_a_prompt_that_the_cache_holds_is_not_read_again(kind: type[Plainly]) -> None:
    model, drafter, session = made(kind)
    session.prefill([5, 6, 7, 8] * 5)
    say(session, 10)
    shorter = session.tokens[:15]
    passes = len(model.passes)
    session.prefill(shorter)
    assert sum(model.passes[passes:]) <= drafter._lag
    drafts = drafter.drafts
    say(session, 6)
    assert drafter.drafts > drafts
    assert drafter._first == 0


@KINDS
def test_closed_it_has_forgotten_the_text_and_can_begin_another(kind: type[Plainly]) -> None:
    _, drafter, session = made(kind)
    session.prefill([5, 6, 7, 8] * 5)
    say(session, 10)
    assert drafter._tap.users == 1
    drafter.close()
    assert drafter._tap.users == 0
    assert drafter.cells.length == 0
    assert drafter.holds(session.tokens) == 0
    session.prefill([5, 6, 7, 8] * 6)
    say(session, 10)
    assert drafter.cells.start == drafter._shift


@KINDS
def test_a_prompt_that_parts_from_the_text_is_read_from_where_a_pair_holds(kind: type[Plainly]) -> None:
    model, drafter, session = made(kind)
    session.prefill([5, 6, 7, 8] * 5)
    say(session, 10)
    other = [*session.tokens[:15], 9, 9, 10, 9]
    passes = len(model.passes)
    session.prefill(other)
    # The state before the first other token went in with the token that stood there.
    assert sum(model.passes[passes:]) == len(other) - 1 - 15 + drafter._lag
    assert drafter._first == 0
    say(session, 6)


@KINDS
def test_another_text_leaves_nothing_of_the_first(kind: type[Plainly]) -> None:
    model, drafter, _ = made(kind)
    assert drafter.holds([5, 6, 7, 8]) == 0
    model.decode([5, 6, 7, 8], "none")
    drafter.observe(0, [5, 6, 7, 8])
    drafter.begin([5, 6, 7, 8, 9])
    assert len(drafter.propose([5, 6, 7, 8, 9], Budget(2))) == 2
    drafter.begin([5, 4, 4, 4, 4])
    assert drafter.propose([5, 4, 4, 4, 4], Budget(2)) is EMPTY_DRAFT
    drafter.begin([4, 4, 4, 4, 4])
    assert drafter.holds([5, 6, 7, 8]) == 0


@KINDS
def test_what_is_read_otherwise_from_a_place_on_does_not_mix_with_what_stood_there(
    kind: type[Plainly],
) -> None:
    model, drafter, _ = made(kind)
    assert drafter.holds([5, 6, 7, 8]) == 0
    model.decode([5, 6, 7, 8], "none")
    drafter.observe(0, [5, 6, 7, 8])
    drafter.begin([5, 6, 7, 8, 9])
    drafter.propose([5, 6, 7, 8, 9], Budget(2))
    model.keep(2)
    model.decode([4, 4], "none")
    drafter.observe(2, [4, 4])
    drafter.begin([5, 6, 4, 4, 9])
    # The assertions are in `propose`: a pair of the place 1 would hold the token that stood at 2.
    assert len(drafter.propose([5, 6, 4, 4, 9], Budget(2))) == 2


@KINDS
@settings(max_examples=150, deadline=None)
@given(happenings=HAPPENINGS)
def test_whatever_happens_drafts_are_made_from_the_text_alone(
    kind: type[Plainly], happenings: list[Happening]
) -> None:
    _, drafter, session = made(kind, max_batch=7)
    happen(session, happenings)
    if not {"swap", "close"} & {call for call, _ in happenings}:
        # It was there all the time, so nothing is missing but what it did not want.
        assert drafter._first == 0 or drafter._skipped
    # After all that it still drafts, from a prompt or in the middle.
    drafts = drafter.drafts
    session.controller = FixedLength(2)
    say(session, 24)
    assert drafter.drafts > drafts
