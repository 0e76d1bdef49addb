"""N-gram drafting: golden cases, the definition against brute force, periodic text, cost flat in length."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters import check_spec, make_drafter
from localspec.drafters.ngram import NgramDrafter
from localspec.drafters.ngram_tree import PLACES, SURVIVAL
from localspec.errors import UsageError
from localspec.trees import leaves_of
from localspec.types import Budget, Draft, DraftOptions, Outcome


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


# --- branches -------------------------------------------------------------------------------------


def strings(draft: Draft) -> set[tuple[int, ...]]:
    return {tuple(draft.tokens[i] for i in draft.path_to(node)) for node in range(len(draft))}


def brute_force_continuations(
    tokens: list[int], shortest: int, longest: int, count: int
) -> list[tuple[int, list[int]]]:
    found, seen = [], set()
    for length in range(min(longest, len(tokens) - 1), shortest - 1, -1):
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length : end] == tokens[len(tokens) - length :] and end not in seen:
                seen.add(end)
                copied = list(tokens)
                while len(copied) < len(tokens) + count:
                    copied.append(copied[end + len(copied) - len(tokens)])
                found.append((length, copied[len(tokens) :]))
    return found


def test_what_followed_each_match_becomes_a_branch():
    tokens = [1, 2, 3, 9, 1, 2, 4, 9, 1, 2]
    draft = drafter_after(tokens).propose(tokens, Budget(5, 3))
    # The most recent one weighs 1 of 1.5, the other 0.5.
    assert strings(draft) == {(4,), (4, 9), (4, 9, 1), (3,), (3, 9)}
    assert draft.tokens[0] == 4
    assert draft.confidence[0] == pytest.approx(SURVIVAL / 1.5)
    assert (draft.source, draft.match_length) == ("ngram", 3)


def test_what_followed_often_outweighs_what_followed_last():
    tokens = [1, 2, 3, 8, 1, 2, 3, 7, 1, 2, 3, 6, 1, 2, 4, 5, 1, 2]
    draft = drafter_after(tokens, shortest=2, longest=2).propose(tokens, Budget(2, 2))
    assert draft.tokens == (3, 4)
    assert draft.parents == (-1, -1)
    shares = (1 / 2 + 1 / 3 + 1 / 4, 1.0)
    assert draft.confidence == pytest.approx([SURVIVAL * share / sum(shares) for share in shares])


def test_matches_that_agree_share_their_nodes_and_one_match_is_a_chain():
    tokens = [5, 1, 2, 3, 4, 6, 1, 2, 3, 9, 7, 1, 2]
    draft = drafter_after(tokens).propose(tokens, Budget(5, 4))
    assert draft.tokens[0] == 3
    assert draft.parents[0] == -1
    assert draft.parents.count(0) == 2
    tokens = [1, 2, 3] * 3
    assert drafter_after(tokens).propose(tokens, Budget(8, 4)).tokens == (1, 2, 3, 1, 2, 3, 1, 2)
    assert drafter_after([1, 2, 3]).propose([1, 2, 3], Budget(8, 4)) == Draft()


@given(
    tokens=st.lists(st.integers(0, 3), min_size=1, max_size=50),
    cut=st.integers(1, 50),
    shortest=st.integers(1, 3),
    extra=st.integers(0, 3),
    budget=st.builds(Budget, st.integers(1, 12), st.integers(2, 5)),
    asked=st.booleans(),
)
def test_branches_equal_brute_force_however_the_tokens_came(tokens, cut, shortest, extra, budget, asked):
    drafter = NgramDrafter(shortest, shortest + extra)
    drafter.begin(tokens[:cut])
    if asked:
        drafter.propose(tokens[:cut], budget)
    for token in tokens[cut:]:
        drafter.commit(Outcome((token,), 0, 0))
    found = brute_force_continuations(tokens, shortest, shortest + extra, budget.tokens)
    assert list(drafter._continuations(budget.tokens)) == found
    draft = drafter.propose(tokens, budget)
    assert len(draft) <= budget.tokens
    assert len(leaves_of(draft)) <= budget.leaves
    beginnings = {tuple(copy[:end]) for _, copy in found[:PLACES] for end in range(1, len(copy) + 1)}
    assert strings(draft) <= beginnings
    assert len(strings(draft)) == len(draft)
    assert (len(draft) > 0) == bool(found)
    for node, parent in enumerate(draft.parents):
        before = draft.confidence[parent] if parent >= 0 else 1.0
        assert 0 < draft.confidence[node] <= SURVIVAL * before + 1e-12
    # One branch is drafted as ever, whether or not trees were asked for.
    assert list(drafter.propose(tokens, Budget(9)).tokens) == brute_force(
        tokens, shortest, shortest + extra, 9
    )


def test_branches_forget_a_changed_past():
    drafter = drafter_after([1, 2, 3, 1, 2, 4, 1, 2])
    assert len(drafter.propose([], Budget(6, 2))) == 6
    edited = [9, 1, 2, 8, 1, 2]
    drafter.begin(edited)
    draft = drafter.propose(edited, Budget(3, 2))
    assert draft.tokens == (8, 1, 2)


def test_bad_options_are_refused_in_words():
    with pytest.raises(UsageError, match="min"):
        NgramDrafter(3, 2)
    with pytest.raises(UsageError, match="no drafting method 'telepathy'"):
        make_drafter(DraftOptions(spec="telepathy"))
    with pytest.raises(UsageError, match="1 or more"):
        check_spec(DraftOptions(length=0))
    for leaves in (0, 17):
        with pytest.raises(UsageError, match="1 to 16"):
            check_spec(DraftOptions(leaves=leaves))
