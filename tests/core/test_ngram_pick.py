"""The n-gram variants: golden cases of vLLM, and every variant against its definition by brute force."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters import check_spec, make_drafter
from localspec.drafters.ngram import NgramDrafter
from localspec.drafters.ngram_pick import PICKS
from localspec.errors import UsageError
from localspec.types import Budget, DraftOptions, Outcome

TOKENS = st.lists(st.integers(0, 3), min_size=1, max_size=60)


def draft_of(tokens: list[int], count: int, **options: object) -> tuple[int, ...]:
    drafter = NgramDrafter(**options)
    drafter.begin(tokens)
    return drafter.propose(tokens, Budget(count)).tokens


def picked(tokens: list[int], length: int, pick: str, min_hits: int) -> int | None:
    """Where the variant copies from, from all places of the trailing n-gram."""
    suffix = tokens[len(tokens) - length :]
    places = [end for end in range(length, len(tokens)) if tokens[end - length : end] == suffix]
    hits = Counter(tokens[end] for end in places)
    places = [end for end in places if hits[tokens[end]] >= min_hits]
    if not places:
        return None
    if pick == "first":
        return places[0]
    if pick == "frequent":
        return max(places, key=lambda end: (hits[tokens[end]], end))
    return places[-1]


def brute_force(
    tokens: list[int], lengths: range, pick: str, min_hits: int, budget: int
) -> tuple[int, list[int]]:
    for length in reversed(lengths):
        end = picked(tokens, length, pick, min_hits) if length < len(tokens) else None
        if end is not None:
            copied = list(tokens)
            while len(copied) < len(tokens) + budget:
                copied.append(copied[end + len(copied) - len(tokens)])
            return length, copied[len(tokens) :]
    return 0, []


@pytest.mark.parametrize(
    ("tokens", "shortest", "longest", "count", "expected"),
    [
        ([1, 2, 3, 4, 1, 2, 3], 2, 2, 3, (4, 1, 2)),
        ([2, 3, 4, 5, 1, 2, 3, 4, 1, 2, 3, 4], 3, 4, 2, (1, 2)),
    ],
)
def test_golden_cases_of_vllm(tokens, shortest, longest, count, expected):
    assert draft_of(tokens, count, shortest=shortest, longest=longest, pick="first") == expected


def test_the_picks_differ_where_one_match_was_continued_in_several_ways():
    tokens = [1, 2, 7, 1, 2, 8, 1, 2, 8, 1, 2, 9, 1, 2]
    found = {pick: draft_of(tokens, 1, longest=2, pick=pick) for pick in PICKS}
    assert found == {"recent": (9,), "frequent": (8,), "first": (7,)}
    found = {pick: draft_of(tokens, 1, longest=2, pick=pick, min_hits=2) for pick in PICKS}
    assert found == dict.fromkeys(PICKS, (8,))
    assert draft_of(tokens, 1, longest=2, min_hits=3) == ()


def test_a_shorter_match_is_taken_where_the_longer_one_has_too_few_hits():
    tokens = [5, 1, 2, 8, 6, 1, 2, 9, 7, 1, 2, 9, 5, 1, 2]
    assert draft_of(tokens, 1, shortest=2, longest=3) == (8,)
    assert draft_of(tokens, 1, shortest=2, longest=3, min_hits=2) == (9,)


@given(
    tokens=TOKENS,
    cut=st.integers(1, 60),
    shortest=st.integers(1, 3),
    extra=st.integers(0, 3),
    pick=st.sampled_from(PICKS),
    min_hits=st.integers(1, 4),
    budget=st.integers(1, 9),
)
def test_equals_brute_force_however_the_tokens_came(tokens, cut, shortest, extra, pick, min_hits, budget):
    drafter = NgramDrafter(shortest, shortest + extra, pick, min_hits)
    drafter.begin(tokens[:cut])
    for token in tokens[cut:]:
        drafter.commit(Outcome((token,), 0, 0))
    lengths = range(shortest, shortest + extra + 1)
    draft = drafter.propose(tokens, Budget(budget))
    assert (draft.match_length, list(draft.tokens)) == brute_force(tokens, lengths, pick, min_hits, budget)


@given(
    tokens=TOKENS,
    cut=st.integers(1, 60),
    shortest=st.integers(1, 3),
    extra=st.integers(0, 2),
    pick=st.sampled_from(PICKS),
    min_hits=st.integers(1, 3),
    asked=st.booleans(),
)
def test_the_picked_match_leads_the_branches_and_the_rest_have_hits_enough(
    tokens, cut, shortest, extra, pick, min_hits, asked
):
    drafter = NgramDrafter(shortest, shortest + extra, pick, min_hits)
    drafter.begin(tokens[:cut])
    if asked:
        drafter.propose(tokens[:cut], Budget(4, 3))
    for token in tokens[cut:]:
        drafter.commit(Outcome((token,), 0, 0))
    expected, seen = [], set()
    for length in range(shortest + extra, shortest - 1, -1):
        first = picked(tokens, length, pick, min_hits) if length < len(tokens) else None
        if first is None:
            continue
        suffix = tokens[len(tokens) - length :]
        places = [end for end in range(length, len(tokens)) if tokens[end - length : end] == suffix]
        hits = Counter(tokens[end] for end in places)
        for end in [first, *(end for end in reversed(places) if hits[tokens[end]] >= min_hits)]:
            if end not in seen:
                seen.add(end)
                expected.append((length, tokens[end]))
    assert [(length, copy[0]) for length, copy in drafter._continuations(1)] == expected


def test_nothing_is_counted_where_nothing_asks_for_it():
    for pick, min_hits, counted in (("recent", 1, False), ("first", 1, False), ("frequent", 1, True)):
        drafter = NgramDrafter(2, 5, pick, min_hits)
        drafter.begin([1, 2, 3] * 20)
        assert bool(drafter._places._hits) is counted


@pytest.mark.parametrize("pick", PICKS)
def test_a_changed_past_is_forgotten(pick):
    drafter = NgramDrafter(2, 3, pick, 2)
    drafter.begin([1, 2, 3, 1, 2, 3, 1, 2])
    assert drafter.propose([], Budget(1)).tokens == (3,)
    drafter.begin([1, 2, 3, 9, 1, 2])
    assert drafter.propose([], Budget(1)).tokens == ()


def test_bad_options_are_refused_in_words():
    with pytest.raises(UsageError, match="no n-gram pick 'best'; use one of: recent, frequent, first"):
        check_spec(DraftOptions(ngram_pick="best"))
    with pytest.raises(UsageError, match="1 time or more, not 0"):
        check_spec(DraftOptions(ngram_min_hits=0))
    with pytest.raises(UsageError, match="min 3, max 2"):
        check_spec(DraftOptions(ngram_min=3, ngram_max=2))
    made = make_drafter(DraftOptions(ngram_pick="first", ngram_min_hits=2))
    made.begin([1, 2, 3, 1, 2, 4, 1, 2, 4, 1, 2])
    assert made.propose([], Budget(1)).tokens == (4,)
