"""The step's promise, on a model without rounding: whatever is drafted, the tokens are the plain ones."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control import FixedLength, Off
from localspec.drafters.base import Drafter
from localspec.drafters.ngram import NgramDrafter
from localspec.drafters.none import NoDrafter
from localspec.drafters.suffix import SuffixDrafter
from localspec.drafters.suffix_arctic import ArcticDrafter
from localspec.errors import EngineError, PromptTooLongError, UsageError
from localspec.memory.memory import Memory
from localspec.sampling import Sampler
from localspec.session import Reply, Session, StopRules
from localspec.stats.metrics import Tally
from localspec.testing import (
    AdversarialDrafter,
    OracleDrafter,
    RandomDrafter,
    ScriptedModel,
    TranscriptVerifier,
)
from localspec.text import ReplyText
from localspec.types import SamplingParams, StepStats
from localspec.verify import Verifier

PROMPT = [5, 9, 12, 5, 9, 7, 20, 11]
VOCABULARY = 32
SAMPLINGS = {
    "greedy": SamplingParams(temperature=0),
    "T=1": SamplingParams(temperature=1.0, seed=11),
    "T=1, filters and penalties": SamplingParams(
        temperature=1.0, top_k=12, top_p=0.9, min_p=0.02, repeat_penalty=1.2, frequency_penalty=0.1, seed=4
    ),
}


def generate(
    model: ScriptedModel,
    drafter: Drafter,
    sampling: SamplingParams,
    rules: StopRules,
    *,
    length: int = 8,
    leaves: int = 1,
    verifier: Verifier | None = None,
    toggles: frozenset[int] = frozenset(),
) -> tuple[Reply, list[StepStats], Session]:
    """One reply; speculation is switched at every step whose index is in `toggles`."""
    drafting = FixedLength(length, leaves=leaves)
    session = Session(model, model, drafter=drafter, controller=drafting, verifier=verifier)
    session.prefill(PROMPT)
    reply, steps, on = Reply(ReplyText(rules.stop)), [], True
    stream = session.reply(Sampler(sampling), rules, reply)
    for index in itertools.count():
        if index in toggles:
            on = not on
            session.controller = drafting if on else Off()
        emission = next(stream, None)
        if emission is None:
            break
        steps.append(emission.stats)
        assert model.length == len(session.tokens) - 1
        assert list(model.cached) == session.tokens[:-1]
    reply.text.finish()
    assert session.tokens == PROMPT + reply.token_ids
    return reply, steps, session


def remembering(reply: list[int]) -> Memory:
    """A memory of one reply, and of the same one with some tokens changed."""
    memory = Memory()
    memory.add([token if place % 5 else 7 for place, token in enumerate(reply)], "before")
    memory.add(reply, "before")
    return memory


def drafters(sequence: list[int]) -> dict[str, Callable[[], Drafter]]:
    return {
        "oracle": lambda: OracleDrafter(sequence),
        "adversarial": lambda: AdversarialDrafter(sequence, VOCABULARY),
        "adversarial from 3": lambda: AdversarialDrafter(sequence, VOCABULARY, right=3),
        "random": lambda: RandomDrafter(VOCABULARY, 5),
        "random trees": lambda: RandomDrafter(VOCABULARY, 6, branches=True),
        "ngram": NgramDrafter,
        "suffix": SuffixDrafter,
        "suffix, said before": lambda: SuffixDrafter(remembering(sequence)),
        "suffix:arctic": ArcticDrafter,
        "suffix:arctic, said before": lambda: ArcticDrafter(remembering(sequence)),
    }


RULES = {
    "max_tokens": ({}, StopRules(max_tokens=97)),
    "eog": ({"eog_logit": 0.5}, StopRules(max_tokens=500)),
    "context": ({"capacity": 61}, StopRules()),
    "one token": ({}, StopRules(max_tokens=1)),
    "ignored eog": ({"eog_logit": 2.5}, StopRules(max_tokens=60, ignore_eos=True)),
}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize(("model_options", "rules"), RULES.values(), ids=RULES)
@pytest.mark.parametrize("method", drafters([]))
def test_tokens_equal_plain_decoding(sampling, model_options, rules, method):
    plain, plain_steps, _ = generate(ScriptedModel(VOCABULARY, **model_options), NoDrafter(), sampling, rules)
    sequence = PROMPT + plain.token_ids
    for toggles in (frozenset(), frozenset({0}), frozenset({2, 3, 7, 8, 20})):
        model = ScriptedModel(VOCABULARY, **model_options)
        reply, steps, _ = generate(model, drafters(sequence)[method](), sampling, rules, toggles=toggles)
        assert reply.token_ids == plain.token_ids
        assert reply.text.text == plain.text.text
        assert reply.finish_reason == plain.finish_reason
        assert sum(step.emitted for step in steps) == len(plain.token_ids) == len(plain_steps)
        if method == "oracle" and not toggles and len(plain.token_ids) > 9:
            assert len(steps) == -(-len(plain.token_ids) // 9)
        if method == "adversarial":
            assert sum(step.accepted for step in steps) == 0
        if method.endswith("said before") and not toggles and len(plain.token_ids) > 40:
            assert sum(step.accepted for step in steps) > len(plain.token_ids) // 2


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    temperature=st.sampled_from([0.0, 0.5, 1.0]),
    length=st.integers(1, 20),
    toggles=st.frozensets(st.integers(0, 40)),
    method=st.sampled_from(sorted(drafters([]))),
    eog=st.sampled_from([-4.0, 0.0, 1.0]),
)
def test_tokens_equal_plain_decoding_at_any_toggle_points(seed, temperature, length, toggles, method, eog):
    sampling = SamplingParams(temperature=temperature, seed=seed)
    rules = StopRules(max_tokens=80)
    plain, _, _ = generate(ScriptedModel(VOCABULARY, seed=seed, eog_logit=eog), NoDrafter(), sampling, rules)
    drafter = drafters(PROMPT + plain.token_ids)[method]()
    model = ScriptedModel(VOCABULARY, seed=seed, eog_logit=eog)
    reply, _, _ = generate(model, drafter, sampling, rules, length=length, toggles=toggles)
    assert reply.token_ids == plain.token_ids
    assert reply.finish_reason == plain.finish_reason


@pytest.mark.parametrize("method", drafters([]))
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_stop_strings_inside_a_draft(sampling, method):
    free, _, _ = generate(ScriptedModel(VOCABULARY), NoDrafter(), sampling, StopRules(max_tokens=80))
    # A string that ends in the middle of a draft of 8, longer than a token.
    stop = free.text.text[20:24]
    rules = StopRules(max_tokens=80, stop=(stop,))
    plain, _, _ = generate(ScriptedModel(VOCABULARY), NoDrafter(), sampling, rules)
    assert plain.finish_reason == "stop"
    assert stop not in plain.text.text
    assert len(plain.token_ids) < 80
    drafter = drafters(PROMPT + free.token_ids)[method]()
    reply, _, _ = generate(ScriptedModel(VOCABULARY), drafter, sampling, rules)
    assert (reply.token_ids, reply.text.text) == (plain.token_ids, plain.text.text)
    assert reply.finish_reason == "stop"


def test_a_second_prompt_decodes_only_what_is_new():
    model = ScriptedModel(VOCABULARY)
    first, _, session = generate(model, NgramDrafter(), SAMPLINGS["greedy"], StopRules(max_tokens=20))
    model.passes.clear()
    prompt = PROMPT + first.token_ids + [6, 7, 8]
    prefilled = session.prefill(prompt)
    assert prefilled.cached == len(PROMPT) + 20 - 1
    assert sum(model.passes) == len(prompt) - 1 - prefilled.cached == 3
    assert list(model.cached) == prompt[:-1]


def test_an_edited_prompt_keeps_the_common_part():
    model = ScriptedModel(VOCABULARY)
    _, _, session = generate(model, NgramDrafter(), SAMPLINGS["greedy"], StopRules(max_tokens=20))
    edited = [*PROMPT[:5], 30, 31, 4]
    assert session.prefill(edited).cached == 5
    assert list(model.cached) == edited[:-1]


def test_a_context_that_cannot_trim_decodes_plainly_and_starts_over():
    model = ScriptedModel(VOCABULARY, can_trim=False)
    plain, _, _ = generate(ScriptedModel(VOCABULARY), NoDrafter(), SAMPLINGS["T=1"], StopRules(max_tokens=40))
    reply, steps, session = generate(model, NgramDrafter(), SAMPLINGS["T=1"], StopRules(max_tokens=40))
    assert reply.token_ids == plain.token_ids
    assert all(step.drafted == 0 for step in steps)
    assert session.prefill([1, 2, 3, 4]).cached == 0
    assert model.cached == (1, 2, 3)


def test_cancelling_ends_within_one_step_and_keeps_the_text():
    model = ScriptedModel(VOCABULARY)
    asked = itertools.count()
    rules = StopRules(cancelled=lambda: next(asked) >= 5)
    reply, steps, session = generate(model, NgramDrafter(), SAMPLINGS["T=1"], rules)
    assert reply.finish_reason == "cancelled"
    assert len(steps) == 5
    assert len(reply.token_ids) >= 5
    assert session.prefill([*session.tokens, 4]).cached == len(session.tokens) - 2


def test_cancelling_a_prefill_keeps_what_was_decoded():
    model = ScriptedModel(VOCABULARY, max_batch=32)
    session = Session(model, model, drafter=NoDrafter(), controller=Off())
    prompt = [4 + number % 20 for number in range(300)]
    asked = itertools.count()
    session.prefill(prompt, cancelled=lambda: next(asked) >= 3)
    held = model.length
    assert 0 < held < 299
    assert session.prefill(prompt).cached == held


def test_a_prompt_longer_than_the_context_is_refused():
    model = ScriptedModel(VOCABULARY, capacity=8)
    session = Session(model, model, drafter=NoDrafter(), controller=Off())
    with pytest.raises(PromptTooLongError, match="8 tokens and the context holds 8"):
        session.prefill(PROMPT)


def test_an_empty_prompt_is_refused():
    model = ScriptedModel(VOCABULARY)
    session = Session(model, model, drafter=NoDrafter(), controller=Off())
    with pytest.raises(UsageError, match="no tokens"):
        session.prefill([])


def test_a_failed_pass_leaves_a_session_that_works():
    model = ScriptedModel(VOCABULARY)
    plain, _, _ = generate(
        ScriptedModel(VOCABULARY), NoDrafter(), SAMPLINGS["greedy"], StopRules(max_tokens=9)
    )
    session = Session(model, model, drafter=NgramDrafter(), controller=FixedLength(8))
    session.prefill(PROMPT)
    model.max_batch = 0
    model.capacity = 9
    with pytest.raises(EngineError):
        list(session.reply(Sampler(SAMPLINGS["greedy"]), StopRules(max_tokens=9)))
    model.max_batch, model.capacity = 64, 4096
    assert session.prefill(PROMPT).cached == 0
    reply = Reply(ReplyText(()))
    list(session.reply(Sampler(SAMPLINGS["greedy"]), StopRules(max_tokens=9), reply))
    assert reply.token_ids == plain.token_ids


def test_counters_add_up():
    model = ScriptedModel(VOCABULARY)
    plain, _, _ = generate(model, NoDrafter(), SAMPLINGS["greedy"], StopRules(max_tokens=60))
    drafter = AdversarialDrafter(PROMPT + plain.token_ids, VOCABULARY, right=3)
    _, steps, _ = generate(ScriptedModel(VOCABULARY), drafter, SAMPLINGS["greedy"], StopRules(max_tokens=60))
    tally = Tally(steps)
    assert tally.emitted == 60
    assert tally.acceptance_length == pytest.approx(60 / len(steps))
    assert tally.acceptance_at()[:4] == [1.0, 1.0, 1.0, 0.0]
    assert tally.conditional_acceptance == pytest.approx(0.75, abs=0.02)
    assert steps[-1].time_ns == pytest.approx(sum(step.total_ns for step in steps), rel=1e-9)
    assert [step.index for step in steps] == list(range(len(steps)))


def test_a_transcript_is_followed_whatever_the_model_would_have_said():
    """The benchmarks' verifier: outcome forced, so drafters are judged on one and the same text."""
    transcript = [7, 7, 9, 30, 4, 11, 7, 7, 9, 30, 4, 12, 5, 5, 8, 19]
    sequence = PROMPT + transcript
    accepted = {}
    for drafter in (NoDrafter(), OracleDrafter(sequence), AdversarialDrafter(sequence, VOCABULARY, right=2)):
        model = ScriptedModel(VOCABULARY)
        session = Session(
            model, model, drafter=drafter, controller=FixedLength(4), verifier=TranscriptVerifier(sequence)
        )
        session.prefill(PROMPT)
        rules = StopRules(max_tokens=len(transcript), ignore_eos=True)
        steps = [emission.stats for emission in session.reply(Sampler(SAMPLINGS["T=1"]), rules)]
        assert session.tokens == sequence
        accepted[drafter.name] = [step.accepted for step in steps]
    assert accepted["none"] == [0] * len(transcript)
    # Sixteen tokens, four accepted and one of the target's own a step; the last step has room for none.
    assert accepted["oracle"] == [4, 4, 4, 0]
    assert set(accepted["adversarial"][:-1]) == {2}
