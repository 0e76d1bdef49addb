"""How replies came about, and how their tokens are set: the fold and the flow, without widgets."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from localspec.messages import (
    EmittedToken,
    Generate,
    Scored,
    Spelled,
    Spelling,
    Step,
    TokenLogprobs,
)
from localspec.types import StepStats
from tests.tui.scripted import INFO
from tui.conversation import Message
from tui.token_flow import MARKS, TokenFlow, label, visible
from tui.tokens import Item, ItemKind, TokenBook, key_of

STATS = StepStats(
    index=0, time_ns=1, position=4, budget=8, drafted=0, accepted=0, emitted=1, kind="bonus", source="",
    match_length=0, threads=2, draft_ns=1, verify_ns=1, sample_ns=1, other_ns=1,
)  # fmt: skip


def step(
    number: int,
    accepted: Sequence[int] = (),
    own: int | None = None,
    *,
    refused: Sequence[int] = (),
    confidence: Sequence[float] = (),
) -> Step:
    """A step whose draft was `accepted` and then `refused`."""
    kind: Any = "correction" if refused else "bonus"
    tokens = [EmittedToken(token, "accepted") for token in accepted]
    tokens += [] if own is None else [EmittedToken(own, kind)]
    drafted = len(accepted) + len(refused)
    stats = replace(
        STATS, drafted=drafted, accepted=len(accepted), emitted=len(tokens), kind=tokens[-1].kind,
        source="ngram" if drafted else "",
    )  # fmt: skip
    return Step(number, "", tuple(tokens), stats, tuple(refused), tuple(confidence))


class Talk:
    """What the book looks at of a conversation."""

    def __init__(self) -> None:
        self.id = 3
        self.messages: list[Message] = []
        self.ask()

    def ask(self) -> None:
        for role in ("user", "assistant"):
            self.messages.append(Message(role, "", row_id=100 + len(self.messages)))


def talking() -> Any:
    return Talk()


def book_of(*steps: Step, most: int = 1000) -> TokenBook:
    book = TokenBook(most, 10)
    book.begin(Generate(1), talking(), INFO)
    for one in steps:
        book.add(one)
    return book


def items(book: TokenBook) -> list[tuple[int, ItemKind, int, int]]:
    record, place, found = book.records[-1], 0, []
    for number, one in enumerate(record.passes):
        found += [(item.id, item.kind, item.place, item.depth) for item in record.items(number, place)]
        place += len(one.tokens)
    return found


# --- the fold


def test_every_token_is_what_the_verifier_said() -> None:
    book = book_of(
        step(1, own=10),
        step(1, (11, 12), 13),
        step(1, (14,), 15, refused=(16, 17)),
        step(1, (), 18, refused=(19,)),
    )
    assert items(book) == [
        (10, "own", 0, -1),
        (11, "accepted", 1, 0),
        (12, "accepted", 2, 1),
        (13, "bonus", 3, -1),
        (14, "accepted", 4, 0),
        (16, "ghost", 5, 1),
        (17, "ghost", 6, 2),
        (15, "correction", 5, -1),
        (19, "ghost", 6, 0),
        (18, "correction", 6, -1),
    ]
    record = book.records[-1]
    assert record.tokens == (10, 11, 12, 13, 14, 15, 18)
    assert record.counts == {"own": 1, "accepted": 3, "bonus": 1, "correction": 2, "ghost": 3}
    assert record.first_refused() == (-1, -1, -1, -1, -1, 16, 19)


def test_a_reply_that_ends_within_its_draft_has_no_own_token() -> None:
    book = book_of(step(1, (11, 12)))
    assert [kind for _, kind, _, _ in items(book)] == ["accepted", "accepted"]
    assert book.records[-1].counts["accepted"] == 2
    assert book.records[-1].length == 2


def test_steps_of_other_replies_are_left_out_and_so_are_those_after_the_end() -> None:
    book = book_of(step(1, own=10))
    book.add(step(2, own=11))
    book.end()
    book.add(step(1, own=12))
    assert book.records[-1].tokens == (10,)
    TokenBook().add(step(1, own=10))
    TokenBook().end()


def test_the_oldest_replies_go_where_there_are_too_many_tokens() -> None:
    conversation = talking()
    book = TokenBook(most=10)
    for number in (1, 2, 3):
        book.begin(Generate(number), conversation, INFO)
        for token in range(4):
            book.add(step(number, own=token))
        book.end()
        conversation.ask()
    assert [record.request.id for record in book.records] == [2, 3]
    book.begin(Generate(4), conversation, INFO)
    for token in range(30):
        book.add(step(4, own=token))
    (record,) = book.records
    assert (record.length, record.cut) == (10, True)


def test_a_reply_is_found_by_its_message_and_written_again_it_is_another() -> None:
    conversation = talking()
    book = TokenBook()
    book.begin(Generate(1), conversation, INFO)
    key = book.records[0].key
    assert key == (3, 101)
    assert key_of(3, None, 1) == (3, -2)
    assert book.find(key) is book.records[0]
    assert book.find((conversation.id, 12345)) is None
    book.begin(Generate(2), conversation, None)
    assert [record.request.id for record in book.records] == [2]
    assert book.records[0].path == ""


def test_spellings_belong_to_a_model() -> None:
    book = book_of(step(1, (11,), 12, refused=(13,)))
    record = book.records[-1]
    assert book.unspelled(record) == {11, 12, 13}
    book.spelled(Spelled("another.gguf", (11,), (Spelling("x"),)))
    assert book.unspelled(record) == {11, 12, 13}
    book.spelled(Spelled(record.path, (11, 13), (Spelling("x"), Spelling("y"))))
    assert book.unspelled(record) == {12}
    assert book.unspelled(record, 1) == set()
    assert book.spelling(record.path, 11) == Spelling("x")


def test_figures_come_in_order_and_those_of_other_replies_make_room() -> None:
    conversation = talking()
    book = TokenBook(1000, most_scored=10)
    score = TokenLogprobs("x", -0.5)
    for number in (1, 2):
        book.begin(Generate(number), conversation, INFO)
        for token in range(8):
            book.add(step(number, own=token))
        conversation.ask()
    first, second = book.records
    book.scored(first, Scored(9, 0, (score,) * 5, ended=False))
    book.scored(first, Scored(9, 7, (score,) * 5, ended=False))
    assert (len(first.scores), first.scored) == (5, False)
    book.scored(first, Scored(9, 5, (score,) * 3, ended=True, shortened=True))
    assert (first.scored, first.shortened) == (True, True)
    book.scored(second, Scored(10, 0, (score,) * 8, ended=True))
    assert (len(first.scores), len(second.scores)) == (0, 8)


# --- the flow


def flow_of(
    width: int, *tokens: tuple[ItemKind, str | Spelling], ghosts: bool = True, depth: int = 0
) -> TokenFlow:
    flow = TokenFlow(width, ghosts=ghosts)
    for place, (kind, text) in enumerate(tokens):
        last = kind == "ghost" and (place + 1 == len(tokens) or tokens[place + 1][0] != "ghost")
        spelling = text if isinstance(text, Spelling) else Spelling(text)
        flow.add(Item(place, kind, place, 0, depth), spelling, last_ghost=last)
    return flow


def rows(flow: TokenFlow) -> list[str]:
    return ["".join(piece.text for piece in row) for row in flow.rows]


def test_signs_say_without_colour_what_a_token_is() -> None:
    flow = flow_of(
        60, ("own", "The"), ("accepted", " lamp"), ("bonus", " turns"), ("ghost", " at"), ("ghost", " dawn"),
        ("correction", " all"),
    )  # fmt: skip
    assert rows(flow) == ["The›·lamp»·turns[×·at×·dawn]≠·all"]
    hidden = flow_of(60, ("accepted", "a"), ("ghost", "b"), ("correction", "c"), ghosts=False)
    assert rows(hidden) == ["›a≠c"]
    assert [hidden.shown(number) for number in range(3)] == [True, False, True]
    assert len(set(MARKS.values())) == len(MARKS)


def test_whitespace_is_seen_and_newlines_break_but_those_that_were_rejected() -> None:
    flow = flow_of(60, ("own", "a:\n\n"), ("own", "\tb\u00a0c"), ("ghost", "\n\n"), ("correction", " d\n"))
    assert rows(flow) == ["a:↵", "↵", "⇥b⍽c[×↵↵]≠·d↵", ""]


def test_nothing_in_a_token_has_an_effect() -> None:
    assert visible("\x1b[31m\x07\x9b2J\r") == "␛[31m␇␛[2J␍"
    assert visible("a\u202eb\u200bc\ufeff\u2028\ue000") == "a‹U+202E›b‹U+200B›c‹U+FEFF›‹U+2028›‹U+E000›"
    assert visible("\u0301e\u0301") == "◌\u0301e\u0301"
    assert visible("日本 😀") == "日本·😀"
    assert label(Spelling("a\nb")) == "a↵b"
    assert label(Spelling("E2 82", "bytes")) == "‹E2 82›"
    assert label(Spelling("<|im_end|>", "control")) == "<|im_end|>"


def test_a_character_in_pieces_is_whole_at_its_last_piece() -> None:
    pieces = [Spelling("F0 9F", "bytes"), Spelling("98 80", "bytes"), Spelling("98 80", "bytes")]
    flow = flow_of(60, *(("own", piece) for piece in pieces))
    assert rows(flow) == ["‹F0 9F›‹98 80›😀‹98 80›"]
    apart = flow_of(60, ("own", pieces[0]), ("own", "x"), ("own", pieces[1]))
    assert rows(apart) == ["‹F0 9F›x‹98 80›"]
    between = flow_of(60, ("accepted", pieces[0]), ("ghost", pieces[1]), ("correction", pieces[1]))
    assert rows(between) == ["›‹F0 9F›[×‹98 80›]≠‹98 80›😀"]


def test_tokens_go_to_the_next_row_as_a_whole_where_they_can() -> None:
    flow = flow_of(10, ("own", "abcdef"), ("accepted", " ghijk"), ("own", "x" * 25), ("own", "日本日本日"))
    assert rows(flow) == ["abcdef", "›·ghijk", "x" * 10, "x" * 10, "x" * 5, "日本日本日"]
    assert [flow.row_of(number) for number in range(4)] == [0, 1, 2, 5]
    assert flow.at(0, 3) == 0
    assert flow.at(1, 50) == 1
    assert flow.at(9, 0) is None
    assert (flow.row_of(99), flow.start_of(1)) == (0, 0)


KINDS = st.sampled_from(sorted(MARKS))
TEXTS = st.text(max_size=12) | st.text("日\u0301 \n\t\x1b\u202ea", max_size=12)


@given(st.lists(st.tuples(KINDS, TEXTS), max_size=30), st.integers(8, 60), st.booleans())
def test_any_text_fits_and_is_harmless(tokens: list[tuple[ItemKind, str]], width: int, ghosts: bool) -> None:
    flow = flow_of(width, *tokens, ghosts=ghosts)
    for row in flow.rows:
        used = 0
        for piece in row:
            assert piece.start == used
            assert piece.width == cell_len(piece.text) > 0
            assert not any(unicodedata.category(character) in ("Cc", "Cf", "Cs") for character in piece.text)
            used += piece.width
        assert used <= width
    shown = [number for number in range(len(tokens)) if flow.shown(number)]
    assert shown == [n for n, (kind, _) in enumerate(tokens) if ghosts or kind != "ghost"]


@pytest.mark.parametrize("ghosts", [True, False])
@given(tokens=st.lists(st.tuples(KINDS, st.text("ab \n日", max_size=6)), max_size=30))
def test_no_character_is_lost(tokens: list[tuple[ItemKind, str]], ghosts: bool) -> None:
    flow = flow_of(11, *tokens, ghosts=ghosts)
    found = "".join(p.text for row in flow.rows for p in row if p.style != "mark")
    wanted = "".join(visible(text) for kind, text in tokens if ghosts or kind != "ghost")
    assert found == wanted.replace("\n", "")
