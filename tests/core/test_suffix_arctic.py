"""The published suffix decoding: golden cases, and thousands of drafts against the definition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters import make_drafter
from localspec.drafters.suffix_arctic import ArcticDrafter
from localspec.errors import UsageError
from localspec.memory.memory import Memory
from localspec.trees import depths_of, leaves_of
from localspec.types import Budget, Draft, DraftOptions, Outcome

Documents = Sequence[Sequence[int]]
Expected = tuple[Fraction, int, list[int], list[int], list[Fraction]]
"""Score, match length, tokens, parents, cumulative p."""

NOTHING: Expected = (Fraction(0), 0, [], [], [])


def remembering(*documents: Sequence[int]) -> Memory:
    memory = Memory()
    for document in documents:
        memory.add(document, "said")
    return memory


def drafted(text: Sequence[int], budget: Budget, *documents: Sequence[int], **options: float) -> Draft:
    drafter = ArcticDrafter(remembering(*documents), **options)
    drafter.begin(text)
    return drafter.propose(text, budget)


class Counted:
    """How often every string of up to `depth` tokens occurs in `sequences`, and where it did so last."""

    def __init__(self, sequences: Documents, depth: int) -> None:
        self.counts: Counter[tuple[int, ...]] = Counter()
        self.last: dict[tuple[int, ...], tuple[int, int]] = {}
        for number, sequence in enumerate(sequences):
            for start in range(len(sequence)):
                for end in range(start + 1, min(start + depth, len(sequence)) + 1):
                    string = tuple(sequence[start:end])
                    self.counts[string] += 1
                    self.last[string] = max(self.last.get(string, (0, 0)), (number, end))
        self.tokens = sorted({token for sequence in sequences for token in sequence})

    def children(self, string: tuple[int, ...]) -> list[tuple[Fraction, int]]:
        """p and token of all that follows, the highest count first, of equal ones the most recent."""
        found = [(*string, token) for token in self.tokens if self.counts[(*string, token)]]
        found.sort(key=lambda child: (self.counts[child], self.last[child]), reverse=True)
        return [(Fraction(self.counts[child], self.counts[string]), child[-1]) for child in found]


def chain(counted: Counted, match: tuple[int, ...], nodes: int, p_min: float) -> Expected:
    tokens: list[int] = []
    probabilities: list[Fraction] = []
    p = Fraction(1)
    while len(tokens) < nodes:
        children = counted.children((*match, *tokens))
        if not children or float(p * children[0][0]) < p_min:
            break
        p *= children[0][0]
        tokens.append(children[0][1])
        probabilities.append(p)
    return sum(probabilities, Fraction(0)), len(match), tokens, [*range(-1, len(tokens) - 1)], probabilities


def tree(counted: Counted, match: tuple[int, ...], nodes: int, p_min: float, leaves: int) -> Expected:
    tokens: list[int] = []
    parents: list[int] = []
    probabilities: list[Fraction] = []
    waiting: list[tuple[Fraction, int, int, tuple[int, ...]]] = []

    def push(p: Fraction, parent: int, string: tuple[int, ...]) -> None:
        for share, token in counted.children(string):
            if float(p * share) >= p_min:
                waiting.append((p * share, parent, token, (*string, token)))

    push(Fraction(1), -1, match)
    while waiting and len(tokens) < nodes:
        # Of equal ones max takes the one that waits longest.
        chosen = max(range(len(waiting)), key=lambda place: waiting[place][0])
        p, parent, token, string = waiting.pop(chosen)
        grown = Draft((*tokens, token), (*parents, parent))
        if len(leaves_of(grown)) > leaves:
            continue
        tokens.append(token)
        parents.append(parent)
        probabilities.append(p)
        push(p, len(tokens) - 1, string)
    return sum(probabilities, Fraction(0)), len(match), tokens, parents, probabilities


def speculate(
    sequences: Documents,
    text: Sequence[int],
    budget: Budget,
    *,
    depth: int = 64,
    factor: float = 1.0,
    offset: float = 0.0,
    p_min: float = 0.1,
) -> Expected:
    counted = Counted(sequences, depth)
    context = tuple(text[-depth:])
    best = NOTHING
    for length in range(1, len(context)):
        match = context[-length:]
        if not counted.counts[match]:
            break
        nodes = max(0, min(int(length * factor + offset), budget.tokens))
        if budget.leaves == 1:
            found = chain(counted, match, nodes, p_min)
        else:
            found = tree(counted, match, nodes, p_min, budget.leaves)
        if found[0] and found[0] >= best[0]:
            best = found
    return best


def expected(
    text: Sequence[int], documents: Documents, budget: Budget, *, requests: int = 10_000, **options: float
) -> Expected:
    kept = documents[max(len(documents) - requests, 0) :]
    local = speculate([text], text, budget, **options)
    remembered = speculate(kept, text, budget, **options)
    return remembered if remembered[0] > local[0] else local


def check(draft: Draft, wanted: Expected) -> None:
    score, length, tokens, parents, probabilities = wanted
    assert draft.match_length == length
    assert list(draft.tokens) == tokens
    assert list(draft.parents) == parents
    assert list(draft.confidence) == [float(p) for p in probabilities]
    assert sum(draft.confidence) == pytest.approx(float(score))
    assert draft.source == ("suffix:arctic" if tokens else "")


# --- golden cases -----------------------------------------------------------------------------------


def test_golden_case_of_the_present_text():
    text = [1, 2, 3, 4, 5, 9, 1, 2, 3]
    draft = drafted(text, Budget(16))
    assert draft == Draft.chain([4, 5, 9], source="suffix:arctic", confidence=(0.5, 0.5, 0.5), match_length=3)


@pytest.mark.parametrize(
    ("documents", "tokens"),
    [
        (([1, 2, 3, 7, 8], [1, 2, 3, 4, 5]), (4, 7, 5, 8)),
        # What is equally likely comes with the most recent first.
        (([1, 2, 3, 4, 5], [1, 2, 3, 7, 8]), (7, 4, 8, 5)),
    ],
)
def test_golden_case_of_a_tree(documents, tokens):
    draft = drafted([9, 1, 2, 3], Budget(16, 4), *documents, factor=2)
    assert draft.tokens == tokens
    assert draft.parents == (-1, -1, 0, 1)
    assert sum(draft.confidence) == 2.0
    assert draft.match_length == 3


def test_golden_case_of_a_match_that_is_the_whole_text():
    assert drafted([1, 2, 3], Budget(16, 4), [1, 2, 3, 4, 5], [1, 2, 3, 7, 8]).match_length == 2


# --- the definition ---------------------------------------------------------------------------------


def test_thousands_of_drafts_equal_brute_force():
    random = np.random.default_rng(5)
    said = deep = remembered = wide = 0
    for _ in range(4000):
        letters = int(random.integers(1, 7))
        text = random.integers(0, letters, random.integers(1, 40)).tolist()
        documents = [
            random.integers(0, letters, random.integers(1, 25)).tolist() for _ in range(random.integers(0, 5))
        ]
        if random.random() < 0.5:
            # The same words again, at the end or a few words before it.
            again = random.integers(0, letters, 12).tolist()
            documents.append([*again, 0, *again[:9]])
            text += [*again, 0, *again[: random.integers(12)]]
        budget = Budget(int(random.integers(1, 13)), int(random.choice([1, 2, 3, 16])))
        options = {
            "depth": int(random.choice([2, 4, 8, 64, 64])),
            "factor": float(random.choice([0.5, 1.0, 2.0])),
            "offset": float(random.choice([-1.0, 0.0, 0.0, 1.5])),
            "p_min": float(random.choice([0.0, 0.1, 0.1, 0.3])),
            "requests": int(random.choice([0, 1, 3, 10_000])),
        }
        draft = drafted(text, budget, *documents, **options)
        wanted = expected(text, documents, budget, **options)
        check(draft, wanted)
        said += len(draft) > 0
        deep += len(draft) > 4
        wide += len(leaves_of(draft)) > 1
        remembered += wanted != expected(text, [], budget, **options)
    assert min(said, deep, remembered, wide) > 300


@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=50),
    documents=st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=30), max_size=4),
    cut=st.integers(1, 50),
    other=st.lists(st.integers(0, 3), max_size=20),
    budget=st.builds(Budget, st.integers(1, 12), st.integers(1, 5)),
    depth=st.integers(2, 20),
)
def test_drafts_equal_brute_force_however_the_tokens_came(text, documents, cut, other, budget, depth):
    """Step by step, with documents that arrive between, after a text that went on differently."""
    memory = Memory()
    drafter = ArcticDrafter(memory, depth=depth)
    drafter.begin([*text[:cut], *other])
    drafter.propose([*text[:cut], *other], budget)
    drafter.begin(text[:cut])
    for index in range(cut, len(text)):
        drafter.propose(text[:index], budget)
        drafter.commit(Outcome((text[index],), 0, 0))
    for document in documents:
        memory.add(document, "said")
    draft = drafter.propose(text, budget)
    check(draft, expected(text, documents, budget, depth=depth))
    assert draft == drafted(text, budget, *documents, depth=depth)
    assert len(draft) <= min(budget.tokens, draft.match_length)
    assert len(leaves_of(draft)) <= budget.leaves
    assert max(depths_of(draft), default=0) + draft.match_length <= depth


@pytest.mark.parametrize("period", [1, 3, 70])
@pytest.mark.parametrize("leaves", [1, 3])
def test_text_that_repeats_itself(period, leaves):
    text = [*range(period)] * (-(-140 // period))
    draft = drafted(text, Budget(8, leaves))
    check(draft, expected(text, [], Budget(8, leaves)))
    assert draft.tokens == tuple(number % period for number in range(8))


def test_a_longer_match_may_leave_no_room_for_a_draft():
    text = [*range(80), *range(80)]
    draft = drafted(text, Budget(64))
    # Half of the depth for the match, half for the draft.
    assert (draft.match_length, len(draft)) == (32, 32)
    check(draft, expected(text, [], Budget(64)))


# --- what is remembered -----------------------------------------------------------------------------


def test_no_match_and_no_draft_goes_from_one_reply_to_the_next():
    assert drafted([9, 1, 2], Budget(4), [5, 1], [2, 6]).tokens == (6,)
    assert drafted([9, 1, 2], Budget(4), [5, 1], [2, 6]).match_length == 1
    assert drafted([9, 1, 2], Budget(4, 4), [1, 2], [7, 8]) == Draft()
    assert drafted([9, 1, 2], Budget(4), [1, 2, 3], [4, 5]).tokens == (3,)


def test_the_present_text_wins_of_equals():
    text = [1, 2, 3, 4, 9, 1, 2]
    assert drafted(text, Budget(1), [1, 2, 5], [1, 2, 6]).tokens == (3,)
    assert drafted(text, Budget(1), [1, 2, 5], [1, 2, 5], [1, 2, 6]).tokens == (5,)


def test_only_the_newest_requests_count():
    documents = ([1, 2, 3], [1, 2, 3], [1, 2, 4])
    assert drafted([9, 1, 2], Budget(1), *documents).tokens == (3,)
    assert drafted([9, 1, 2], Budget(1), *documents, requests=1).tokens == (4,)
    assert drafted([9, 1, 2], Budget(1), *documents, requests=0) == Draft()


def test_what_is_forgotten_is_not_drafted_and_what_is_added_is():
    memory = remembering([1, 2, 3, 4])
    drafter = ArcticDrafter(memory)
    drafter.begin([9, 1, 2])
    assert drafter.propose([], Budget(2)).tokens == (3, 4)
    memory.forget("said")
    assert drafter.propose([], Budget(2)) == Draft()
    memory.add([1, 2, 5], "other")
    assert drafter.propose([], Budget(2)).tokens == (5,)


def test_closed_it_knows_nothing_of_the_text():
    drafter = ArcticDrafter()
    drafter.begin([1, 2, 1, 2])
    assert len(drafter.propose([], Budget(2)))
    drafter.close()
    assert drafter.propose([], Budget(2)) == Draft()
    drafter.begin([])
    assert drafter.propose([], Budget(2)) == Draft()


# --- options ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", [{"depth": 1}, {"factor": -0.5}, {"p_min": -0.1}, {"p_min": 1.5}, {"requests": -1}]
)
def test_bad_settings_are_refused_in_words(options):
    with pytest.raises(UsageError, match="depth of 2 or more"):
        ArcticDrafter(**options)


def test_it_is_a_drafting_method_that_remembers():
    drafter = make_drafter(DraftOptions("suffix:arctic"), remembering([1, 2, 3]))
    assert (drafter.name, drafter.remembers) == ("suffix:arctic", True)
    drafter.begin([9, 1, 2])
    assert drafter.propose([], Budget(2)).tokens == (3,)
