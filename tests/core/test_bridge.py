"""Drafts through text: made-up vocabularies against each other, and the real model against itself."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.drafters.base import Needs
from localspec.drafters.bridge import TextBridge
from localspec.drafters.model import ModelDrafter
from localspec.drafters.retokenized import Texts, whole_characters
from localspec.runtime.loading import LoadedModel, load
from localspec.testing import ScriptedModel
from localspec.types import EMPTY_DRAFT, Budget, Draft, EngineOptions, Outcome
from localspec.verify import GreedyDrawing
from tests.core.made_up import (
    EURO,
    PROSE,
    MadeUp,
    SplitsWords,
    bridge,
    commit,
    plain,
    sessions,
    words,
)

# --- what the draft model is shown


@given(sessions())
def test_the_inner_sequence_is_that_of_the_whole_text(
    session: tuple[MadeUp, MadeUp, list[list[int]], random.Random],
) -> None:
    target, draft, pieces, _ = session
    drafter, inner = bridge(target, draft)
    drafter.begin(pieces[0])
    whole = list(pieces[0])
    for piece in pieces[1:]:
        whole += piece
        commit(drafter, piece)
        fresh, fresh_inner = bridge(target, draft)
        fresh.begin(whole)
        assert inner.tokens == fresh_inner.tokens


@given(sessions(), st.data())
def test_the_next_reply_may_begin_anywhere_in_the_one_before(
    session: tuple[MadeUp, MadeUp, list[list[int]], random.Random], data: st.DataObject
) -> None:
    target, draft, pieces, _ = session
    drafter, inner = bridge(target, draft)
    drafter.begin(pieces[0])
    for piece in pieces[1:]:
        commit(drafter, piece)
    whole = [token for piece in pieces for token in piece]
    start = data.draw(st.integers(0, len(whole)))
    other = [*whole[:start], *data.draw(st.sampled_from(pieces))]
    drafter.begin(other)
    fresh, fresh_inner = bridge(target, draft)
    fresh.begin(other)
    assert inner.tokens == fresh_inner.tokens


@given(plain, plain, st.text("abcdef. \n€é", max_size=200))
def test_text_is_shown_in_the_tokens_that_it_has(target: MadeUp, draft: MadeUp, text: str) -> None:
    drafter, inner = bridge(target, draft)
    drafter.begin([])
    for token in target.of(text):
        commit(drafter, [token])
    shown = draft.said(inner.tokens).decode()
    extra = draft.space and bool(shown)
    told = f" {text}" if target.space and text else text
    assert f" {told}"[not extra :].startswith(shown)
    # What is held back is the indentation of a line that has just begun.
    assert not told[len(shown) - extra :].strip(" ")
    assert inner.tokens == draft.of(shown[extra:])


def test_only_the_end_changes() -> None:
    target, draft = MadeUp(), MadeUp([b"abc", b" d"])
    drafter, inner = bridge(target, draft)
    drafter.begin(target.of("ef"))
    for letter in "abc d":
        commit(drafter, target.of(letter))
    assert draft.said(inner.tokens) == b"efabc d"
    # "a", "b" and "c" became one token, and so did the space and "d": what is before was kept.
    assert inner.cuts == [2, 3]


def test_halves_of_a_character_wait_for_the_rest() -> None:
    target, draft = MadeUp(), MadeUp([EURO])
    drafter, inner = bridge(target, draft)
    drafter.begin(target.of("a"))
    for size, byte in enumerate(EURO, start=1):
        commit(drafter, [target.ids[bytes([byte])]])
        assert draft.said(inner.tokens) == (b"a" if size < 3 else b"a" + EURO)


def test_bytes_that_are_no_character_become_one() -> None:
    target, draft = MadeUp(), MadeUp(["\ufffd".encode()])
    drafter, inner = bridge(target, draft)
    drafter.begin([target.ids[b"\xff"], *target.of("a")])
    assert draft.said(inner.tokens).decode() == "\ufffda"


def test_the_beginning_of_text_is_each_vocabulary_s_own() -> None:
    target, draft = MadeUp(control=["<b>", "<s>"]), MadeUp(control=["<s>"])
    drafter, inner = bridge(target, draft)
    drafter.begin([1, *target.of("<b>ab")])
    assert inner.tokens == [0, *draft.of("<b>ab")]
    unmarked = MadeUp()
    drafter, inner = bridge(target, unmarked)
    drafter.begin([1])
    assert inner.tokens == []
    assert drafter.propose([1], Budget(4)) == EMPTY_DRAFT
    drafter, inner = bridge(unmarked, draft)
    drafter.begin(unmarked.of("a"))
    assert inner.tokens == [0, *draft.of("a")]


def test_control_tokens_are_spelled_out_for_the_draft() -> None:
    target, draft = MadeUp(control=["<e>", "<t>"]), MadeUp(control=["<t>"])
    drafter, inner = bridge(target, draft)
    drafter.begin([1, *target.of("a"), 0])
    assert inner.tokens == [0, *draft.of("a"), *draft.of("<e>")]


@given(sessions(), st.integers(1, 6))
def test_a_draft_model_drafts_as_one_that_was_given_the_whole_text(
    session: tuple[MadeUp, MadeUp, list[list[int]], random.Random], length: int
) -> None:
    target, draft, pieces, chance = session
    size = len(draft.pieces)
    context = ScriptedModel(size, max_batch=8)
    drafter = TextBridge(ModelDrafter(context, size, GreedyDrawing()), target, draft)
    drafter.begin(pieces[0])
    whole = list(pieces[0])
    for piece in pieces[1:]:
        proposed = drafter.propose(whole, Budget(length)) if chance.random() < 0.7 else EMPTY_DRAFT
        # What is said may begin with the draft, or not.
        said = [*proposed.tokens[: chance.randrange(len(proposed) + 1)], *piece]
        whole += said
        drafter.commit(Outcome(tuple(said), 0, len(proposed)))
    inner = ModelDrafter(ScriptedModel(size, max_batch=8), size, GreedyDrawing())
    fresh = TextBridge(inner, target, draft)
    fresh.begin(whole)
    assert drafter.propose(whole, Budget(length)) == fresh.propose(whole, Budget(length))


# --- what it drafts


@settings(max_examples=200)
@given(sessions())
def test_drafts_go_on_with_what_was_said(
    session: tuple[MadeUp, MadeUp, list[list[int]], random.Random],
) -> None:
    target, draft, pieces, chance = session
    newest: list[int] = []

    def say(tokens: list[int]) -> list[int]:
        newest[:] = [chance.randrange(len(draft.pieces)) for _ in range(8)]
        return newest

    drafter, inner = bridge(target, draft, say)
    drafter.begin(pieces[0])
    whole = list(pieces[0])
    for piece in pieces[1:]:
        proposed = drafter.propose(whole, Budget(chance.randrange(1, 9)))
        assert len(proposed) <= (inner.budgets[-1].tokens if inner.budgets else 0)
        assert len(proposed.confidence) == len(proposed)
        assert list(proposed.confidence) == sorted(proposed.confidence, reverse=True)
        if len(proposed):
            assert proposed.source == "scripted"
            ends = len(proposed) - (proposed.tokens[-1] in target.eog_tokens)
            shown = draft.said(inner.tokens[len(Texts(draft).start) :])
            drafted = target.said(proposed.tokens[:ends])
            together = shown.removeprefix(b" ") + draft.said(newest[: inner.budgets[-1].tokens])
            told = target.said(
                whole[len(Texts(target).start) if whole[:1] == [*Texts(target).start] else 0 :]
            )
            told = told.removeprefix(b" ")
            if whole_characters(told) == told:
                assert together.startswith(told + drafted)
        whole += piece
        commit(drafter, piece)


@given(words, st.text("abcdef. \n€é", min_size=1, max_size=60), st.data())
def test_a_perfect_draft_in_the_same_vocabulary_is_kept_whole(
    known: list[bytes], text: str, data: st.DataObject
) -> None:
    target = MadeUp(known)
    whole = target.of(text)
    drafter, _ = bridge(target, target, lambda tokens: whole[len(tokens) :])
    at = data.draw(st.integers(1, len(whole)))
    drafter.begin(whole[:at])
    while at < len(whole):
        proposed = drafter.propose(whole[:at], Budget(4))
        rest = whole[at : at + 4]
        complete = whole_characters(target.said(rest)) == target.said(rest)
        half = whole_characters(target.said(whole[:at])) != target.said(whole[:at])
        if complete and not half:
            assert list(proposed.tokens) == rest
        assert list(proposed.tokens) == rest[: len(proposed)]
        commit(drafter, whole[at : at + 4])
        at += 4


def test_longer_and_shorter_words() -> None:
    target, draft = MadeUp([b"abc", b"def"]), MadeUp([b"ab", b"cd", b"ef"])
    drafter, _ = bridge(target, draft, lambda tokens: draft.of("abcdef"))
    drafter.begin(target.of("e"))
    proposed = drafter.propose([], Budget(3))
    # The last one could go on to be another token, for all that is known.
    assert target.said(proposed.tokens) == b"abc"
    # It ends within the second token of the draft, which has to be right for it.
    assert proposed.confidence == pytest.approx((0.9**2,))
    longer = MadeUp([b"abcdef"])
    drafter, _ = bridge(target, longer, lambda tokens: longer.of("abcdef"))
    drafter.begin(target.of("e"))
    proposed = drafter.propose([], Budget(3))
    # Nothing is uncertain about the end of a token that ends where the draft's longer one does.
    assert target.said(proposed.tokens) == b"abcdef"
    assert proposed.confidence == pytest.approx((0.9, 0.9))


def test_a_token_that_would_have_been_another_is_no_draft() -> None:
    target, draft = MadeUp([b"abc"]), MadeUp()
    drafter, _ = bridge(target, draft, lambda tokens: draft.of("cd"))
    drafter.begin(target.of("ab"))
    assert drafter.propose([], Budget(4)) == EMPTY_DRAFT
    drafter.begin(target.of("ef"))
    assert target.said(drafter.propose([], Budget(4)).tokens) == b"cd"


def test_a_half_character_is_completed() -> None:
    target, draft = MadeUp([EURO[:2]]), MadeUp()
    drafter, inner = bridge(target, draft, lambda tokens: draft.of("€ab"))
    drafter.begin([*target.of("a"), target.ids[EURO[:2]]])
    assert draft.said(inner.tokens) == b"a"
    assert target.said(drafter.propose([], Budget(8)).tokens) == EURO[2:] + b"ab"
    inner.say = lambda tokens: draft.of("éab")
    assert drafter.propose([], Budget(8)) == EMPTY_DRAFT


def test_half_a_character_at_the_end_of_a_draft_is_left_out() -> None:
    target, draft = MadeUp([EURO]), MadeUp()
    drafter, _ = bridge(target, draft, lambda tokens: draft.of("ab€"))
    drafter.begin(target.of("a"))
    assert target.said(drafter.propose([], Budget(4)).tokens) == b"ab"
    # The whole character took several tokens of the draft, and more could follow.
    assert target.said(drafter.propose([], Budget(5)).tokens) == b"ab"
    assert target.said(drafter.propose([], Budget(6)).tokens) == b"ab"


def test_indented_lines_are_split_in_both_ways() -> None:
    before, after = SplitsWords([b"\n   ", b"\n\n", b" a", b" b", b" x"]), MadeUp([b"    "])
    assert [before.said([token]) for token in before.of("\n    a")] == [b"\n   ", b" a"]
    assert [after.said([token]) for token in after.of("\n    a")] == [b"\n", b"    ", b"a"]
    target: MadeUp = before
    draft: MadeUp = after
    drafter, inner = bridge(target, draft, lambda tokens: draft.of("    ab"))
    drafter.begin(target.of("e\n    a")[:2])
    assert draft.said(inner.tokens) == b"e\n"
    assert target.said(drafter.propose([], Budget(8)).tokens) == b" ab"
    draft, target = before, after
    drafter, inner = bridge(target, draft, lambda tokens: draft.of(" ab"))
    drafter.begin(target.of("e\n    "))
    assert draft.said(inner.tokens) == b"e\n   "
    assert target.said(drafter.propose([], Budget(8)).tokens) == b"ab"


def test_empty_lines_are_split_as_within_a_text() -> None:
    target = SplitsWords([b"\n   ", b"\n\n", b" x"])
    whole = target.of("e\n\na")
    assert [target.said([token]) for token in whole] == [b"e", b"\n", b"\n", b"a"]
    drafter, inner = bridge(target, target)
    drafter.begin(whole[:3])
    assert inner.tokens == whole[:3]
    # Where it has said both in one, what follows is no word.
    drafter.begin(target.of("e\n\n"))
    assert inner.tokens == target.of("e\n\n")
    assert len(inner.tokens) == 2


def test_the_end_of_a_reply_is_the_target_s_own() -> None:
    target, draft = MadeUp(control=["<e>"]), MadeUp(control=["<end>", "<e>"])
    drafter, _ = bridge(target, draft, lambda tokens: [*draft.of("a"), 1, *draft.of("b")])
    drafter.begin(target.of("ab"))
    # Both know the token.
    assert drafter.propose([], Budget(8)).tokens == (*target.of("a"), 0, *target.of("b"))


def test_a_foreign_end_token_ends_the_draft() -> None:
    target, draft = MadeUp(control=["<e>"]), MadeUp(control=["<t>"])
    draft_ends = MadeUp(control=["<t>"])
    assert draft_ends.eog_tokens == frozenset()

    class Ends(MadeUp):
        @property
        def eog_tokens(self) -> frozenset[int]:
            return frozenset({0})

    ends = Ends(control=["<t>"])
    drafter, _ = bridge(target, ends, lambda tokens: [*ends.of("a"), 0, *ends.of("b")])
    drafter.begin(target.of("ab"))
    assert drafter.propose([], Budget(8)).tokens == (*target.of("a"),)
    # The text has had an end token: the next one is the same.
    drafter.begin(target.of("ab<e>ab"))
    assert drafter.propose([], Budget(8)).tokens == (*target.of("a"), 0)
    assert drafter.propose([], Budget(1)).tokens == (*target.of("a"),)
    # Any other control token that the target does not have just ends the draft.
    drafter, _ = bridge(target, draft, lambda tokens: [*draft.of("a"), 0, *draft.of("b")])
    drafter.begin(target.of("ab<e>ab"))
    assert drafter.propose([], Budget(8)).tokens == (*target.of("a"),)


def test_the_inner_drafter_is_asked_for_a_chain_of_its_likeliest() -> None:
    target = MadeUp()
    drafter, inner = bridge(target, target, lambda tokens: target.of("ab"))

    asked: list[Draft] = []

    class Advice:
        def more(self, draft: Draft) -> bool:
            asked.append(draft)
            return len(asked) < 3

        def rate(self, draft: Draft) -> float:
            return 0.0

        def prospect(self, source: str) -> float:
            return 0.0

    advice = Advice()
    drafter.begin(target.of("a"))
    drafter.propose([], Budget(3, 4, drawing=GreedyDrawing(), advice=advice))
    assert [(budget.tokens, budget.leaves, budget.drawing) for budget in inner.budgets] == [(3, 1, None)]
    # It was asked whether to draft at all, and is not asked that again.
    given = inner.budgets[0].advice
    assert given is not None
    assert asked == [Draft(source="scripted")]
    assert given.more(Draft(source="scripted"))
    assert len(asked) == 1
    assert [given.more(Draft.chain(target.of("a"))) for _ in range(2)] == [True, False]
    assert (given.rate(EMPTY_DRAFT), given.prospect("scripted")) == (0.0, 0.0)
    assert drafter.propose([], Budget(3, advice=advice)) == EMPTY_DRAFT
    assert drafter.propose([], Budget(0)) == EMPTY_DRAFT
    assert (drafter.name, drafter.needs, drafter.remembers) == ("scripted", Needs.TOKENS, False)
    drafter.commit(Outcome(tuple(target.of("ac")), 1, 2))
    assert inner.outcomes == [Outcome(tuple(target.of("ac")), 1, 2)]
    drafter.close()
    assert inner.tokens == []


def test_nothing_is_done_while_no_drafts_are_wanted() -> None:
    target, draft = MadeUp(), MadeUp([b"bc"])
    drafter, inner = bridge(target, draft)
    drafter.begin(target.of("a"))
    for letter in "bcd":
        drafter.propose([], Budget(0))
        drafter.commit(Outcome(tuple(target.of(letter)), 0, 0))
    # It is told that there were steps, not what was said.
    assert inner.outcomes == [Outcome((), 0, 0)] * 3
    drafter.propose([], Budget(1))
    assert inner.tokens == draft.of("abcd")
    drafter.commit(Outcome(tuple(target.of("e")), 0, 0))
    drafter.begin(target.of("abcde"))
    assert inner.tokens == draft.of("abcde")


# --- the real model


@pytest.fixture(scope="module")
def pair(smollm2_path: Path) -> Iterator[tuple[LoadedModel, LoadedModel]]:
    options = EngineOptions(context=512, threads=1)
    both = load(smollm2_path, options), load(smollm2_path, options)
    yield both
    for one in both:
        one.close()


@pytest.mark.model
def test_a_real_model_drafts_for_itself_as_without_the_bridge(pair: tuple[LoadedModel, LoadedModel]) -> None:
    text = pair[0].model.tokenize(PROSE, add_special=True, parse_special=True)
    size = pair[0].model.vocabulary_size
    direct, through = (ModelDrafter(one.context, size, GreedyDrawing()) for one in pair)
    crossing = TextBridge(through, pair[0].model, pair[1].model)
    at = 20
    for drafter in (direct, crossing):
        drafter.begin(text[:at])
    drafted = kept = 0
    while at + 12 < len(text):
        one, other = (drafter.propose(text[:at], Budget(3)) for drafter in (direct, crossing))
        drafted += len(one)
        kept += len(other)
        assert other.tokens == one.tokens[: len(other)]
        assert other.confidence == pytest.approx(one.confidence[: len(other)], rel=0.05)
        right = next((n for n, token in enumerate(one.tokens) if token != text[at + n]), len(one))
        # More than a step would add, for speed: as after steps without a draft.
        said = tuple(text[at : at + right + 9])
        for drafter, draft in ((direct, one), (crossing, other)):
            drafter.commit(Outcome(said, min(right, len(draft)), len(draft)))
        at += len(said)
    # Lost is only what ends within a character.
    assert kept >= 0.9 * drafted > 0
