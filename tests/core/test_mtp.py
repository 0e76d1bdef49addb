"""MTP: what one prediction layer or several of them read, and that it is always the text."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control import FixedLength
from localspec.drafters.mtp import MtpDrafter
from localspec.session import Session
from localspec.types import Budget, Draft, Outcome
from localspec.verify import GreedyDrawing
from tests.core.growing_heads import GrowingHead, head_state
from tests.core.happenings import HAPPENINGS, Happening, happen, say
from tests.core.scripted_heads import Cell, ScriptedTap, TappedModel, state_of

LAYERS = pytest.mark.parametrize("layers", [1, 3])


class Checked(MtpDrafter):
    """Checks before the step's end what each layer has read for a draft."""

    def __init__(self, head: GrowingHead, tap: ScriptedTap) -> None:
        layers = len(head.layers)
        super().__init__(head, tap, vocabulary=32, greedy=GreedyDrawing(), prediction_layers=layers)
        self.cells = head
        self.drafts = 0

    def _drafted(self, tokens: Sequence[int], budget: Budget) -> Draft:
        self.drafts += 1
        draft = super()._drafted(tokens, budget)
        head, one = self.cells, len(self.cells.layers) == 1
        # A row for every token, of its own and the state before it; several layers wait with the last token.
        known = range(self._first, len(tokens) - (1 if one else 2))
        text = [Cell(tokens[place + 1], state_of(tokens[: place + 1])) for place in known]
        if self._first == 0:
            text.insert(0, Cell(tokens[0], (0.0, 0.0)))
        assert head.start == (self._first + 1 if self._first else 0) or not text
        for layer in head.layers:
            assert layer[: len(text)] == text
        drafted = head.cells[len(text) :]
        if not one:
            assert len(draft) <= len(head.layers)
            assert drafted[0] == Cell(tokens[-1], state_of(tokens[:-1]))
        elif draft.is_chain:
            assert [cell.token for cell in drafted] == list(draft.tokens[:-1])
            for place, cell in enumerate(drafted, start=len(text)):
                assert cell.state == head_state(head.cells[:place])
        return draft


def made(layers: int, *, max_batch: int = 7) -> tuple[TappedModel, Checked, Session]:
    model = TappedModel(order=1, spread=6.0, max_batch=64)
    drafter = Checked(GrowingHead(layers=layers, max_batch=max_batch), ScriptedTap(model))
    return model, drafter, Session(model, model, drafter=drafter, controller=FixedLength(3))


def test_one_layer_reads_the_last_step_and_then_its_own_states() -> None:
    _, drafter, session = made(1, max_batch=16)
    session.prefill([5, 6, 7, 8])
    head = drafter.cells
    draft = drafter.propose(session.tokens, Budget(3))
    assert head.passes == [
        (0, (5,), 1, "none"),
        (1, (6, 7), 2, "none"),
        (3, (8,), 1, "all"),
        (4, draft.tokens[:1], 1, "all"),
        (5, draft.tokens[1:2], 1, "all"),
    ]
    session.context.decode([8, *draft.tokens], "all")
    session.context.keep(5)
    said = (draft.tokens[0], 9)
    session.tokens += said
    drafter.commit(Outcome(said, accepted=1, drafted=3, rows=(0, 1)))
    drafter.propose(session.tokens, Budget(1))
    assert head.passes[5:] == [(4, said, 2, "all")]


def test_of_several_layers_each_drafts_a_token_from_what_the_one_before_made() -> None:
    _, drafter, session = made(3, max_batch=16)
    session.prefill([5, 6, 7, 8])
    head = drafter.cells
    draft = drafter.propose(session.tokens, Budget(5))
    assert len(draft) == 3
    read = [(0, (5,), 1, "none")] * 3 + [(1, (6, 7), 2, "none")] * 3
    assert head.passes == [
        *read,
        (3, (8,), 1, "all"),
        (3, (8, draft.tokens[0]), 2, "all"),
        (3, (8, *draft.tokens[:2]), 3, "all"),
    ]
    # The state of the last token waits: all layers read it once the step is over.
    session.context.decode([8, *draft.tokens], "all")
    session.context.keep(4)
    session.tokens.append(9)
    drafter.commit(Outcome((9,), accepted=0, drafted=3))
    drafter.propose(session.tokens, Budget(1))
    assert head.passes[9:] == [(3, (8,), 1, "none")] * 3 + [(4, (9,), 1, "all")]


@LAYERS
def test_it_drafts_from_the_first_tokens_on(layers: int) -> None:
    _, drafter, session = made(layers)
    session.prefill([5])
    assert len(drafter.propose(session.tokens, Budget(3))) == 0
    say(session, 12)
    assert drafter.drafts > 0


@settings(max_examples=150, deadline=None)
@given(happenings=HAPPENINGS, layers=st.sampled_from([1, 2, 3]))
def test_whatever_happens_all_layers_read_the_text_alone(happenings: list[Happening], layers: int) -> None:
    _, drafter, session = made(layers)
    happen(session, happenings)
    drafts = drafter.drafts
    session.controller = FixedLength(2)
    say(session, 24)
    assert drafter.drafts > drafts
