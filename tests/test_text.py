from __future__ import annotations

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.text import ReplyText, printable


def stream(pieces: list[bytes], stop: tuple[str, ...] = ()) -> tuple[str, int | None]:
    """The reply's text, and the index of the piece that ended it."""
    reply = ReplyText(stop)
    shown = ""
    ended = None
    for index, piece in enumerate(pieces):
        if reply.push(piece):
            ended = index
            break
        shown += reply.take()
        assert reply.text == shown
    shown += reply.finish()
    assert reply.text == shown
    return shown, ended


def first_stop(text: str, stop: tuple[str, ...]) -> str:
    """The rule, written plainly: the match that ends first wins, the longest of those that end together."""
    found = [(text.find(s) + len(s), -len(s)) for s in stop if s in text]
    if not found:
        return text
    end, minus_length = min(found)
    return text[: end + minus_length]


def test_half_a_character_waits_for_its_rest() -> None:
    reply = ReplyText()
    euro = "€".encode()
    reply.push(b"a" + euro[:1])
    assert reply.take() == "a"
    reply.push(euro[1:2])
    assert reply.take() == ""
    reply.push(euro[2:])
    assert reply.take() == "€"
    assert reply.finish() == ""
    assert reply.text == "a€"


def test_incomplete_and_invalid_bytes_become_replacement_characters() -> None:
    assert stream([b"a\xe2\x82"]) == ("a\ufffd", None)
    assert stream([b"a\xff", b"b"]) == ("a\ufffdb", None)
    assert stream([b"\xed\xa0\x80"]) == ("\ufffd" * 3, None)


def test_a_stop_string_is_cut_with_all_that_follows() -> None:
    assert stream([b"one <|", b"im_", b"end|> two"], ("<|im_end|>",)) == ("one ", 2)


def test_the_beginning_of_a_stop_string_is_held_back_until_it_is_certain() -> None:
    reply = ReplyText(("STOP",))
    assert not reply.push(b"say ST")
    assert reply.take() == "say "
    assert not reply.push(b"O")
    assert reply.take() == ""
    assert not reply.push(b"RY")
    assert reply.take() == "STORY"
    assert not reply.push(b" STO")
    assert reply.take() == " "
    assert reply.finish() == "STO"
    assert not reply.stopped
    assert reply.text == "say STORY STO"


def test_after_a_stop_string_nothing_more_comes() -> None:
    reply = ReplyText(("x",))
    assert reply.push(b"abxc")
    assert reply.push(b"more")
    assert reply.take() == "ab"
    assert reply.finish() == ""
    assert reply.text == "ab"


def test_the_first_complete_stop_string_wins_and_ties_go_to_the_longest() -> None:
    assert stream([b"abcd"], ("abcd", "bc")) == ("a", 0)
    assert stream([b"xabc"], ("bc", "abc", "c")) == ("x", 0)
    assert stream([b"aaab"], ("aab",)) == ("a", 0)
    assert stream([b"a", b"a", b"a", b"b"], ("aab",)) == ("a", 3)


def test_a_stop_string_may_be_split_inside_a_character() -> None:
    stop = "→終"
    pieces = [bytes([byte]) for byte in ("ok" + stop).encode()]
    assert stream(pieces, (stop,)) == ("ok", len(pieces) - 1)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(UsageError, match="must not be empty"):
        ReplyText(("a", ""))


def cuts(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(data)) for cut in at), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(
    text=st.text(alphabet="ab→ST", max_size=40),
    stop=st.lists(st.text(alphabet="ab→ST", min_size=1, max_size=5), max_size=3),
    at=st.lists(st.integers(0, 80), max_size=12),
)
def test_every_chunking_gives_the_text_of_the_plain_rule(text: str, stop: list[str], at: list[int]) -> None:
    shown, ended = stream(cuts(text.encode(), at), tuple(stop))
    assert shown == first_stop(text, tuple(stop))
    assert (ended is not None) == any(s in text for s in stop)


@given(data=st.binary(max_size=40), at=st.lists(st.integers(0, 40), max_size=10))
def test_every_chunking_of_any_bytes_gives_what_decoding_them_gives(data: bytes, at: list[int]) -> None:
    assert stream(cuts(data, at))[0] == data.decode(errors="replace")


@given(
    text=st.text(alphabet="aab", max_size=30),
    stop=st.lists(st.text(alphabet="ab", min_size=1, max_size=4), min_size=1, max_size=3),
)
def test_what_is_shown_early_never_has_to_be_taken_back(text: str, stop: list[str]) -> None:
    final = first_stop(text, tuple(stop))
    reply = ReplyText(stop)
    shown = ""
    for character in text:
        reply.push(character.encode())
        shown += reply.take()
        assert final.startswith(shown)


def test_a_token_costs_microseconds_whatever_the_length_of_the_reply() -> None:
    reply = ReplyText()
    start = time.perf_counter()
    for _ in range(50_000):
        reply.push(b" token")
        reply.take()
    per_token = (time.perf_counter() - start) / 50_000
    # About 0.6 us on the development machine; the bound leaves room for a busy one.
    assert per_token < 20e-6


def test_a_long_stop_string_that_almost_matches_stays_cheap() -> None:
    reply = ReplyText(("a" * 5000 + "b",))
    start = time.perf_counter()
    for _ in range(20_000):
        reply.push(b"a")
        reply.take()
    assert time.perf_counter() - start < 2
    assert reply.push(b"b")
    assert reply.finish() == ""
    assert len(reply.text) == 15_000


def test_printable_keeps_plain_text_newlines_and_tabs() -> None:
    text = "Grüße,\n\t世界 🎉 עברית\u200f"
    assert printable(text) == text


def test_printable_shows_escape_sequences_and_controls() -> None:
    assert printable("\x1b[31mred\x1b[0m") == "␛[31mred␛[0m"
    assert printable("a\rb\x00\x07\x7f") == "a␍b␀␇␡"
    assert printable("\x9b31m") == "␛[31m"


def test_printable_shows_characters_that_reorder_text() -> None:
    assert printable("user\u202egnp.exe") == "user‹U+202E›gnp.exe"
    assert printable("\u2066x\u2069") == "‹U+2066›x‹U+2069›"


@given(st.text(st.characters(codec=None)))
def test_nothing_that_printable_returns_can_control_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not any(ord(c) < 32 and c not in "\n\t" for c in shown)
    assert not any(0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in shown)
    shown.encode()
