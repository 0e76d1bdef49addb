"""Draft trees: how they are cut, and that a session over trees says what plain decoding says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control import FixedLength
from localspec.drafters.base import Drafter
from localspec.drafters.ngram import NgramDrafter
from localspec.drafters.none import NoDrafter
from localspec.drafters.suffix import SuffixDrafter
from localspec.drafters.suffix_arctic import ArcticDrafter
from localspec.errors import EngineError, RollbackRefusedError
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.stats.metrics import Tally
from localspec.testing import DecoyDrafter, OracleDrafter, RandomDrafter, ScriptedModel
from localspec.trees import Trie, branches_through, cut_below, depths_of, leaves_of, with_leaves
from localspec.types import Budget, Draft, SamplingParams
from localspec.verify import make_verifier
from tests.core.test_session import PROMPT, RULES, VOCABULARY, generate, remembering

SAMPLINGS = {
    "greedy": SamplingParams(temperature=0),
    "T=0.8": SamplingParams(temperature=0.8, seed=11),
    "T=0.8, filters and penalties": SamplingParams(
        temperature=0.8, top_k=12, top_p=0.9, min_p=0.02, repeat_penalty=1.2, frequency_penalty=0.1, seed=4
    ),
}

#       0 1 2
#      /| | \
#     3 4 5  6
#       |   / \
#       7  8   9
FOREST = Draft(
    tokens=(10, 11, 12, 13, 14, 15, 16, 17, 18, 19),
    parents=(-1, -1, -1, 0, 0, 1, 2, 4, 6, 6),
    confidence=(0.5, 0.2, 0.1, 0.1, 0.3, 0.1, 0.09, 0.2, 0.08, 0.01),
)


@st.composite
def trees(draw: st.DrawFn, confidence: bool | None = None) -> Draft:
    size = draw(st.integers(1, 14))
    parents = tuple(draw(st.integers(-1, node - 1)) for node in range(size))
    tokens = tuple(draw(st.lists(st.integers(0, 5), min_size=size, max_size=size)))
    if not (draw(st.booleans()) if confidence is None else confidence):
        return Draft(tokens, parents)
    survival: list[float] = []
    for parent in parents:
        share = draw(st.floats(0.05, 1.0))
        survival.append(share * (1.0 if parent < 0 else survival[parent]))
    return Draft(tokens, parents, tuple(survival))


def strings(draft: Draft) -> list[tuple[int, ...]]:
    return [tuple(draft.tokens[i] for i in draft.path_to(node)) for node in range(len(draft))]


# --- shapes -----------------------------------------------------------------------------------------


def test_the_shape_of_a_tree():
    assert leaves_of(FOREST) == [3, 5, 7, 8, 9]
    assert depths_of(FOREST) == [1, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    assert branches_through(FOREST) == [[0, 2], [1], [3, 4], [0], [2], [1], [3, 4], [2], [3], [4]]
    assert leaves_of(Draft()) == branches_through(Draft()) == []


def test_the_branches_that_promise_most_are_kept():
    # 0-4-7 first (1.0), then 1-5 (0.3), then 2-6-8 (0.27), then 3, which adds 0.1, then 9.
    kept = [with_leaves(FOREST, most).tokens for most in range(1, 6)]
    assert kept[0] == (10, 14, 17) == FOREST.best_chain().tokens
    assert kept[1] == (10, 11, 14, 15, 17)
    assert kept[2] == (10, 11, 12, 14, 15, 16, 17, 18)
    assert set(kept[3]) == set(FOREST.tokens) - {19}
    assert kept[4] == FOREST.tokens
    # Without confidence the deepest one is the first.
    assert with_leaves(Draft(FOREST.tokens, FOREST.parents), 2).tokens == (10, 12, 14, 16, 17, 18)


def test_of_drawn_tokens_the_eldest_branches_are_kept_however_likely():
    probs = tuple(np.full(20, 0.05, dtype=np.float32) for _ in FOREST.tokens)
    drawn = Draft(FOREST.tokens, FOREST.parents, FOREST.confidence, probs)
    assert with_leaves(drawn, 1).tokens == (10, 13)
    assert with_leaves(drawn, 2).tokens == (10, 13, 14, 17)
    assert with_leaves(drawn, 3).tokens == (10, 11, 13, 14, 15, 17)
    assert len(with_leaves(drawn, 3).probs) == 6


@given(draft=trees(), most=st.integers(1, 6))
def test_cutting_branches(draft: Draft, most: int):
    kept = with_leaves(draft, most)
    assert len(leaves_of(kept)) == min(most, len(leaves_of(draft)))
    assert all(parent < node for node, parent in enumerate(kept.parents))
    # What is kept is a part of the tree in the same order, confidence included.
    rest = iter(zip(strings(draft), draft.confidence or strings(draft), strict=True))
    for pair in zip(strings(kept), kept.confidence or strings(kept), strict=True):
        assert pair in rest
    # Every leaf that stays was a leaf, and the first choice is the best chain.
    assert set(strings(draft.best_chain())) <= set(strings(kept))
    if most >= len(leaves_of(draft)):
        assert kept is draft


@given(draft=trees(confidence=True), most=st.integers(1, 4))
def test_no_other_choice_of_branches_promises_more(draft: Draft, most: int):
    from itertools import combinations

    def promise(leaves: tuple[int, ...]) -> float:
        return sum(draft.confidence[node] for node in {n for leaf in leaves for n in draft.path_to(leaf)})

    leaves = leaves_of(draft)
    best = max(promise(choice) for choice in combinations(leaves, min(most, len(leaves))))
    assert sum(with_leaves(draft, most).confidence) == pytest.approx(best)


@given(draft=trees(), ends=st.frozensets(st.integers(0, 5)))
def test_nothing_stays_below_a_token_that_ends_the_reply(draft: Draft, ends: frozenset[int]):
    cut = cut_below(draft, ends)
    wanted = [string for string in strings(draft) if not ends & set(string[:-1])]
    assert strings(cut) == wanted


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=8))
def test_a_trie_holds_every_beginning_once(given_strings: list[list[int]]):
    trie = Trie()
    for string in given_strings:
        trie.add(string)
    draft = Draft(tuple(trie.tokens), tuple(trie.parents))
    beginnings = {tuple(string[:end]) for string in given_strings for end in range(1, len(string) + 1)}
    assert sorted(strings(draft)) == sorted(beginnings)
    for string, weight in zip(strings(draft), trie.weights, strict=True):
        assert weight == sum(tuple(other[: len(string)]) == string for other in given_strings)


# --- sessions ---------------------------------------------------------------------------------------


def tree_drafters(sequence: list[int], seed: int = 5) -> dict[str, Callable[[], Drafter]]:
    return {
        "hidden truth": lambda: DecoyDrafter(sequence, VOCABULARY, seed=seed),
        "half right": lambda: DecoyDrafter(sequence, VOCABULARY, right=2, seed=seed),
        "all wrong": lambda: DecoyDrafter(sequence, VOCABULARY, right=0, seed=seed),
        "random": lambda: RandomDrafter(VOCABULARY, seed, branches=True),
        "ngram": lambda: NgramDrafter(1, 3),
        "suffix": lambda: SuffixDrafter(remembering(sequence)),
        "suffix:arctic": lambda: ArcticDrafter(remembering(sequence)),
        "chain": lambda: OracleDrafter(sequence),
    }


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize(("model_options", "rules"), RULES.values(), ids=RULES)
@pytest.mark.parametrize("method", tree_drafters([]))
def test_trees_say_what_plain_decoding_says(sampling, model_options, rules, method):
    """`generate` compares the cache with the session's tokens after every step."""
    plain, _, _ = generate(ScriptedModel(VOCABULARY, **model_options), NoDrafter(), sampling, rules)
    sequence = PROMPT + plain.token_ids
    for rule in ("coupled", "rejection", "block"):
        for toggles in (frozenset(), frozenset({2, 3, 7, 8, 20})):
            reply, steps, _ = generate(
                ScriptedModel(VOCABULARY, **model_options),
                tree_drafters(sequence)[method](),
                sampling,
                rules,
                length=16,
                leaves=4,
                verifier=make_verifier(rule),
                toggles=toggles,
            )
            assert reply.token_ids == plain.token_ids
            assert reply.text.text == plain.text.text
            assert reply.finish_reason == plain.finish_reason
            assert all(1 <= step.leaves <= 4 for step in steps)
            assert all(step.drafted <= 16 and step.positions <= step.drafted for step in steps)
            if method == "hidden truth" and not toggles and len(plain.token_ids) > 40:
                assert max(step.leaves for step in steps) > 1
                assert sum(step.accepted for step in steps) > len(plain.token_ids) // 2
            if method == "all wrong":
                assert sum(step.accepted for step in steps) == 0


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([0.0, 0.8]),
    length=st.integers(1, 24),
    leaves=st.integers(1, 8),
    most=st.integers(1, 6),
    toggles=st.frozensets(st.integers(0, 30)),
    method=st.sampled_from(sorted(tree_drafters([]))),
    eog=st.sampled_from([-4.0, 0.0, 1.0]),
)
def test_trees_say_what_plain_decoding_says_at_any_width(
    seed, temperature, length, leaves, most, toggles, method, eog
):
    sampling = SamplingParams(temperature=temperature, seed=seed)
    rules = StopRules(max_tokens=60)
    plain, _, _ = generate(ScriptedModel(VOCABULARY, seed=seed, eog_logit=eog), NoDrafter(), sampling, rules)
    drafter = tree_drafters(PROMPT + plain.token_ids, seed)[method]()
    model = ScriptedModel(VOCABULARY, seed=seed, eog_logit=eog, max_leaves=most)
    reply, steps, _ = generate(model, drafter, sampling, rules, length=length, leaves=leaves, toggles=toggles)
    assert reply.token_ids == plain.token_ids
    assert reply.finish_reason == plain.finish_reason
    assert all(step.leaves <= min(leaves, most) and step.drafted <= length for step in steps)


@pytest.mark.parametrize("method", tree_drafters([]))
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_stop_strings_inside_a_tree(sampling, method):
    free, _, _ = generate(ScriptedModel(VOCABULARY), NoDrafter(), sampling, StopRules(max_tokens=80))
    for start in (20, 21, 23):
        rules = StopRules(max_tokens=80, stop=(free.text.text[start : start + 4],))
        plain, _, _ = generate(ScriptedModel(VOCABULARY), NoDrafter(), sampling, rules)
        assert plain.finish_reason == "stop"
        drafter = tree_drafters(PROMPT + free.token_ids)[method]()
        reply, _, _ = generate(ScriptedModel(VOCABULARY), drafter, sampling, rules, length=16, leaves=4)
        assert (reply.token_ids, reply.text.text) == (plain.token_ids, plain.text.text)
        assert reply.finish_reason == "stop"


def test_a_context_without_branches_gets_the_best_chain():
    sampling = SAMPLINGS["greedy"]
    rules = StopRules(max_tokens=60)
    plain, _, _ = generate(ScriptedModel(VOCABULARY), NoDrafter(), sampling, rules)
    model = ScriptedModel(VOCABULARY, max_leaves=1)
    drafter = DecoyDrafter(PROMPT + plain.token_ids, VOCABULARY)
    model_with = ScriptedModel(VOCABULARY)
    reply, steps, _ = generate(model, drafter, sampling, rules, length=12, leaves=4)
    assert reply.token_ids == plain.token_ids
    assert {step.leaves for step in steps} == {1}
    _, branched, _ = generate(
        model_with, DecoyDrafter(PROMPT + plain.token_ids, VOCABULARY), sampling, rules, length=12, leaves=4
    )
    assert max(step.leaves for step in branched) == 4


def test_a_prompt_after_a_tree_reuses_the_cache():
    model = ScriptedModel(VOCABULARY)
    rules, sampling = StopRules(max_tokens=21), SAMPLINGS["greedy"]
    plain, _, _ = generate(ScriptedModel(VOCABULARY), NoDrafter(), sampling, rules)
    drafter = DecoyDrafter(PROMPT + plain.token_ids, VOCABULARY)
    reply, _, session = generate(model, drafter, sampling, rules, length=16, leaves=4)
    held = len(PROMPT) + 21 - 1
    assert session.prefill([*PROMPT, *reply.token_ids, 6, 7]).cached == held
    assert session.prefill([*PROMPT[:5], 30, 31]).cached == 5
    assert model.cached == (*PROMPT[:5], 30)


def test_a_failed_tree_pass_leaves_a_session_that_works():
    model = ScriptedModel(VOCABULARY)
    rules, sampling = StopRules(max_tokens=30), SAMPLINGS["greedy"]
    plain, _, _ = generate(ScriptedModel(VOCABULARY), NoDrafter(), sampling, rules)
    drafter = DecoyDrafter(PROMPT + plain.token_ids, VOCABULARY)
    session = Session(model, model, drafter=drafter, controller=FixedLength(16, leaves=4))
    session.prefill(PROMPT)
    session.verifier = Failing()
    with pytest.raises(EngineError, match="broken"):
        list(session.reply(Sampler(sampling), rules))
    assert model.length == 0
    session.verifier = make_verifier("coupled")
    assert session.prefill(PROMPT).cached == 0
    assert [token.id for step in session.reply(Sampler(sampling), rules) for token in step.tokens] == (
        plain.token_ids
    )


class Failing:
    name = "failing"
    exact = True

    def verify(self, draft, rows, sampler, history):
        raise EngineError("broken")


def test_positions_of_trees_are_counted_by_depth():
    rules, sampling = StopRules(max_tokens=80), SAMPLINGS["greedy"]
    plain, _, _ = generate(ScriptedModel(VOCABULARY), NoDrafter(), sampling, rules)
    drafter = DecoyDrafter(PROMPT + plain.token_ids, VOCABULARY)
    _, steps, _ = generate(ScriptedModel(VOCABULARY), drafter, sampling, rules, length=12, leaves=4)
    tally = Tally(steps)
    assert tally.drafted == sum(step.drafted for step in steps)
    assert len(tally.drafted_at) == max(step.positions for step in steps)
    assert all(a <= d for a, d in zip(tally.accepted_at, tally.drafted_at, strict=True))
    assert tally.drafted_at == sorted(tally.drafted_at, reverse=True)
    assert sum(tally.accepted_at) == tally.accepted


def test_the_scripted_model_refuses_what_a_context_must_not_be_asked():
    model = ScriptedModel(VOCABULARY, max_leaves=4)
    draft = Draft((4, 5, 6), (-1, -1, 0))
    rows = model.decode_tree(9, draft)
    assert rows.shape == (4, VOCABULARY)
    np.testing.assert_array_equal(rows[3], model.row([9, 4, 6]))
    with pytest.raises(EngineError, match="whole tree"):
        model.decode([1], "all")
    with pytest.raises(RollbackRefusedError, match="no path"):
        model.keep_path((1, 2))
    model.clear()
    model.decode_tree(9, draft)
    model.keep_path((0, 2))
    assert model.cached == (9, 4, 6)
    with pytest.raises(EngineError, match="too many branches"):
        model.decode_tree(9, FOREST)


def test_decoys_hold_the_truth_among_wrong_branches():
    sequence = list(range(4, 30))
    seen = []
    drafter = DecoyDrafter(sequence, VOCABULARY, right=3)
    for start in range(1, 20):
        draft = drafter.propose(sequence[:start], Budget(12, 4))
        assert len(draft) <= 12
        assert len(leaves_of(draft)) <= 4
        truth = tuple(sequence[start : start + 4])
        seen.append(truth[:3] in strings(draft))
        assert truth not in strings(draft)
    assert all(seen)
