"""EAGLE-3: what its head reads, in which order, and that it is always the text."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings

from localspec.control import FixedLength
from localspec.drafters.eagle3 import Eagle3Drafter
from localspec.session import Session
from localspec.trees import leaves_of
from localspec.types import Budget, Draft, Outcome
from localspec.verify import GreedyDrawing
from tests.core.growing_heads import GrowingHead, head_state
from tests.core.happenings import HAPPENINGS, Happening, happen, say
from tests.core.scripted_heads import Cell, ScriptedTap, TappedModel, state_of


class Checked(Eagle3Drafter):
    """Checks before the step's end what the head has read for a draft."""

    def __init__(self, head: GrowingHead, tap: ScriptedTap) -> None:
        super().__init__(head, tap, vocabulary=32, greedy=GreedyDrawing())
        self.cells = head
        self.trees = self.chains = 0

    def _drafted(self, tokens: Sequence[int], budget: Budget) -> Draft:
        draft = super()._drafted(tokens, budget)
        text = [self._pair(tokens, place) for place in range(self._first, len(tokens) - 1)]
        head = self.cells
        assert head.cells[: len(text)] == text
        assert head.start == self._first
        if budget.leaves > 1 and head.sequences > 1:
            self.trees += 1
            assert len(head.cells) == len(text)
            # Nodes follow the text, and each reads the state that the head made of those above it.
            for level in head.levels:
                for way in level:
                    assert list(way[: len(text)]) == text
                    for place in range(len(text), len(way)):
                        assert way[place].state == head_state(way[:place])
        else:
            self.chains += 1
            drafted = head.cells[len(text) :]
            ways = [[draft.tokens[node] for node in draft.path_to(leaf)] for leaf in leaves_of(draft)]
            read = [cell.token for cell in drafted]
            assert any(read[: len(way) - 1] == way[:-1] for way in ways)
            for place, cell in enumerate(drafted, start=len(text)):
                assert cell.state == head_state(head.cells[:place])
        return draft

    def _pair(self, tokens: Sequence[int], place: int) -> Cell:
        first, second = state_of(tokens[: place + 1])
        return Cell(tokens[place + 1], (2 * first, 2 * second))


def made(*, sequences: int = 4, max_batch: int = 7) -> tuple[TappedModel, Checked, Session]:
    model = TappedModel(order=1, spread=6.0, max_batch=64)
    drafter = Checked(GrowingHead(sequences=sequences, max_batch=max_batch), ScriptedTap(model))
    return model, drafter, Session(model, model, drafter=drafter, controller=FixedLength(3))


def test_a_draft_begins_with_what_the_last_step_brought_and_goes_on_row_by_row() -> None:
    _, drafter, session = made(max_batch=16)
    session.prefill([5, 6, 7, 8])
    head = drafter.cells
    draft = drafter.propose(session.tokens, Budget(3))
    assert head.passes == [
        (0, (6, 7), 2, "none"),
        (2, (8,), 1, "all"),
        (3, draft.tokens[:1], 1, "all"),
        (4, draft.tokens[1:2], 1, "all"),
    ]
    # Two of three were right: their states and the root's come next, in one pass, behind the text.
    said = (*draft.tokens[:2], 9)
    session.context.decode([8, *draft.tokens], "all")
    session.context.keep(6)
    session.tokens += said
    drafter.commit(Outcome(said, accepted=2, drafted=3, rows=(0, 1, 2)))
    again = drafter.propose(session.tokens, Budget(2))
    assert head.passes[4:] == [(3, said, 3, "all"), (6, again.tokens[:1], 1, "all")]


def test_nothing_is_fed_for_a_draft_that_is_not_wanted() -> None:
    class Unwilling(FixedLength):
        def more(self, draft: Draft) -> bool:
            del draft
            return False

    _, drafter, session = made()
    session.prefill([5, 6, 7, 8])
    read = list(drafter.cells.passes)
    assert len(drafter.propose(session.tokens, Budget(3, advice=Unwilling(3)))) == 0
    assert len(drafter.propose(session.tokens, Budget(0))) == 0
    assert drafter.cells.passes == read
    assert len(drafter.propose(session.tokens, Budget(3))) == 3


def test_a_draft_whose_step_came_to_nothing_is_not_made_twice() -> None:
    _, drafter, session = made()
    session.prefill([5, 6, 7, 8])
    assert len(drafter.propose(session.tokens, Budget(3))) == 3
    assert len(drafter.propose(session.tokens, Budget(3))) == 0


def test_the_first_token_of_a_text_has_no_state_before_it_and_no_draft() -> None:
    _, drafter, session = made()
    session.prefill([5])
    assert len(drafter.propose(session.tokens, Budget(3))) == 0
    say(session, 12)
    assert drafter.chains > 0


def test_a_head_of_one_sequence_drafts_chains_alone() -> None:
    _, drafter, session = made(sequences=1)
    session.prefill([5, 6, 7, 8])
    draft = drafter.propose(session.tokens, Budget(4, leaves=4))
    assert not drafter.cells.levels
    # Second candidates stand beside the first ones, as with draft models.
    assert len(draft) == 4


def test_a_tree_follows_several_nodes_in_a_pass() -> None:
    _, drafter, session = made()
    session.prefill([5, 6, 7, 8])
    draft = drafter.propose(session.tokens, Budget(8, leaves=4))
    levels = drafter.cells.levels
    assert max(map(len, levels)) > 1
    assert max(map(len, levels)) <= 4
    assert not draft.is_chain


@settings(max_examples=150, deadline=None)
@given(happenings=HAPPENINGS)
def test_whatever_happens_the_head_reads_the_text_alone(happenings: list[Happening]) -> None:
    _, drafter, session = made()
    happen(session, happenings)
    # After all that it still drafts, from a prompt or in the middle.
    for controller in (FixedLength(2), FixedLength(6, leaves=3)):
        drafts = drafter.chains + drafter.trees
        session.controller = controller
        say(session, 24)
        assert drafter.chains + drafter.trees > drafts
