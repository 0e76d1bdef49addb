"""Draft models on scripted ones: their cache follows the text, and what they draw the target accepts."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from localspec.control import FixedLength
from localspec.drafters.model import ModelDrafter
from localspec.sampling import Sampler
from localspec.session import Reply, Session, StopRules
from localspec.target import Outputs
from localspec.testing import ScriptedModel
from localspec.text import ReplyText
from localspec.types import Budget, Draft, Outcome, SamplingParams
from localspec.verify import GreedyDrawing, make_verifier
from tests.core.test_session import PROMPT, SAMPLINGS, VOCABULARY, generate

RULES = StopRules(max_tokens=160)
GREEDY = SamplingParams(temperature=0)


def scripted(seed: int = 0, **settings: object) -> ScriptedModel:
    return ScriptedModel(VOCABULARY, seed=seed, eog_logit=-30.0, **settings)


def drafter_on(
    model: ScriptedModel, kind: type[ModelDrafter] = ModelDrafter, **settings: object
) -> ModelDrafter:
    return kind(model, VOCABULARY, GreedyDrawing(), **settings)


class Follower(ModelDrafter):
    """Checks after every step that its cache is the beginning of what was said."""

    said: list[int]

    def begin(self, tokens: Sequence[int]) -> None:
        super().begin(tokens)
        self.said = list(tokens)
        self.check()

    def commit(self, outcome: Outcome) -> None:
        super().commit(outcome)
        self.said += outcome.tokens
        self.check()

    def check(self) -> None:
        held = list(self._context.cached)
        assert held == self.said[self._start : self._start + len(held)]
        assert self._start + len(held) < len(self.said)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("length", [1, 3, 8])
def test_a_target_that_drafts_for_itself_accepts_everything(sampling: SamplingParams, length: int) -> None:
    reply, steps, _ = generate(
        scripted(),
        drafter_on(scripted(), Follower),
        sampling,
        StopRules(max_tokens=10 * (length + 1)),
        length=length,
    )
    assert [step.accepted for step in steps] == [length] * 10
    assert len(reply.token_ids) == 10 * (length + 1)
    assert all(step.kind == "bonus" and step.source == "model" for step in steps)


class KeepsOneTooMany(ModelDrafter):
    def _keep(self, count: int) -> None:
        super()._keep(count + 1)


class KeepsOneTooFew(ModelDrafter):
    """Reads a token twice in the place of the one before it."""

    def _keep(self, count: int) -> None:
        super()._keep(count)
        if self._context.length:
            self._context.keep(self._context.length - 1)
            self._start += 1


class ForgetsTheLast(ModelDrafter):
    def commit(self, outcome: Outcome) -> None:
        super().commit(Outcome(outcome.tokens[:-1], outcome.accepted, outcome.drafted))


@pytest.mark.parametrize("mutant", [KeepsOneTooMany, KeepsOneTooFew, ForgetsTheLast])
def test_mutants_that_are_off_by_one_lose_acceptance(mutant: type[ModelDrafter]) -> None:
    # Rows depend on all the text, so whatever is wrong in the cache shows; the draft is often refused.
    target, near = scripted(order=500), Near(VOCABULARY, eog_logit=-30.0, order=500)
    assert accepted(target, drafter_on(scripted(order=500))) == 1.0
    right = accepted(target, drafter_on(near))
    assert 0.3 < right < 0.9
    near.clear()
    assert accepted(target, drafter_on(near, mutant)) < right - 0.2


def accepted(target: ScriptedModel, drafter: ModelDrafter) -> float:
    target.clear()
    try:
        _, steps, _ = generate(target, drafter, GREEDY, RULES, length=3)
    except Exception:  # a mutant may ask for what does not fit
        return 0.0
    whole = [step for step in steps if step.drafted == 3]
    return sum(step.accepted for step in whole) / max(3 * len(whole), 1)


class Near(ScriptedModel):
    """A model whose rows are the other's with some noise: right often, not always."""

    def row(self, tokens: Sequence[int]) -> np.ndarray:
        own = super().row(tokens)
        return own + np.random.default_rng([1, *tokens[-2:]]).normal(0.0, 1.0, len(own)).astype(np.float32)


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("leaves", [1, 3])
def test_text_is_the_plain_one_whatever_the_draft_model(sampling: SamplingParams, leaves: int) -> None:
    plain, _, _ = generate(scripted(), drafter_on(scripted(5)), sampling, RULES, length=0)
    near = Near(VOCABULARY, eog_logit=-30.0)
    reply, steps, _ = generate(
        scripted(),
        drafter_on(near, Follower),
        sampling,
        RULES,
        length=5,
        leaves=leaves,
        toggles=frozenset({3, 9, 20, 31}),
    )
    assert reply.token_ids == plain.token_ids
    assert 0 < sum(step.accepted for step in steps) < sum(step.drafted for step in steps)


def test_branches_find_more_than_a_chain() -> None:
    """The second candidates are right where the first ones are not, at no pass of the draft model."""
    lengths = {}
    for leaves in (1, 4):
        near = Near(VOCABULARY, eog_logit=-30.0)
        _, steps, _ = generate(
            scripted(), drafter_on(near), GREEDY, StopRules(max_tokens=400), length=6, leaves=leaves
        )
        lengths[leaves] = sum(step.emitted for step in steps) / len(steps)
    assert lengths[4] > lengths[1]


def test_the_coupled_draw_is_accepted_more_often_than_an_independent_one() -> None:
    sampling = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=3)
    rates = {}
    for rule in ("coupled", "rejection"):
        near = Near(VOCABULARY, eog_logit=-30.0)
        _, steps, _ = generate(
            scripted(),
            drafter_on(near),
            sampling,
            StopRules(max_tokens=1500),
            length=1,
            verifier=make_verifier(rule),
        )
        tried = [step for step in steps if step.drafted]
        rates[rule] = sum(step.accepted for step in tried) / len(tried)
    # What a rule that ignores the noise would accept: the sum over x of p(x) q(x).
    assert rates["coupled"] > 0.6
    assert rates["rejection"] > 0.6
    apart = independent_rate(sampling)
    assert rates["coupled"] > apart + 0.1


def independent_rate(sampling: SamplingParams) -> float:
    target, near, sampler = scripted(), Near(VOCABULARY, eog_logit=-30.0), Sampler(sampling)
    rates = []
    for one in range(4, VOCABULARY):
        for two in range(4, VOCABULARY):
            p = dict(zip(*map(list, sampler.distribution(target.row([one, two]))), strict=True))
            q = dict(zip(*map(list, sampler.distribution(near.row([one, two]))), strict=True))
            rates.append(sum(p[token] * q[token] for token in p))
    return float(np.mean(rates))


@pytest.mark.parametrize("rule", ["rejection", "block", "adasd", "typical"])
def test_other_rules_get_what_they_need(rule: str) -> None:
    near = Near(VOCABULARY, eog_logit=-30.0)
    sampling = SamplingParams(temperature=0.8, seed=2)
    _, steps, _ = generate(
        scripted(), drafter_on(near), sampling, RULES, length=4, verifier=make_verifier(rule)
    )
    assert sum(step.accepted for step in steps) > 0


def test_rejection_follows_the_target_with_a_draft_model() -> None:
    """First tokens of many replies, against the target's own distribution: chi-square at 1e-6."""
    from scipy.stats import chisquare

    count = 20_000
    sampling = SamplingParams(temperature=1.0, top_k=6, top_p=1.0, min_p=0.0)
    target, near = scripted(), Near(VOCABULARY, eog_logit=-30.0)
    drafter = drafter_on(near)
    ids, probs = Sampler(sampling).distribution(target.row(PROMPT))
    seen = dict.fromkeys(ids.tolist(), 0)
    session = Session(
        target, target, drafter=drafter, controller=FixedLength(2), verifier=make_verifier("rejection")
    )
    for seed in range(count):
        session.prefill(PROMPT)
        drawn = SamplingParams(temperature=1.0, top_k=6, top_p=1.0, min_p=0.0, seed=seed)
        into = Reply(ReplyText(()))
        for _ in session.reply(Sampler(drawn), StopRules(max_tokens=3), into):
            pass
        seen[into.token_ids[0]] += 1
    assert chisquare(list(seen.values()), probs * count).pvalue > 1e-6


def test_prompts_are_read_when_drafts_are_wanted() -> None:
    model = scripted()
    drafter = drafter_on(model)
    drafter.begin(PROMPT)
    assert model.cached == tuple(PROMPT[:-1])
    for place in range(70):
        drafter.commit(Outcome((5 + place % 9,), 0, 0))
    assert model.cached == tuple(PROMPT[:-1])
    drafter.begin([*PROMPT, 6, 7, 8, 9])
    # Not wanted lately: nothing is read before it is needed.
    assert model.cached == tuple(PROMPT[:-1])
    drafter.propose([*PROMPT, 6, 7, 8, 9], Budget(1))
    assert model.cached == (*PROMPT, 6, 7, 8, 9)


def test_another_conversation_keeps_what_it_shares() -> None:
    model = scripted()
    drafter = drafter_on(model)
    drafter.begin([5, 6, 7, 8, 9, 10])
    model.passes.clear()
    drafter.begin([5, 6, 7, 12, 13])
    assert model.cached == (5, 6, 7, 12)
    assert sum(model.passes) == 1
    drafter.begin([20, 21])
    assert model.cached == (20,)


@pytest.mark.parametrize("window", [64, 80, None])
def test_a_small_window_slides(window: int | None) -> None:
    """A scripted row depends on two tokens: a window costs no acceptance, and the cache stays within it."""
    draft = scripted(capacity=96 if window else 4096)
    _, steps, _ = generate(
        scripted(), drafter_on(draft, Follower, window=window), GREEDY, StopRules(max_tokens=400), length=4
    )
    assert draft.length <= (96 if window else 4096)
    assert all(step.accepted == step.drafted for step in steps)
    if window:
        # Half a window is read anew when it is full, not all of the text with every token.
        assert sum(draft.passes) < 5 * 400


@pytest.mark.parametrize("width", [VOCABULARY - 8, VOCABULARY + 8])
def test_rows_of_another_width_fit_the_target(width: int) -> None:
    plain, _, _ = generate(scripted(), drafter_on(scripted()), SAMPLINGS["T=1"], RULES, length=0)
    draft = ScriptedModel(width, eog_logit=-30.0)
    reply, _, _ = generate(scripted(), drafter_on(draft), SAMPLINGS["T=1"], RULES, length=4)
    assert reply.token_ids == plain.token_ids


class Asked:
    """Advice that allows a certain number of tokens."""

    def __init__(self, tokens: int) -> None:
        self.left = tokens
        self.asked: list[int] = []

    def more(self, draft: Draft) -> bool:
        self.asked.append(len(draft))
        self.left -= 1
        return self.left >= 0

    def rate(self, draft: Draft) -> float:
        return float(len(draft))

    def prospect(self, source: str) -> float:
        return 3.0 if source == "model" else 0.0


def test_it_drafts_as_long_as_it_is_advised_to() -> None:
    model = scripted()
    drafter = drafter_on(model)
    drafter.begin(PROMPT)
    model.passes.clear()
    assert not len(drafter.propose(PROMPT, Budget(8, advice=Asked(0))))
    assert model.passes == []
    advice = Asked(3)
    assert len(drafter.propose(PROMPT, Budget(8, advice=advice))) == 3
    assert advice.asked == [0, 1, 2, 3]
    assert model.passes == [1, 1, 1]


def test_random_budgets_keep_the_cache_in_step() -> None:
    """Steps of every kind: none, short, long, branched; refused, accepted in part, accepted whole."""
    dice = random.Random(5)

    class Dice(FixedLength):
        def budget(self, tokens: Sequence[int]) -> Budget:
            return Budget(dice.choice((0, 0, 1, 2, 5, 9)), dice.choice((1, 1, 3)))

    target, near = scripted(), Near(VOCABULARY, eog_logit=-30.0)
    session = Session(target, target, drafter=drafter_on(near, Follower), controller=Dice(8))
    text = list(PROMPT)
    for turn in range(12):
        session.prefill(text)
        reply = Reply(ReplyText(()))
        list(session.reply(Sampler(SAMPLINGS["T=1"]), StopRules(max_tokens=dice.randint(1, 90)), reply))
        text = [*session.tokens, 7, 8, 9] if turn % 3 else [*session.tokens[: dice.randint(2, 30)], 12]
    assert isinstance(reply, Reply)


def test_tokens_that_the_draft_model_does_not_have_are_read_as_others() -> None:
    """The target may have up to 128 tokens more; one of them being said ends nothing."""

    class Narrow(ScriptedModel):
        def decode(self, tokens: Sequence[int], outputs: Outputs) -> np.ndarray:
            assert all(token < VOCABULARY - 8 for token in tokens)
            return super().decode(tokens, outputs)

    draft = Narrow(VOCABULARY - 8, eog_logit=-30.0)
    drafter = drafter_on(draft, known=VOCABULARY - 8)
    plain, _, _ = generate(scripted(), drafter_on(scripted()), SAMPLINGS["T=1"], RULES, length=0)
    assert max(plain.token_ids) >= VOCABULARY - 8
    reply, _, _ = generate(scripted(), drafter, SAMPLINGS["T=1"], RULES, length=4)
    assert reply.token_ids == plain.token_ids


def test_after_a_pause_it_looks_back_on_little_until_its_drafts_come_true() -> None:
    text = [5 + place % 20 for place in range(300)]
    model = scripted()
    drafter = drafter_on(model)
    drafter.begin(text[:4])
    for token in text[4:]:
        drafter.commit(Outcome((token,), 0, 0))
    model.passes.clear()
    session = list(text)
    for _ in range(16):
        (token,) = drafter.propose(session, Budget(1)).tokens
        assert model.length < 60
        session.append(token)
        drafter.commit(Outcome((token,), 1, 1))
    # Proven: now it reads all of it.
    drafter.propose(session, Budget(1))
    assert list(model.cached) == session
    assert sum(model.passes) < 60 + len(session)
