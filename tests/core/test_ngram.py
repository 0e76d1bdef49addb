"""N-gram drafting: golden cases, the definition against brute force, periodic text, cost flat in length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters import check_spec, make_drafter
from localspec.drafters.ngram import NgramDrafter
from localspec.errors import UsageError
from localspec.types import Budget, DraftOptions, Outcome


def drafter_after(tokens: list[int], **options: int) -> NgramDrafter:
    drafter = NgramDrafter(**options)
    drafter.begin(tokens)
    return drafter


def brute_force(tokens: list[int], shortest: int, longest: int, budget: int) -> list[int]:
    for length in range(longest, shortest - 1, -1):
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length : end] == tokens[len(tokens) - length :]:
                copied = list(tokens)
                while len(copied) < len(tokens) + budget:
                    copied.append(copied[end + len(copied) - len(tokens)])
                return copied[len(tokens) :]
    return []


def test_copies_what_followed_the_last_match():
    tokens = [1, 2, 3, 4, 1, 2, 3]
    assert drafter_after(tokens, shortest=2, longest=2).propose(tokens, Budget(3)).tokens == (4, 1, 2)


def test_the_longest_match_wins_over_the_most_recent():
    tokens = [7, 1, 2, 9, 5, 1, 2, 8, 7, 1, 2]
    draft = drafter_after(tokens).propose(tokens, Budget(1))
    assert draft.tokens == (9,)
    assert draft.match_length == 3


def test_of_equal_matches_the_most_recent_wins():
    tokens = [1, 2, 3, 1, 2, 4, 1, 2]
    assert drafter_after(tokens).propose(tokens, Budget(1)).tokens == (4,)


def test_periodic_text_is_continued_past_its_end():
    tokens = [1, 2, 3] * 3
    draft = drafter_after(tokens).propose(tokens, Budget(8))
    assert draft.tokens == (1, 2, 3, 1, 2, 3, 1, 2)


@given(
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    cut=st.integers(1, 60),
    shortest=st.integers(1, 3),
    extra=st.integers(0, 3),
    budget=st.integers(1, 9),
)
def test_equals_brute_force_however_the_tokens_came(tokens, cut, shortest, extra, budget):
    drafter = NgramDrafter(shortest, shortest + extra)
    drafter.begin(tokens[:cut])
    for token in tokens[cut:]:
        drafter.commit(Outcome((token,), 0, 0))
    expected = brute_force(tokens, shortest, shortest + extra, budget)
    assert list(drafter.propose(tokens, Budget(budget)).tokens) == expected


def test_a_changed_past_is_forgotten():
    drafter = drafter_after([1, 2, 3, 4, 5])
    edited = [9, 9, 1, 2]
    drafter.begin(edited)
    assert drafter.propose(edited, Budget(4)).tokens == ()


def test_work_for_a_draft_does_not_grow_with_the_context():
    """Counted, not timed: look-ups of the index per proposal on 100 and on 100,000 tokens."""

    class Counting(dict[tuple[int, ...], int]):
        reads = 0

        def get(self, key, default=None):
            Counting.reads += 1
            return super().get(key, default)

    reads = []
    for size in (100, 100_000):
        tokens = [number * 7919 % 1009 for number in range(size)]
        drafter = drafter_after(tokens)
        drafter._index = Counting(drafter._index)
        Counting.reads = 0
        drafter.propose(tokens, Budget(8))
        reads.append(Counting.reads)
    assert max(reads) <= 4


def test_bad_options_are_refused_in_words():
    with pytest.raises(UsageError, match="min"):
        NgramDrafter(3, 2)
    with pytest.raises(UsageError, match="no drafting method 'telepathy'"):
        make_drafter(DraftOptions(spec="telepathy"))
    with pytest.raises(UsageError, match="1 or more"):
        check_spec(DraftOptions(length=0))
