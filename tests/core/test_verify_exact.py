"""Exact rules give the target's distribution, broken ones are caught, and acceptance equals its theory.

Every statistical test has a fixed seed, so its outcome never changes between runs; the bound on its failure
is that of choosing an unlucky seed. Each chi-square is held against 5e-7, two of them a test.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from localspec.sampling import Purpose, Sampler, gumbel_noise, stream_seed
from localspec.types import EMPTY_DRAFT, SamplingParams
from localspec.verify import BlockVerifier, CoupledVerifier, RejectionVerifier, drafting_seed, make_verifier
from localspec.verify import rejection as rejection_module
from localspec.verify.rejection import Siblings
from tests.core.verify_chains import (
    Pair,
    RememberingSampler,
    Trees,
    drawn_with_gumbel_noise,
    generate,
    p_values,
)

COUNT = 100_000
LIMIT = 5e-7
PLAIN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
SAMPLINGS = {
    "T=1": PLAIN,
    "T=0.7, filters": SamplingParams(temperature=0.7, top_k=4, top_p=0.95, min_p=0.05),
    "T=1.6, top-p": SamplingParams(temperature=1.6, top_k=0, top_p=0.9, min_p=0.0),
}
CHAIN, TREE = (1, 1, 1), (3, 2)
EXACT = {
    "coupled chain": ("coupled", CHAIN, "independent"),
    "coupled tree": ("coupled", (2, 2), "distinct"),
    "rejection chain": ("rejection", CHAIN, "independent"),
    "rejection tree, independent draws": ("rejection", TREE, "independent"),
    "rejection tree, without replacement": ("rejection", TREE, "distinct"),
    "block chain": ("block", CHAIN, "independent"),
    "block tree": ("block", TREE, "distinct"),
}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize(("rule", "shape", "how"), EXACT.values(), ids=EXACT)
def test_tokens_and_strings_follow_the_target(rule, shape, how, sampling):
    pair = Pair.random(sampling)
    reply = generate(make_verifier(rule), pair, Trees(pair, shape, how), COUNT)
    assert min(p_values(pair, reply.tokens)) > LIMIT
    assert 0 < np.mean(reply.accepted) < len(shape)


@pytest.mark.parametrize("rule", ["coupled", "rejection", "block"])
def test_a_draft_without_distributions_gives_the_plain_text(rule):
    """Deterministic children: the text is that of plain decoding with the seed, token for token."""
    pair = Pair.random(SAMPLINGS["T=0.7, filters"])
    plain = generate(CoupledVerifier(), pair, lambda before, root: EMPTY_DRAFT, 5_000)
    for shape in (CHAIN, TREE):
        reply = generate(make_verifier(rule), pair, Trees(pair, shape, "fixed"), 5_000)
        assert reply.tokens == plain.tokens
        assert np.mean(reply.accepted) > 0.5


@pytest.mark.parametrize("rule", ["coupled", "rejection", "block", "typical", "adasd"])
@pytest.mark.parametrize("how", ["independent", "distinct"])
def test_greedy_is_exact_match(rule, how):
    pair = Pair.random(PLAIN)
    greedy = Pair(SamplingParams(temperature=0), pair.target, pair.draft)
    plain = generate(CoupledVerifier(), greedy, lambda before, root: EMPTY_DRAFT, 500)
    # Drafts are drawn at temperature 1, so that some match and some do not.
    for shape in (CHAIN, TREE):
        reply = generate(make_verifier(rule), greedy, Trees(pair, shape, how), 500)
        assert reply.tokens == plain.tokens
        assert np.mean(reply.accepted) > 0


@pytest.mark.parametrize(
    ("rule", "shape", "how"), [("rejection", TREE, "distinct"), ("block", (1, 1, 1, 1), "independent")]
)
def test_a_larger_vocabulary(rule, shape, how):
    pair = Pair.random(SamplingParams(temperature=1.0, top_k=30, top_p=0.98, min_p=0.0), 50, spread=1.5)
    reply = generate(make_verifier(rule), pair, Trees(pair, shape, how), 50_000)
    assert p_values(pair, reply.tokens)[0] > LIMIT


@pytest.mark.parametrize("rule", ["coupled", "rejection", "block"])
def test_penalties_have_seen_what_was_accepted_and_nothing_else(rule):
    """With a window of one token the penalised target is still of first order."""
    sampling = replace(
        PLAIN, repeat_penalty=1.3, presence_penalty=0.8, frequency_penalty=0.4, penalty_last_n=1, top_k=4
    )
    pair = Pair.random(sampling)
    reply = generate(make_verifier(rule), pair, Trees(pair, CHAIN), 30_000)
    assert min(p_values(pair, reply.tokens)) > LIMIT
    without = Pair(replace(sampling, penalty_last_n=0), pair.target, pair.draft)
    assert np.abs(without.target_probs - pair.target_probs).sum(axis=1).max() > 0.5


def test_penalties_that_stay_at_the_root_fail():
    class Deaf(list):
        def append(self, token):
            """Forget it."""

    class StaysAtTheRoot(RememberingSampler):
        def window(self, history):
            return Deaf(super().window(history))

    sampling = replace(PLAIN, presence_penalty=0.8, penalty_last_n=1)
    pair = Pair.random(sampling)
    reply = generate(RejectionVerifier(), pair, Trees(pair, CHAIN), 30_000, sampler=StaysAtTheRoot)
    assert min(p_values(pair, reply.tokens)) < LIMIT


@pytest.mark.parametrize(("rule", "shape"), [("rejection", TREE), ("rejection", CHAIN), ("block", CHAIN)])
def test_a_reduced_draft_vocabulary_is_zero_elsewhere(rule, shape):
    """The drafter knows tokens 0 to 3 of 5; its arrays end there, and the residual reaches the fifth."""
    pair = Pair.random(PLAIN)
    short = pair.draft_probs[:, :4] / pair.draft_probs[:, :4].sum(axis=1, keepdims=True)
    pair.draft_probs = np.pad(short, ((0, 0), (0, 1)))
    trees = Trees(pair, shape)
    trees._rows = list(short)
    reply = generate(make_verifier(rule), pair, trees, 50_000)
    assert min(p_values(pair, reply.tokens)) > LIMIT


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_drafter_may_draw_with_its_own_seed_of_the_same_generator(rule):
    pair = Pair.fixed(PLAIN, (0.4, 0.35, 0.25), (0.3, 0.05, 0.65))
    verifier = make_verifier(rule)
    drafts = drawn_with_gumbel_noise(pair, 2, lambda root: drafting_seed(verifier, 1, root))
    assert min(p_values(pair, generate(verifier, pair, drafts, 50_000, seed=1).tokens)) > LIMIT


# --- rules that are broken on purpose: the same tests must catch them -----------------------------------


class SkipsTheResidual(RejectionVerifier):
    """Draws the correction from p, as if nothing had been refused."""

    class _Siblings(Siblings):
        def refuse(self, token, draft_probs, left):
            self.refused.append(token)

    def _siblings(self, ids, probs, vocabulary, replacement):
        return self._Siblings(ids, probs, vocabulary, replacement)


class ReusesTheDraftDistribution(RejectionVerifier):
    """Judges draws without replacement with the q of the first, as if they were independent."""

    def verify(self, draft, rows, sampler, history):
        return super().verify(replace(draft, replacement=True), rows, sampler, history)


class TrimsByTheTokensOwnProbability(RejectionVerifier):
    """Cuts the draft before the first token that was unlikely to be drawn."""

    def verify(self, draft, rows, sampler, history):
        unlikely = (
            place
            for place, (token, probs) in enumerate(zip(draft.tokens, draft.probs, strict=True))
            if probs[token] < 0.25
        )
        return super().verify(draft.prefix(next(unlikely, len(draft))), rows, sampler, history)


class CorrectsWithTheDraftsNoise(RejectionVerifier):
    """Draws the correction with the noise that the drafter drew its token with."""

    def verify(self, draft, rows, sampler, history):
        verdict = super().verify(draft, rows, sampler, history)
        if verdict.kind == "bonus":
            return verdict
        node = verdict.path[-1] if verdict.path else -1
        ids, probs = sampler.distribution(rows[node + 1])
        left = np.maximum(probs - draft.probs[node + 1][ids], 0)
        ids, left = ids[left > 0], left[left > 0]
        noise = gumbel_noise(sampler.params.seed, len(history) + len(verdict.path), ids)
        return replace(verdict, next_token=int(ids[(np.log(left) + noise).argmax()]))


class ReusesNumbersOfTheStepBefore(BlockVerifier):
    """Keys the numbers that decide by position alone."""

    def _accept_seed(self, sampler, root):
        return stream_seed(sampler.params.seed, Purpose.ACCEPT, 0)


@pytest.mark.parametrize(
    ("broken", "shape", "how"),
    [
        (SkipsTheResidual, CHAIN, "independent"),
        (SkipsTheResidual, TREE, "independent"),
        (ReusesTheDraftDistribution, TREE, "distinct"),
        (TrimsByTheTokensOwnProbability, CHAIN, "independent"),
    ],
)
def test_a_broken_rule_fails(broken, shape, how):
    pair = Pair.random(PLAIN)
    reply = generate(broken(), pair, Trees(pair, shape, how), 50_000)
    assert min(p_values(pair, reply.tokens)) < LIMIT


@pytest.mark.parametrize("broken", [CorrectsWithTheDraftsNoise, ReusesNumbersOfTheStepBefore, BlockVerifier])
def test_broken_use_of_noise_fails(broken):
    """The last of them is the correct rule, given drafts whose noise is used again in the next step."""
    pair = Pair.fixed(PLAIN, (0.4, 0.35, 0.25), (0.3, 0.05, 0.65))
    if broken is ReusesNumbersOfTheStepBefore:
        pair = Pair.fixed(PLAIN, (0.45, 0.55), (0.9, 0.1))
        drafts = Trees(pair, (1, 1, 1, 1))
    else:
        drafts = drawn_with_gumbel_noise(pair, 2, lambda root: 1)
    assert min(p_values(pair, generate(broken(), pair, drafts, 40_000, seed=1).tokens)) < LIMIT


def test_the_example_of_the_trimming_pitfall():
    """q = (.9, .1), p = (.5, .5): dropping token 1 because it was unlikely gives P(0) = .55."""
    pair = Pair.fixed(PLAIN, (0.5, 0.5), (0.9, 0.1))
    reply = generate(TrimsByTheTokensOwnProbability(), pair, Trees(pair, (1,)), 40_000)
    # Of a step's first token: a step with a draft of token 0 emits it with .5/.9, else token 1.
    ends = np.cumsum([1 + accepted for accepted in reply.accepted])
    first = np.asarray(reply.tokens)[1:][np.concatenate([[0], ends[:-1]])[ends < len(reply.tokens)]]
    assert np.mean(first == 0) == pytest.approx(0.55, abs=5 * 0.5 / np.sqrt(len(first)))


# --- theory ----------------------------------------------------------------------------------------------

PAIRS = {
    "close": ((0.5, 0.3, 0.2), (0.4, 0.35, 0.25)),
    "far": ((0.6, 0.3, 0.1), (0.1, 0.3, 0.6)),
    "disjoint tails": ((0.5, 0.5, 1e-9), (0.5, 1e-9, 0.5)),
}


@pytest.mark.parametrize(("p", "q"), PAIRS.values(), ids=PAIRS)
def test_rejection_accepts_one_minus_the_total_variation(p, q):
    pair = Pair.fixed(PLAIN, p, q)
    mean, error = generate(RejectionVerifier(), pair, Trees(pair, (1,)), 25_000).mean_accepted()
    assert mean == pytest.approx(1 - pair.total_variation(), abs=error)


@pytest.mark.parametrize(("p", "q"), PAIRS.values(), ids=PAIRS)
def test_coupled_acceptance_lies_between_its_bounds(p, q):
    pair = Pair.fixed(PLAIN, p, q)
    drafts = drawn_with_gumbel_noise(pair, 1, lambda root: drafting_seed(CoupledVerifier(), 7, root))
    mean, error = generate(CoupledVerifier(), pair, drafts, 25_000, seed=7).mean_accepted()
    variation = pair.total_variation()
    assert (1 - variation) / (1 + variation) - error < mean < 1 - variation + error


@pytest.mark.parametrize("length", [1, 4, 8])
def test_emitted_length_at_constant_acceptance(length):
    pair = Pair.fixed(PLAIN, *PAIRS["close"])
    alpha = 1 - pair.total_variation()
    mean, error = generate(RejectionVerifier(), pair, Trees(pair, (1,) * length), 40_000).mean_accepted()
    assert 1 + mean == pytest.approx((1 - alpha ** (length + 1)) / (1 - alpha), abs=error)


def test_block_verification_accepts_what_the_paper_says():
    """Its introduction's example: 10/9 tokens of two accepted token by token, 11/9 as a block."""
    pair = Pair.fixed(PLAIN, (1 / 3, 2 / 3), (2 / 3, 1 / 3))
    for verifier, expected in ((RejectionVerifier(), 10 / 9), (BlockVerifier(), 11 / 9)):
        mean, error = generate(verifier, pair, Trees(pair, (1, 1)), 40_000).mean_accepted()
        assert mean == pytest.approx(expected, abs=error)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_block_verification_never_accepts_less_than_rejection(seed):
    pair = Pair.random(PLAIN, 8, seed=seed)
    by_token, error = generate(RejectionVerifier(), pair, Trees(pair, (1,) * 5), 20_000).mean_accepted()
    as_block, other = generate(BlockVerifier(), pair, Trees(pair, (1,) * 5), 20_000).mean_accepted()
    assert as_block > by_token - np.hypot(error, other)
    assert as_block > by_token


def test_more_candidates_are_accepted_more_often():
    pair = Pair.fixed(PLAIN, *PAIRS["far"])
    shapes = [((1,), "independent"), ((2,), "independent"), ((2,), "distinct"), ((3,), "distinct")]
    means = [
        generate(RejectionVerifier(), pair, Trees(pair, shape, how), 20_000).mean_accepted()[0]
        for shape, how in shapes
    ]
    assert means == sorted(means)
    # Every token of the vocabulary is a candidate: nothing is left for a correction.
    assert means[-1] == 1.0


def test_the_verdict_depends_on_seed_and_draft_alone():
    pair = Pair.random(PLAIN)
    for rule in ("rejection", "block"):
        runs = [
            generate(make_verifier(rule), pair, Trees(pair, TREE, "distinct"), 300, seed=seed).tokens
            for seed in (5, 5, 6)
        ]
        assert runs[0] == runs[1] != runs[2]


def test_residual_work_stays_on_the_targets_tokens(monkeypatch):
    """With 150,000 tokens and top-k 40 no step of the rule touches an array of the vocabulary's size."""
    size = 150_000
    random = np.random.default_rng(0)
    rows = random.normal(0, 3, (2, size)).astype(np.float32)
    sizes = []
    original = rejection_module.draft_probabilities_at

    def counted(draft_probs, ids, vocabulary):
        values = original(draft_probs, ids, vocabulary)
        sizes.append(len(values))
        return values

    monkeypatch.setattr(rejection_module, "draft_probabilities_at", counted)
    probs = np.zeros(size, dtype=np.float32)
    probs[int(rows[0].argmin())] = 1.0
    draft = replace(
        Trees(Pair.fixed(PLAIN, (0.5, 0.5), (0.5, 0.5)), (1,))(0, 1),
        tokens=(int(rows[0].argmin()),),
        probs=(probs,),
    )
    verdict = RejectionVerifier().verify(draft, rows, Sampler(SamplingParams(top_k=40)), [1, 2, 3])
    assert verdict.kind == "correction"
    assert sizes
    assert max(sizes) <= 40
