"""The registry of rules, lossy acceptance against its formulas, bad input, and what any verdict must be."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.spatial import distance

from localspec.control import FixedLength
from localspec.drafters.none import NoDrafter
from localspec.errors import BadLogitsError, UsageError
from localspec.sampling import Purpose, Sampler, stream_seed, uniform
from localspec.session import Reply, Session, StopRules
from localspec.testing import RandomDrafter, ScriptedModel
from localspec.text import ReplyText
from localspec.types import Draft, SamplingParams
from localspec.verify import (
    VERIFIERS,
    AdaSDVerifier,
    CoupledVerifier,
    EntropyStop,
    RejectionVerifier,
    TypicalVerifier,
    check_verify,
    drafting_seed,
    make_verifier,
    shares_noise,
)
from localspec.verify.adasd import RunningThreshold, jensen_shannon_distance
from tests.core.verify_chains import Pair, Trees, generate, p_values

PLAIN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


def logits(*probabilities: float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.log(np.array(probabilities)).astype(np.float32)


def rows(*distributions: tuple[float, ...]) -> np.ndarray:
    return np.stack([logits(*probabilities) for probabilities in distributions])


# --- registry --------------------------------------------------------------------------------------------


def test_every_rule_by_name():
    assert list(VERIFIERS) == ["coupled", "rejection", "block", "typical", "adasd"]
    for name in VERIFIERS:
        check_verify(name)
        assert make_verifier(name).name == name
        assert make_verifier(name) is not make_verifier(name)
    exact = {name: make_verifier(name).exact for name in VERIFIERS}
    assert exact == {"coupled": True, "rejection": True, "block": True, "typical": False, "adasd": False}


def test_an_unknown_rule_is_refused_with_the_names():
    for refuse in (check_verify, make_verifier):
        with pytest.raises(
            UsageError, match="'strict'; use one of: coupled, rejection, block, typical, adasd"
        ):
            refuse("strict")


def test_a_rule_that_needs_distributions_refuses_a_drafter_without():
    with pytest.raises(UsageError, match="'ngram' has no distribution"):
        check_verify("adasd", drafter="ngram", has_probs=False)
    check_verify("typical", drafter="ngram", has_probs=False)
    draft = Draft.chain([1], source="suffix")
    with pytest.raises(UsageError, match="'suffix' has no distribution"):
        AdaSDVerifier().verify(draft, rows((0.5, 0.5), (0.5, 0.5)), Sampler(PLAIN), [0])
    other = replace(draft, probs=(np.full(3, 1 / 3, dtype=np.float32),))
    with pytest.raises(UsageError, match="another vocabulary"):
        AdaSDVerifier().verify(other, rows((0.5, 0.5), (0.5, 0.5)), Sampler(PLAIN), [0])


def test_which_noise_a_drafter_draws_with():
    assert {name: shares_noise(make_verifier(name)) for name in VERIFIERS} == {
        "coupled": True,
        "rejection": False,
        "block": False,
        "typical": True,
        "adasd": True,
    }
    assert drafting_seed(CoupledVerifier(), 5, 9) == 5
    seeds = {drafting_seed(RejectionVerifier(), seed, root) for seed in (5, 6) for root in range(50)}
    assert len(seeds | {5, 6}) == 102


# --- numbers ---------------------------------------------------------------------------------------------


def test_uniform_numbers_are_uniform_and_independent_between_streams():
    """Kolmogorov-Smirnov at 1e-7 each and correlations within 5.5 sigma, fixed seeds."""
    by_counter = np.array([uniform(3, counter) for counter in range(20_000)])
    by_root = np.array([uniform(stream_seed(3, Purpose.ACCEPT, root), 7) for root in range(20_000)])
    other = np.array([uniform(stream_seed(3, Purpose.CORRECTION, root), 7) for root in range(20_000)])
    for sample in (by_counter, by_root, other):
        assert sample.min() > 0
        assert sample.max() < 1
        assert stats.kstest(sample, "uniform").pvalue > 1e-7
        assert abs(np.corrcoef(sample[:-1], sample[1:])[0, 1]) < 5.5 / math.sqrt(len(sample))
    assert abs(np.corrcoef(by_root, other)[0, 1]) < 5.5 / math.sqrt(len(other))


# --- typical acceptance ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("probabilities", "token", "accepted"),
    [
        # H = 1.089, threshold min(.09, .3 * .336 = .101) = .09
        ((0.45, 0.35, 0.12, 0.08), 2, True),
        ((0.45, 0.35, 0.12, 0.08), 3, False),
        # uniform over 8: threshold .3 / 8 = .0375, and p is .125
        ((0.125,) * 8, 7, True),
        # sharp: H = .3, threshold .09
        ((0.93, 0.05, 0.02), 1, False),
        ((0.93, 0.05, 0.02), 0, True),
    ],
)
def test_typical_acceptance_by_hand(probabilities, token, accepted):
    entropy = -sum(p * math.log(p) for p in probabilities)
    assert accepted == (probabilities[token] > min(0.09, 0.3 * math.exp(-entropy)))
    given_rows = rows(probabilities, probabilities)
    verdict = TypicalVerifier().verify(Draft.chain([token]), given_rows, Sampler(PLAIN), [0, 1])
    assert verdict.path == ((0,) if accepted else ())
    assert verdict.next_token == int(np.argmax(probabilities))
    assert verdict.kind == ("bonus" if accepted else "correction")


def test_typical_keeps_the_longest_path_then_the_likelier():
    draft = Draft(tokens=(0, 1, 2, 0, 1), parents=(-1, -1, 1, 1, -1))
    even = (0.4, 0.35, 0.25)
    verdict = TypicalVerifier().verify(draft, rows(*[even] * 6), Sampler(PLAIN), [0])
    assert verdict.path == (1, 3)
    refusing = rows(even, even, (0.98, 0.01, 0.01), even, even, even)
    assert TypicalVerifier().verify(draft, refusing, Sampler(PLAIN), [0]).path == (1, 3)
    nothing_below = rows(even, even, (0.01, 0.98, 0.01), even, even, even)
    verdict = TypicalVerifier().verify(draft, nothing_below, Sampler(PLAIN), [0])
    assert verdict.path == (0,)
    assert verdict.kind == "bonus"


def test_typical_is_lossy_and_plain_without_a_draft():
    pair = Pair.random(PLAIN)
    lossy = generate(TypicalVerifier(), pair, Trees(pair, (1, 1)), 20_000)
    assert min(p_values(pair, lossy.tokens)) < 1e-12
    plain = generate(TypicalVerifier(), pair, lambda before, root: Draft(), 300)
    assert plain.tokens == generate(CoupledVerifier(), pair, lambda before, root: Draft(), 300).tokens


# --- AdaSD -----------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 10_000), kept=st.integers(1, 12), drafted=st.integers(1, 12))
def test_distance_equals_scipys(seed, kept, drafted):
    random = np.random.default_rng(seed)
    target, draft = np.zeros(12), np.zeros(12)
    ids = random.permutation(12)[:kept]
    target[ids] = random.dirichlet(np.ones(kept))
    draft[random.permutation(12)[:drafted]] = random.dirichlet(np.ones(drafted))
    ours = jensen_shannon_distance(ids, target[ids], draft)
    assert ours == pytest.approx(distance.jensenshannon(target, draft, base=2), abs=1e-6)


def test_a_running_threshold_is_the_midpoint_of_two_means():
    threshold = RunningThreshold()
    assert threshold.value is None
    threshold.add(0.1, accepted=True)
    threshold.add(0.3, accepted=True)
    assert threshold.value is None
    threshold.add(0.8, accepted=False)
    threshold.add(math.nan, accepted=False)
    assert threshold.value == pytest.approx(0.5)


def test_drafting_stops_at_unusual_entropy():
    stop = EntropyStop()
    assert not stop.stops(99.0)
    stop.update([0.5, 1.5, 4.0, 100.0], accepted=2)
    assert stop.threshold == pytest.approx((1.0 + 4.0) / 2)
    assert stop.stops(2.6)
    assert not stop.stops(2.4)
    stop.update([0.2], accepted=1)
    stop.update([], accepted=0)
    assert stop.threshold == pytest.approx((2.2 / 3 + 4.0) / 2)


def test_adasd_accepts_more_where_the_distributions_are_close():
    """At first the target's own draw alone; once both means are known, also tokens at a small distance."""
    pair = Pair.random(PLAIN)
    lossy = generate(AdaSDVerifier(), pair, Trees(pair, (1, 1)), 20_000)
    strict = generate(CoupledVerifier(), pair, Trees(pair, (1, 1)), 20_000)
    assert np.mean(lossy.accepted) > 1.2 * np.mean(strict.accepted)
    assert min(p_values(pair, lossy.tokens)) < 1e-12

    verifier = AdaSDVerifier()
    close = np.array([0.5, 0.3, 0.2], dtype=np.float32)
    far = np.array([0.05, 0.05, 0.9], dtype=np.float32)
    target = rows((0.5, 0.3, 0.2), (0.5, 0.3, 0.2))
    sampler = Sampler(PLAIN)
    own = sampler.sample(target[0], 1)
    other = (own + 1) % 3
    judged = [
        verifier.verify(replace(Draft.chain([token]), probs=(probs,)), target, sampler, [0]).path
        for token, probs in ((other, close), (own, close), (other, far), (other, close), (other, far))
    ]
    assert judged == [(), (0,), (), (0,), ()]


@pytest.mark.parametrize("rule", ["typical", "adasd"])
def test_a_lossy_rule_never_accepts_what_is_forbidden(rule):
    pair = Pair.random(PLAIN)
    filtered = Pair(replace(PLAIN, top_k=2), pair.target, pair.draft)
    reply = generate(make_verifier(rule), filtered, Trees(pair, (2, 1), "distinct"), 3_000)
    emitted = np.asarray(reply.tokens)
    assert (filtered.target_probs[emitted[:-1], emitted[1:]] > 0).all()


# --- any verdict, bad input ------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    size=st.integers(0, 12),
    rule=st.sampled_from(sorted(VERIFIERS)),
    temperature=st.sampled_from([0.0, 0.7, 1.5]),
    top_k=st.sampled_from([0, 2]),
    replacement=st.booleans(),
    with_probs=st.booleans(),
    repeat=st.sampled_from([1.0, 1.3]),
)
def test_any_verdict_is_a_path_and_a_possible_token(
    seed, size, rule, temperature, top_k, replacement, with_probs, repeat
):
    random = np.random.default_rng(seed)
    vocabulary = 6
    probs = tuple(random.dirichlet(np.ones(vocabulary)).astype(np.float32) for _ in range(size))
    draft = Draft(
        tokens=tuple(int(token) for token in random.integers(0, vocabulary, size)),
        parents=tuple(int(random.integers(-1, node)) if node else -1 for node in range(size)),
        probs=probs if with_probs or rule == "adasd" else (),
        replacement=replacement,
    )
    given_rows = random.normal(0, 2, (size + 1, vocabulary)).astype(np.float32)
    before = given_rows.copy()
    sampler = Sampler(SamplingParams(temperature=temperature, top_k=top_k, repeat_penalty=repeat, seed=seed))
    history = [1, 2, 3]
    verdict = make_verifier(rule).verify(draft, given_rows, sampler, history)
    assert verdict == make_verifier(rule).verify(draft, given_rows, sampler, tuple(history))
    assert history == [1, 2, 3]
    assert (given_rows == before).all()
    node = verdict.path[-1] if verdict.path else -1
    assert verdict.path == draft.path_to(node)
    assert verdict.kind == ("correction" if node in draft.parents else "bonus")
    said = history + [draft.tokens[index] for index in verdict.path]
    ids, _ = sampler.distribution(given_rows[node + 1], said)
    assert verdict.next_token in ids


@pytest.mark.parametrize("rule", VERIFIERS)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_nan_logits_are_an_error(rule, temperature):
    sampler = Sampler(replace(PLAIN, temperature=temperature))
    bad = rows((0.5, 0.5), (0.5, 0.5))
    bad[0, 1] = np.nan
    probs = np.array([0.5, 0.5], dtype=np.float32)
    for draft in (Draft(), replace(Draft.chain([0]), probs=(probs,))):
        with pytest.raises(BadLogitsError, match="NaN"):
            make_verifier(rule).verify(draft, bad[: len(draft) + 1], sampler, [0])


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_nan_draft_probabilities_are_an_error(rule):
    probs = np.array([np.nan, 0.5], dtype=np.float32)
    draft = replace(Draft.chain([0]), probs=(probs,))
    with pytest.raises(BadLogitsError, match="draft model"):
        make_verifier(rule).verify(draft, rows((0.5, 0.5), (0.5, 0.5)), Sampler(PLAIN), [0])


def test_equal_distributions_are_accepted_whatever_the_rounding():
    probs = np.array([0.1, 0.2, 0.3, 0.4], dtype=np.float32)
    draft = replace(Draft.chain([0, 1, 2, 3]), probs=(probs,) * 4)
    given_rows = np.stack([logits(*probs)] * 5)
    for rule in ("rejection", "block"):
        for root in range(1, 300):
            verdict = make_verifier(rule).verify(draft, given_rows, Sampler(PLAIN), range(root))
            assert verdict.path == (0, 1, 2, 3)


@pytest.mark.parametrize("rule", ["coupled", "rejection", "block"])
def test_a_session_says_the_plain_text_under_any_exact_rule(rule):
    """Drafts without distributions, through the step: rolled back, stopped and committed as ever."""
    texts = []
    for drafter, name in ((NoDrafter(), "coupled"), (RandomDrafter(32, 4, branches=True), rule)):
        model = ScriptedModel(32)
        session = Session(
            model, model, drafter=drafter, controller=FixedLength(8), verifier=make_verifier(name)
        )
        session.prefill([5, 9, 12, 7])
        reply = Reply(ReplyText(()))
        sampling = SamplingParams(temperature=1.0, repeat_penalty=1.2, seed=8)
        list(session.reply(Sampler(sampling), StopRules(max_tokens=120), reply))
        texts.append(reply.token_ids)
    assert texts[0] == texts[1]


# --- drafts that were drawn ------------------------------------------------------------------------------


def test_a_drawn_tree_is_reduced_to_its_eldest_chain():
    """To choose among draws by their probability would change the distribution that they follow."""
    probs = tuple(np.full(8, 1 / 8, dtype=np.float32) for _ in range(6))
    tree = Draft(
        tokens=(1, 2, 3, 4, 5, 6),
        parents=(-1, -1, 0, 1, 1, 3),
        confidence=(0.1, 0.9, 0.1, 0.8, 0.1, 0.7),
        probs=probs,
        replacement=False,
    )
    assert tree.eldest_path() == (0, 2)
    assert tree.best_chain().tokens == (1, 3)
    assert len(tree.best_chain().probs) == 2
    assert replace(tree, probs=()).best_chain().tokens == (2, 4, 6)
    assert Draft().eldest_path() == ()


def test_the_window_is_all_that_penalties_see():
    random = np.random.default_rng(1)
    row = random.normal(0, 2, 20).astype(np.float32)
    history = [int(token) for token in random.integers(0, 20, 50)]
    for last in (-1, 0, 1, 7, 64):
        sampler = Sampler(SamplingParams(repeat_penalty=1.4, frequency_penalty=0.3, penalty_last_n=last))
        window = sampler.window(history)
        assert len(window) == (50 if last < 0 else min(last, 50))
        assert np.array_equal(sampler.distribution(row, window)[1], sampler.distribution(row, history)[1])
    assert Sampler(SamplingParams()).window(history) == []
