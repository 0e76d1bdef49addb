from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.window import fit
from localspec.errors import PromptTooLongError
from localspec.types import ChatMessage

OVERHEAD = 4


class Counter:
    """Counts a token a character and four a message, and how often it was asked."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, messages: Sequence[ChatMessage]) -> int:
        self.calls += 1
        return sum(len(message.content) + OVERHEAD for message in messages)


def dialogue(*lengths: int, system: int = 0) -> list[ChatMessage]:
    """User and assistant in turn, of these lengths; told apart by their first characters."""
    turns = [ChatMessage("system", "s" * system)] if system else []
    for index, length in enumerate(lengths):
        turns.append(ChatMessage("user" if index % 2 == 0 else "assistant", f"{index:x}".ljust(length, ".")))
    return turns


def test_all_that_fits_stays() -> None:
    turns = dialogue(10, 20, 10, system=8)
    counter = Counter()
    window = fit(turns, count=counter, limit=100, reserve=20)
    assert window.messages == tuple(turns)
    assert window.dropped == 0
    assert window.tokens == Counter()(turns)
    assert counter.calls == 1


def test_exactly_full_is_not_too_full() -> None:
    turns = dialogue(10, 20, 10)
    size = Counter()(turns)
    assert fit(turns, count=Counter(), limit=size + 20, reserve=20).dropped == 0
    assert fit(turns, count=Counter(), limit=size + 19, reserve=20).dropped == 2


def test_the_oldest_exchanges_go_whole_and_the_system_message_stays() -> None:
    turns = dialogue(*[36] * 9, system=36)
    window = fit(turns, count=Counter(), limit=400, reserve=40)
    assert window.messages[0] == turns[0]
    assert window.messages[1].role == "user"
    assert window.messages[-1] == turns[-1]
    assert window.messages[1:] == tuple(turns[1 + window.dropped :])
    assert window.tokens == Counter()(window.messages)


def test_dropping_leaves_about_a_quarter_of_the_room_free() -> None:
    turns = dialogue(*[16] * 101)
    window = fit(turns, count=Counter(), limit=1000, reserve=0)
    assert 650 <= window.tokens <= 1000
    barely = dialogue(*[16] * 51)
    assert 700 <= fit(barely, count=Counter(), limit=1000, reserve=0).tokens <= 760


def test_following_turns_keep_the_same_beginning_for_a_while() -> None:
    turns = dialogue(16)
    beginnings = []
    for _ in range(200):
        window = fit(turns, count=Counter(), limit=2000, reserve=200)
        beginnings.append(window.dropped)
        turns += [ChatMessage("assistant", "a" * 36), ChatMessage("user", "u" * 16)]
    assert beginnings == sorted(beginnings)
    changes = sum(a != b for a, b in itertools.pairwise(beginnings))
    # 200 exchanges of 60 tokens in quarters of 450: a change every seven turns or so.
    assert changes <= math.ceil(200 * 60 / 450)
    assert changes > 10


def test_a_newest_message_that_cannot_fit_is_an_error_with_both_numbers() -> None:
    with pytest.raises(PromptTooLongError, match=r"1,012 tokens.*800.*leaves 700.*--context 1112"):
        fit(dialogue(10, 10, 1000, system=4), count=Counter(), limit=800, reserve=100)
    with pytest.raises(PromptTooLongError, match="leaves 0"):
        fit(dialogue(10), count=Counter(), limit=100, reserve=200)
    with pytest.raises(PromptTooLongError):
        fit(dialogue(system=500), count=Counter(), limit=100, reserve=10)


def test_a_newest_message_that_just_fits_keeps_as_much_as_it_can() -> None:
    turns = dialogue(100, 100, 10, 10, 700, system=6)
    window = fit(turns, count=Counter(), limit=800, reserve=50)
    assert window.messages == (turns[0], *turns[3:])


def test_a_long_history_is_counted_a_few_times_only() -> None:
    turns = dialogue(*[20 + index * 7 % 90 for index in range(4001)])
    counter = Counter()
    window = fit(turns, count=counter, limit=8192, reserve=512)
    assert window.dropped > 3000
    assert counter.calls <= 6


def test_a_history_whose_characters_mislead_is_still_counted_seldom() -> None:
    turns = [
        ChatMessage("user" if i % 2 == 0 else "assistant", "x" * (2000 if i < 100 else 1))
        for i in range(2001)
    ]

    def count(messages: Sequence[ChatMessage]) -> int:
        nonlocal calls
        calls += 1
        return len(messages) * 10

    calls = 0
    window = fit(turns, count=count, limit=1000, reserve=0)
    assert window.tokens <= 1000
    assert calls <= 26


@given(
    lengths=st.lists(st.integers(0, 60), min_size=1, max_size=40),
    system=st.integers(0, 20),
    limit=st.integers(20, 600),
    reserve=st.integers(0, 100),
)
def test_the_choice_is_the_smallest_that_the_rule_allows(
    lengths: list[int], system: int, limit: int, reserve: int
) -> None:
    if len(lengths) % 2 == 0:
        lengths = lengths[1:] or [1]
    turns = dialogue(*lengths, system=system)
    head = turns[:1] if system else []
    rest = turns[len(head) :]
    room = limit - reserve
    choices = [[*head, *rest[start:]] for start in range(0, len(rest), 2)]
    sizes = [Counter()(choice) for choice in choices]
    if sizes[-1] > room:
        with pytest.raises(PromptTooLongError):
            fit(turns, count=Counter(), limit=limit, reserve=reserve)
        return
    window = fit(turns, count=Counter(), limit=limit, reserve=reserve)
    assert window.tokens + reserve <= limit
    if sizes[0] <= room:
        assert window.dropped == 0
        return
    quarter = max(room // 4, 1)
    goal = sizes[0] - math.ceil((sizes[0] - room) / quarter) * quarter
    goal = goal if sizes[-1] <= goal else room
    assert list(window.messages) == next(c for c, size in zip(choices, sizes, strict=True) if size <= goal)
