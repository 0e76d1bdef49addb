"""Draws under a constraint: as if what it forbids had no logit, whoever drafts and whatever rule judges."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from localspec.constrained import ConstrainedSampler
from localspec.control import FixedLength
from localspec.drafters.base import Drafter
from localspec.drafters.ngram import NgramDrafter
from localspec.drafters.suffix import SuffixDrafter
from localspec.drafters.suffix_arctic import ArcticDrafter
from localspec.errors import BadLogitsError, UsageError
from localspec.sampling import Sampler
from localspec.session import Reply, Session, StopRules
from localspec.testing import AdversarialDrafter, DecoyDrafter, OracleDrafter, RandomDrafter, ScriptedModel
from localspec.text import ReplyText
from localspec.types import Budget, Draft, SamplingParams
from localspec.verify import VERIFIERS, make_verifier
from tests.core.test_session import remembering

PROMPT = [5, 9, 12, 5, 9, 7, 20, 11]
VOCABULARY = 32
END = 0
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0),
    "T=1": SamplingParams(temperature=1.0, seed=11, top_k=0, top_p=1.0, min_p=0.0),
    "filters and penalties": SamplingParams(
        temperature=1.0, top_k=4, top_p=0.9, min_p=0.02, repeat_penalty=1.2, frequency_penalty=0.1, seed=4
    ),
}


class Arithmetic:
    """Allows about a third of the tokens, others at every place; a reply has 12 to 40 of them.

    It fails when it is told of a token that it forbids, as native code would.
    """

    def __init__(self) -> None:
        self.asked = 0

    def allowed(self, said: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        for place, token in enumerate(said):
            assert self._may_follow(said[:place], np.array([token]))[0]
        self.asked += len(ids)
        return self._may_follow(said, ids)

    def _may_follow(self, said: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        ends = ids == END
        if END in said or len(said) >= 40:
            return ends
        open_ones = ((ids * 7 + sum(said) + len(said)) % 3 == 0) & ~ends
        return open_ones | ends if len(said) >= 12 and len(said) % 5 == 0 else open_ones


class Anything:
    """Allows the tokens of one set, always."""

    def __init__(self, ids: NDArray[np.int64]) -> None:
        self._ids = ids

    def allowed(self, said: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.isin(ids, self._ids)


class DrawingDrafter(RandomDrafter):
    """Chains drawn from one distribution over all tokens, the forbidden ones too."""

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        drawn = super().propose(tokens, budget).tokens
        uniform = np.full(VOCABULARY, 1 / VOCABULARY, dtype=np.float32)
        return Draft(drawn, tuple(range(-1, len(drawn) - 1)), probs=(uniform,) * len(drawn), source="drawing")


def plainly(params: SamplingParams) -> list[int]:
    """The reply made the slow way: the whole row is masked, then sampled."""
    model, grammar, sampler = ScriptedModel(VOCABULARY), Arithmetic(), Sampler(params)
    everything = np.arange(VOCABULARY)
    said: list[int] = []
    while END not in said:
        tokens = PROMPT + said
        row = np.where(grammar.allowed(said, everything), model.row(tokens), np.float32(-np.inf))
        said.append(sampler.sample(row, len(tokens), sampler.window(tokens)))
    return said


def reply_of(
    params: SamplingParams, drafter: Drafter, verify: str = "coupled", leaves: int = 1
) -> tuple[Reply, int]:
    """A constrained reply, and how many draft tokens were accepted."""
    model = ScriptedModel(VOCABULARY)
    controller = FixedLength(8, leaves=leaves)
    session = Session(model, model, drafter=drafter, controller=controller, verifier=make_verifier(verify))
    session.prefill(PROMPT)
    reply = Reply(ReplyText())
    steps = list(session.reply(ConstrainedSampler(params, Arithmetic()), StopRules(), reply))
    assert session.tokens == PROMPT + reply.token_ids
    return reply, sum(step.stats.accepted for step in steps)


DRAFTERS: dict[str, Callable[[list[int]], Drafter]] = {
    "oracle": OracleDrafter,
    "adversarial": lambda sequence: AdversarialDrafter(sequence, VOCABULARY),
    "adversarial from 3": lambda sequence: AdversarialDrafter(sequence, VOCABULARY, right=3),
    "random": lambda sequence: RandomDrafter(VOCABULARY, 5),
    "random trees": lambda sequence: RandomDrafter(VOCABULARY, 6, branches=True),
    "decoys": lambda sequence: DecoyDrafter(sequence, VOCABULARY, 3, seed=2),
    "ngram": lambda sequence: NgramDrafter(1, 4),
    "suffix": lambda sequence: SuffixDrafter(remembering(sequence)),
    "suffix:arctic": lambda sequence: ArcticDrafter(remembering(sequence)),
}


@pytest.mark.parametrize("params", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("name", DRAFTERS)
def test_whatever_is_drafted_the_reply_is_the_masked_one(name: str, params: SamplingParams):
    expected = plainly(params)
    assert 12 <= len(expected) <= 41
    for leaves in (1, 4):
        reply, accepted = reply_of(params, DRAFTERS[name](PROMPT + expected), leaves=leaves)
        assert reply.token_ids == expected
        assert reply.finish_reason == "stop"
        if name == "oracle":
            assert accepted > len(expected) * 0.7


@pytest.mark.parametrize("verify", VERIFIERS)
def test_no_rule_lets_a_forbidden_token_through(verify: str):
    total = 0
    for seed in range(8):
        params = SamplingParams(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=seed)
        reply, accepted = reply_of(params, DrawingDrafter(VOCABULARY, seed), verify)
        Arithmetic().allowed(reply.token_ids, np.arange(1))
        assert reply.token_ids[-1] == END
        total += accepted
    assert total > 0


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    spread=st.sampled_from([0.5, 3.0, 12.0]),
    share=st.sampled_from([0.003, 0.1, 0.9]),
    top_k=st.sampled_from([0, 1, 3, 40]),
    top_p=st.sampled_from([1.0, 0.95, 0.3]),
    min_p=st.sampled_from([0.0, 0.05, 1e-5]),
    temperature=st.sampled_from([0.0, 0.3, 1.7]),
)
def test_filters_see_what_is_allowed_and_nothing_else(seed, spread, share, top_k, top_p, min_p, temperature):
    generator = np.random.default_rng(seed)
    size = 1500
    row = generator.normal(0, spread, size).astype(np.float32)
    allowed = np.flatnonzero(generator.random(size) < share)
    if not len(allowed):
        allowed = np.array([7])
    masked = np.full_like(row, -np.inf)
    masked[allowed] = row[allowed]
    params = SamplingParams(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p, seed=seed)
    constrained, plain = ConstrainedSampler(params, Anything(allowed)), Sampler(params)
    ids, probs = constrained.distribution(row)
    expected_ids, expected_probs = plain.distribution(masked)
    assert ids.tolist() == expected_ids.tolist()
    np.testing.assert_allclose(probs, expected_probs)
    assert constrained.sample(row, 9) == plain.sample(masked, 9)


def test_a_bias_and_penalties_count_before_the_mask():
    row = np.array([5.0, 4.0, 3.9, 0.0, 1.0], dtype=np.float32)
    params = SamplingParams(temperature=0, presence_penalty=1.0)
    sampler = ConstrainedSampler(params, Anything(np.array([1, 2, 3])), {3: 3.95})
    assert sampler.sample(row, 3, [1, 0]) == 3
    assert sampler.sample(row, 3, [3, 0]) == 1


def test_few_tokens_are_asked_about_where_the_best_ones_are_allowed():
    row = np.full(50_000, -10.0, dtype=np.float32)
    row[:30] = np.linspace(5, 2, 30)
    grammar = Arithmetic()
    token = ConstrainedSampler(SamplingParams(seed=3), grammar).sample(row, 0)
    assert grammar.asked == 30
    assert token in np.flatnonzero(grammar.allowed([], np.arange(30)))


def test_a_reply_that_goes_on_still_begins_where_it_began():
    params = SAMPLINGS["T=1"]
    expected = plainly(params)
    model = ScriptedModel(VOCABULARY)
    session = Session(model, model, drafter=OracleDrafter(PROMPT + expected), controller=FixedLength(4))
    session.prefill(PROMPT)
    reply, sampler = Reply(ReplyText()), ConstrainedSampler(params, Arithmetic())
    next(session.reply(sampler, StopRules(), reply))
    assert 0 < len(reply.token_ids) < len(expected)
    # As after a full context: the prompt is another one, the reply so far is not.
    session.prefill([5, 5, *PROMPT, *reply.token_ids])
    list(session.reply(sampler, StopRules(max_tokens=len(expected)), reply))
    assert sampler.reply_start == len(PROMPT) + 2
    Arithmetic().allowed(reply.token_ids, np.arange(1))


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_constraint_that_forbids_everything_is_a_sentence(temperature: float):
    row = np.linspace(0, 300, 40, dtype=np.float32)
    sampler = ConstrainedSampler(SamplingParams(temperature=temperature), Anything(np.array([99])))
    with pytest.raises(UsageError, match="forbids every token as the first of the reply"):
        sampler.sample(row, 5, [])
    sampler.reply_start = 3
    with pytest.raises(UsageError, match="forbids every token after 2 tokens"):
        sampler.distribution(row, [1, 2, 3, 4, 5])


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_row_of_nothing_is_the_models_fault(value: float):
    row = np.full(40, value, dtype=np.float32)
    with pytest.raises(BadLogitsError):
        ConstrainedSampler(SamplingParams(), Anything(np.arange(40))).sample(row, 5, [])
