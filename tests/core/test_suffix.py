"""Suffix drafts against what `SuffixDrafter` promises, spelt out in plain Python, however the tokens came."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters import suffix as suffix_module
from localspec.drafters.suffix import FLOOR, PLACES, REACH, SuffixDrafter
from localspec.drafters.suffix_votes import LOCAL, REMEMBERED, Reliability
from localspec.memory import index as index_module
from localspec.memory.index import MEMORY_ORDERS, SEPARATOR, TextIndex, TokenIndex
from localspec.memory.memory import Memory
from localspec.trees import leaves_of
from localspec.types import Budget, Draft, Outcome

Documents = Sequence[Sequence[int]]


def index_of(documents: Documents, appended: Documents = ()) -> TokenIndex:
    """An index whose sorted part holds `documents`, and to which others were appended later."""
    tokens = [token for document in documents for token in (SEPARATOR, *document)]
    index = TokenIndex(np.array(tokens, np.int32))
    for document in appended:
        index.append(np.array(document, np.int32))
    return index


def drafted(text: Sequence[int], budget: Budget, index: TokenIndex | None = None) -> Draft:
    drafter = SuffixDrafter(Memory(index))
    drafter.begin(text)
    return drafter.propose(text, budget)


# --- the promise, in plain Python ---------------------------------------------------------------------


@dataclass
class Place:
    """Where the trailing tokens stood, how many of them, what its vote weighs and what came next."""

    at: int
    length: int
    weight: float
    says: list[int]


def found(source: Sequence[int], text: Sequence[int], orders: Sequence[int] = (4, 2)) -> list[Place]:
    """The newest places after the last so many tokens, the newest first."""
    tail = list(text[-REACH:])
    chosen: set[int] = set()
    for order in orders:
        if len(tail) < order:
            continue
        places = [
            at
            for at in range(len(source) - 1, order - 1, -1)
            if list(source[at - order : at]) == tail[-order:] and source[at] != SEPARATOR
        ]
        chosen.update(places[:PLACES])
    result = []
    for at in sorted(chosen, reverse=True):
        length = 0
        while length < min(len(tail), at) and source[at - 1 - length] == tail[-1 - length]:
            length += 1
        result.append(Place(at, length, 2.0 ** min(length, 16) * 0.97 ** len(result), []))
    return result


def led(places: Sequence[Place], first: Sequence[int]) -> Place:
    """The heaviest place of the token with the most weight."""
    votes: dict[int, float] = {}
    for place, token in zip(places, first, strict=True):
        votes[token] = votes.get(token, 0.0) + place.weight
    token = max(votes, key=votes.__getitem__)
    return max(
        (place for place, said in zip(places, first, strict=True) if said == token),
        key=lambda place: place.weight,
    )


def local_places(text: Sequence[int], count: int) -> tuple[list[Place], Place | None]:
    """Past the end of the text every place goes on with what the leader says: the text repeats."""
    places = found(text, text)
    if not places:
        return [], None
    leader = led(places, [text[place.at] for place in places])
    going_on = list(text)
    while len(going_on) < len(text) + count:
        going_on.append(going_on[leader.at + len(going_on) - len(text)])
    for place in places:
        place.says = going_on[place.at : place.at + count]
    return places, leader


def remembered_places(
    tokens: Sequence[int], text: Sequence[int], count: int
) -> tuple[list[Place], Place | None]:
    """What a place says ends with its document."""
    places = found(tokens, text, (4,))
    if not places:
        return [], None
    for place in places:
        document = list(tokens[place.at :])
        end = document.index(SEPARATOR) if SEPARATOR in document else len(document)
        place.says = document[: min(end, count)]
    return places, led(places, [place.says[0] for place in places])


def chance(reliability: Reliability, depth: int, length: int, share: float) -> float:
    constant, by_length, by_share = reliability.later if depth else reliability.first
    share = min(max(share, 0.02), 0.98)
    return 1 / (
        1 + math.exp(-constant - by_length * math.log2(length) - by_share * math.log(share / (1 - share)))
    )


def asked(places: Sequence[Place], path: Sequence[int], heaviest: float) -> tuple[list[Place], float]:
    """Places that say `path` and then something more, and the weight against which their votes count."""
    depth = len(path)
    speaking = [place for place in places if place.says[:depth] == list(path) and len(place.says) > depth]
    return speaking, sum(place.weight for place in speaking) + (heaviest if depth == 0 else 0.0)


def survival(places: Sequence[Place], leader: Place, reliability: Reliability) -> list[float]:
    heaviest = max(place.weight for place in places)
    survives, result = 1.0, []
    for depth, token in enumerate(leader.says):
        speaking, weight = asked(places, leader.says[:depth], heaviest)
        share = sum(place.weight for place in speaking if place.says[depth] == token) / weight
        survives *= chance(reliability, depth, leader.length + depth, share)
        result.append(survives)
    return result


def grown(places: Sequence[Place], reliability: Reliability, budget: Budget) -> Draft:
    heaviest = max(place.weight for place in places)
    tokens: list[int] = []
    parents: list[int] = []
    confidence: list[float] = []
    paths: list[list[int]] = []
    waiting: list[tuple[float, int, list[int]]] = []

    def push(parent: int, path: list[int], survives: float) -> None:
        speaking, weight = asked(places, path, heaviest)
        depth = len(path)
        for token in sorted({place.says[depth] for place in speaking}):
            agreeing = [place for place in speaking if place.says[depth] == token]
            length = max(place.length for place in agreeing) + depth
            share = sum(place.weight for place in agreeing) / weight
            likely = survives * chance(reliability, depth, length, share)
            if likely >= FLOOR:
                waiting.append((likely, parent, [*path, token]))

    push(-1, [], 1.0)
    while waiting and len(tokens) < budget.tokens:
        likely, parent, path = waiting.pop(max(range(len(waiting)), key=lambda place: waiting[place][0]))
        if len(leaves_of(Draft((*tokens, path[-1]), (*parents, parent)))) > budget.leaves:
            continue
        tokens.append(path[-1])
        parents.append(parent)
        confidence.append(likely)
        paths.append(path)
        if len(path) < budget.tokens:
            push(len(tokens) - 1, path, likely)
    return Draft(tuple(tokens), tuple(parents), tuple(confidence))


def expected(text: Sequence[int], budget: Budget, remembered: Sequence[int] = ()) -> Draft:
    if len(text) <= 2:
        return Draft()
    best, best_score = None, 0.0
    for source, reliability, (places, leader) in (
        ("suffix", LOCAL, local_places(text, budget.tokens)),
        ("suffix-memory", REMEMBERED, remembered_places(remembered, text, budget.tokens)),
    ):
        if leader is None:
            continue
        survives = survival(places, leader, reliability)
        if sum(survives) > best_score:
            best, best_score = (source, reliability, places, leader, survives), sum(survives)
    if best is None:
        return Draft()
    source, reliability, places, leader, survives = best
    if budget.leaves > 1:
        draft = grown(places, reliability, budget)
    else:
        size = sum(likely >= FLOOR for likely in survives)
        draft = Draft.chain(leader.says[:size], confidence=tuple(survives[:size]))
    if not len(draft):
        return Draft()
    return Draft(draft.tokens, draft.parents, draft.confidence, (), source, leader.length)


def check(draft: Draft, wanted: Draft) -> None:
    assert (draft.source, draft.match_length) == (wanted.source, wanted.match_length)
    assert (draft.tokens, draft.parents) == (wanted.tokens, wanted.parents)
    assert draft.confidence == pytest.approx(wanted.confidence, rel=1e-9)


def test_thousands_of_drafts_are_as_promised():
    random = np.random.default_rng(3)
    kinds = {"suffix": 0, "suffix-memory": 0, "": 0}
    wide = 0
    for _ in range(2500):
        letters = int(random.integers(2, 9))
        text = random.integers(0, letters, random.integers(1, 60)).tolist()
        documents = [
            random.integers(0, letters, random.integers(1, 30)).tolist() for _ in range(random.integers(0, 6))
        ]
        if random.random() < 0.5:
            # The same words again, at the end or a few words before it.
            again = random.integers(0, letters, 40).tolist()
            documents.insert(0, [*again, 1, *again[:20]])
            text += [*again, 0, *again[: random.integers(40)]]
        split = int(random.integers(0, len(documents) + 1))
        index = index_of(documents[:split], documents[split:])
        budget = Budget(int(random.integers(1, 13)), int(random.choice([1, 2, 3, 16])))
        draft = drafted(text, budget, index)
        check(draft, expected(text, budget, index.tokens.tolist()))
        kinds[draft.source] += 1
        wide += len(leaves_of(draft)) > 1
    assert min(*kinds.values(), wide) > 50


def test_of_many_places_the_newest_count():
    """More places than are looked at, and more tokens that match than are compared."""
    random = np.random.default_rng(4)
    for _ in range(60):
        text = random.integers(0, 2, random.integers(300, 600)).tolist()
        text += text[100 : 100 + int(random.integers(0, 60))]
        index = index_of([random.integers(0, 2, 400).tolist()], [random.integers(0, 2, 200).tolist()])
        budget = Budget(8, int(random.choice([1, 4])))
        check(drafted(text, budget, index), expected(text, budget, index.tokens.tolist()))


# --- golden cases -------------------------------------------------------------------------------------


def test_a_longer_match_outweighs_more_recent_ones():
    text = [5, 6, 7, 8, 1, 2, 9, 7, 8, 3, 9, 7, 8, 3, 9, 5, 6, 7, 8]
    draft = drafted(text, Budget(2))
    assert (draft.tokens[0], draft.match_length, draft.source) == (1, 4, "suffix")


def test_of_equal_matches_more_votes_win_then_the_most_recent():
    assert drafted([1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2], Budget(1)).tokens == (3,)
    assert drafted([1, 2, 3, 8, 1, 2, 4, 7, 1, 2], Budget(1)).tokens == (4,)


@pytest.mark.parametrize("period", [1, 2, 3, 7])
def test_text_that_repeats_itself_is_continued_past_its_end(period):
    text = [number % period for number in range(5 * period + 5)]
    draft = drafted(text, Budget(16))
    assert draft.tokens == tuple((len(text) + number) % period for number in range(16))


def test_confidence_falls_along_a_draft_and_rises_with_the_match():
    text = [*range(30), 99, *range(20)]
    long = drafted(text, Budget(8))
    short = drafted([*text[:31], 18, 19], Budget(8))
    assert long.tokens == short.tokens == tuple(range(20, 28))
    assert list(long.confidence) == sorted(long.confidence, reverse=True)
    assert all(one > other for one, other in zip(long.confidence, short.confidence, strict=True))


def test_the_memory_is_drafted_from_where_it_promises_more():
    said = index_of([[1, 2, 3, 4, 5, 6, 7]])
    draft = drafted([9, 1, 2, 3, 4], Budget(8), said)
    assert (draft.tokens, draft.source, draft.match_length) == ((5, 6, 7), "suffix-memory", 4)
    # The present text says as much itself.
    text = [1, 2, 3, 4, 5, 6, 7, 9, 1, 2, 3, 4]
    assert drafted(text, Budget(3), said).source == "suffix"


def test_without_a_match_of_two_tokens_nothing_is_drafted():
    for text in ([], [1], [1, 1], [1, 2, 3], [1, 2, 3, 2]):
        for leaves in (1, 4):
            assert drafted(text, Budget(4, leaves), index_of([[3, 4], [2, 5, 2]])) == Draft()


# --- separators, hidden documents ---------------------------------------------------------------------


def test_no_match_and_no_draft_goes_from_one_document_to_the_next():
    halves = [[5, 9, 8, 1], [2, 6, 7]]
    for index in (index_of(halves), index_of([], halves)):
        assert drafted([9, 8, 1, 2], Budget(4), index) == Draft()
    said = [9, 8, 1, 2, 3, 4]
    for index in (index_of([said, [5, 6]]), index_of([said], [[5, 6]])):
        for leaves in (1, 4):
            assert drafted([9, 8, 1, 2], Budget(8, leaves), index).tokens == (3, 4)


documents_of = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=30), max_size=6)
budgets = st.builds(Budget, st.integers(1, 12), st.integers(1, 5))


@given(
    text=st.lists(st.integers(0, 3), min_size=3, max_size=30),
    documents=documents_of,
    sorted_part=st.integers(0, 6),
    hidden=st.sets(st.integers(0, 5)),
    budget=budgets,
)
def test_a_hidden_document_is_as_if_it_had_never_been_said(text, documents, sorted_part, hidden, budget):
    index = index_of(documents[:sorted_part], documents[sorted_part:])
    start, places = 1, []
    for document in documents:
        places.append((start, start + len(document)))
        start += len(document) + 1
    index.hidden = tuple(place for number, place in enumerate(places) if number in hidden)
    kept = [document for number, document in enumerate(documents) if number not in hidden]
    assert drafted(text, budget, index) == drafted(text, budget, index_of(kept))


@given(text=st.lists(st.integers(0, 3), min_size=3, max_size=30), documents=documents_of, budget=budgets)
def test_every_draft_was_said_in_one_piece(text, documents, budget):
    draft = drafted(text, budget, index_of(documents))
    if draft.source != "suffix-memory":
        return
    match = text[len(text) - draft.match_length :]
    for node in leaves_of(draft):
        path = [draft.tokens[step] for step in draft.path_to(node)]
        pieces = [
            document[start : start + 2 + len(path)]
            for document in documents
            for start in range(len(document))
        ]
        assert [*match[-2:], *path] in pieces


# --- however the tokens came --------------------------------------------------------------------------


@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=60),
    cut=st.integers(0, 60),
    pieces=st.lists(st.integers(1, 5), max_size=60),
    other=st.lists(st.integers(0, 3), max_size=30),
    budget=budgets,
)
def test_step_by_step_after_another_end_is_as_at_once(text, cut, pieces, other, budget):
    """A text that went on otherwise (a reply that is made again) leaves nothing behind."""
    drafter = SuffixDrafter()
    drafter.begin([*text[:cut], *other])
    drafter.propose([], budget)
    drafter.begin(text[:cut])
    at = min(cut, len(text))
    for size in pieces:
        drafter.propose([], budget)
        drafter.commit(Outcome(tuple(text[at : at + size]), 0, 0))
        at = min(at + size, len(text))
    drafter.commit(Outcome(tuple(text[at:]), 0, 0))
    draft = drafter.propose([], budget)
    assert draft == drafted(text, budget)
    check(draft, expected(text, budget))
    fresh = TextIndex()
    fresh.begin(text)
    assert drafter._text._places == fresh._places
    assert drafter._text.tokens.tolist() == text


@given(documents=documents_of, text=st.lists(st.integers(0, 3), min_size=3, max_size=30), budget=budgets)
def test_a_memory_drafts_the_same_however_much_of_it_is_sorted(documents, text, budget):
    wanted = drafted(text, budget, index_of(documents))
    assert drafted(text, budget, index_of([], documents)) == wanted
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "_MERGE_AT", 20)
        merged = index_of([], documents)
    assert merged.tokens.tolist() == index_of(documents).tokens.tolist()
    assert drafted(text, budget, merged) == wanted


@given(
    documents=documents_of,
    tail=st.lists(st.integers(0, 3), max_size=6),
    order=st.sampled_from(MEMORY_ORDERS),
    limit=st.integers(1, 6),
)
def test_the_index_finds_the_newest_places(documents, tail, order, limit):
    tokens = index_of(documents).tokens.tolist()
    wanted = [
        at
        for at in range(len(tokens) - 1, order - 1, -1)
        if tokens[at] != SEPARATOR and len(tail) >= order and tokens[at - order : at] == tail[-order:]
    ]
    for split in (0, len(documents) // 2, len(documents)):
        index = index_of(documents[:split], documents[split:])
        assert index.places(tail, order, limit).tolist() == wanted[:limit]


def test_hidden_places_do_not_use_up_the_newest():
    for split in (0, 2):
        documents = [[1, 2, 3] * 4, [1, 2, 3] * 4]
        index = index_of(documents[:split], documents[split:])
        index.hidden = ((14, 26),)
        assert index.places([2, 3, 1, 2], 4, 3).tolist() == [12, 9, 6]


def test_closed_it_knows_nothing_of_the_text():
    drafter = SuffixDrafter()
    drafter.begin([1, 2, 3, 1, 2, 3])
    assert len(drafter.propose([], Budget(2)))
    drafter.close()
    assert drafter.propose([], Budget(2)) == Draft()


@given(
    text=st.lists(st.integers(0, 4), min_size=3, max_size=40),
    documents=documents_of,
    count=st.integers(1, 12),
)
def test_few_places_vote_as_many_do(text, documents, count):
    drafts = []
    for most in (0, 6, 100):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(suffix_module, "MOST", most)
            drafts.append(drafted(text, Budget(count), index_of(documents)))
    for draft in drafts[1:]:
        assert (draft.tokens, draft.source) == (drafts[0].tokens, drafts[0].source)
        assert draft.match_length == drafts[0].match_length
        assert draft.confidence == pytest.approx(drafts[0].confidence, rel=1e-9)
