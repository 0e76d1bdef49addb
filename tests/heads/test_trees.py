"""EAGLE-3 heads draft trees: every node knows the text and its own way, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from localspec.control import FixedLength, Off
from localspec.drafters.eagle3 import Eagle3Drafter
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.trees import depths_of, leaves_of
from localspec.types import Budget, Draft, Drawn, Rows, SamplingParams
from localspec.verify import RejectionVerifier
from tests.heads import alphabet
from tests.heads.cases import ALL, PROMPTS, Case
from tests.heads.making import Made
from tests.heads.rigs import CAPACITY, GREEDY, WARM, Rig, opened, plain

CASES = [case for case in ALL if case.kind == "eagle3"]
RANDOM = [case for case in CASES if case.name.startswith("random")]
TREE = FixedLength(8, leaves=4)
COUNT = 50


class Along:
    """Draws a given way, whatever is likely, and tells how likely it is."""

    def __init__(self, path: Sequence[int]) -> None:
        self._path = path

    def draw(self, row: Rows, tokens: Sequence[int], drafted: Sequence[int], count: int) -> Drawn:
        del tokens, count
        token = self._path[len(drafted)]
        chances = np.exp(row - row.max())
        return Drawn((token,), (float(chances[token] / chances.sum()),))


def drafted_anew(rig: Rig, tokens: Sequence[int], budget: Budget) -> Draft:
    """What is drafted after `tokens`, all of which are read anew."""
    session = rig.session
    session.context.clear()
    session.tokens = []
    session.drafter.close()
    session.prefill(tokens)
    return session.drafter.propose(session.tokens, budget)


def say(session: Session, count: int) -> None:
    """A greedy reply, or more of it."""
    for _ in session.reply(Sampler(GREEDY), StopRules(max_tokens=count, ignore_eos=True)):
        pass


@pytest.mark.parametrize("case", RANDOM, ids=str)
def test_a_node_is_as_likely_as_a_chain_along_its_way_finds_it(made: Made, case: Case) -> None:
    prompt = PROMPTS[0]
    with opened(case, made) as rig:
        tree = drafted_anew(rig, prompt, Budget(14, 6))
        assert len(leaves_of(tree)) == 6
        assert max(depths_of(tree)) > 1
        for leaf in leaves_of(tree):
            path = tree.path_to(leaf)
            tokens = [tree.tokens[node] for node in path]
            chain = drafted_anew(rig, prompt, Budget(len(path), drawing=Along(tokens)))
            assert list(chain.tokens) == tokens
            assert chain.confidence == pytest.approx([tree.confidence[node] for node in path], rel=1e-4)


@pytest.mark.parametrize(("length", "leaves"), [(6, 2), (30, 16)])
@pytest.mark.parametrize("params", [GREEDY, WARM], ids=["greedy", "warm"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_text_is_that_of_plain_decoding(
    made: Made, case: Case, params: SamplingParams, length: int, leaves: int
) -> None:
    with opened(case, made) as rig:
        controller = FixedLength(length, leaves=leaves)
        reply = rig.reply(PROMPTS[1], COUNT, params=params, controller=controller)
    assert reply.tokens == plain(case, made, PROMPTS[1], COUNT, params)
    assert reply.drafted > 0


def test_branches_find_what_a_chain_of_the_same_depth_misses(made: Made) -> None:
    """The letters at which the likeliest draft is wrong are second candidates."""
    case = next(case for case in CASES if case.name == "eagle3")
    with opened(case, made) as rig:
        chain = rig.reply(PROMPTS[0], COUNT, controller=FixedLength(4))
        tree = rig.reply(PROMPTS[0], COUNT, controller=FixedLength(16, leaves=4))
    assert tree.tokens == chain.tokens == alphabet.text_after(PROMPTS[0][-1], COUNT)
    assert len(tree.places) < len(chain.places)


@pytest.mark.parametrize("case", RANDOM, ids=str)
def test_trees_are_those_of_a_fresh_read_however_drafting_was_switched(made: Made, case: Case) -> None:
    with opened(case, made) as rig:
        session, drafts = rig.session, rig.recorder.drafts
        session.prefill(PROMPTS[0])
        found: list[tuple[list[int], int, Draft]] = []
        switched = ((TREE, 6), (Off(), 9), (FixedLength(3), 6), (TREE, 5), (Off(), 1), (TREE, 9))
        for controller, count in switched:
            session.controller = controller
            before, place = list(session.tokens), len(drafts)
            say(session, count)
            if controller is TREE:
                found.append((before, min(8, count - 1), drafts[place]))
        for tokens, length, draft in found:
            anew = drafted_anew(rig, tokens, Budget(length, 4))
            assert (anew.tokens, anew.parents) == (draft.tokens, draft.parents)
            assert anew.confidence == pytest.approx(draft.confidence, rel=1e-3)


def test_a_reply_ends_where_the_context_does(made: Made) -> None:
    case = RANDOM[1]
    prompt = (PROMPTS[0] * CAPACITY)[: CAPACITY - 30]
    with opened(case, made) as rig:
        assert isinstance(rig.recorder._drafter, Eagle3Drafter)
        reply = rig.reply(prompt, 100, controller=FixedLength(100, leaves=16))
    assert reply.tokens == plain(case, made, prompt, 100)
    assert len(prompt) + len(reply.tokens) == CAPACITY


@pytest.mark.parametrize("case", RANDOM, ids=str)
def test_a_rule_that_judges_by_distributions_gets_them_with_every_node(made: Made, case: Case) -> None:
    with opened(case, made) as rig:
        rig.session.verifier = RejectionVerifier()
        reply = rig.reply(PROMPTS[0], COUNT, params=WARM, controller=TREE)
        assert len(reply.tokens) == COUNT
        wide = [draft for draft in rig.recorder.drafts if len(draft) > 1 and not draft.is_chain]
    assert wide
    assert all(len(draft.probs) == len(draft) and not draft.replacement for draft in wide)
