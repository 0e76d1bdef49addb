"""Several sequences in one batch say what each would say alone, and plain and speculative time compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.bench.joint import JointStep, Member, ParallelSession, share_out, split
from localspec.bench.parallel import ForcedText, forced_member, measure_parallel
from localspec.control import Controller, FixedLength, Off
from localspec.drafters.base import Drafter
from localspec.drafters.ngram import NgramDrafter
from localspec.drafters.none import NoDrafter
from localspec.errors import EngineError, PromptTooLongError, UsageError
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.stats.metrics import Tally
from localspec.target import Outputs
from localspec.testing import (
    AdversarialDrafter,
    OracleDrafter,
    RandomDrafter,
    ScriptedModel,
    ScriptedSequences,
)
from localspec.types import DraftOptions, Rows, SamplingParams
from localspec.verify import CoupledVerifier

VOCABULARY = 32
PROMPTS = ([5, 9, 12, 5, 9, 7, 20, 11], [4, 4, 4], [17])
GREEDY = SamplingParams(temperature=0)
SAMPLINGS = {"greedy": GREEDY, "T=0.8": SamplingParams(temperature=0.8, repeat_penalty=1.1, seed=3)}
TOKENS = 60


def model(number: int, **options: int) -> ScriptedModel:
    """Every sequence has a model of its own, so that rows or caches that are mixed up are noticed."""
    return ScriptedModel(VOCABULARY, seed=number, eog_logit=3.0, **options)


def alone(
    number: int, drafter: Drafter, sampling: SamplingParams, length: int, tokens: int = TOKENS
) -> list[int]:
    target = model(number)
    session = Session(target, target, drafter=drafter, controller=FixedLength(length))
    session.prefill(PROMPTS[number])
    for _ in session.reply(Sampler(sampling), StopRules(max_tokens=tokens, ignore_eos=True)):
        pass
    return session.tokens


def drafter(method: str, sequence: list[int]) -> Drafter:
    makers: dict[str, Callable[[], Drafter]] = {
        "none": NoDrafter,
        "ngram": NgramDrafter,
        "oracle": lambda: OracleDrafter(sequence),
        "random": lambda: RandomDrafter(VOCABULARY, 5),
        "random trees": lambda: RandomDrafter(VOCABULARY, 6, branches=True),
        "adversarial": lambda: AdversarialDrafter(sequence, VOCABULARY),
        "adversarial from 3": lambda: AdversarialDrafter(sequence, VOCABULARY, right=3),
    }
    return makers[method]()


METHODS = ("none", "ngram", "oracle", "random", "random trees", "adversarial", "adversarial from 3")


def member(
    prompt: Sequence[int], drafter: Drafter, controller: Controller, sampling: SamplingParams = GREEDY
) -> Member:
    return Member(tuple(prompt), drafter, controller, CoupledVerifier(), Sampler(sampling))


def together(
    context: ScriptedSequences, members: Sequence[Member], tokens: int = TOKENS
) -> tuple[list[list[int]], list[JointStep]]:
    session = ParallelSession(context)
    session.begin(members)
    steps = []
    for step in session.run(tokens):
        steps.append(step)
        for number, said in enumerate(session.tokens):
            assert list(context.models[number].cached) == said[:-1]
    return session.tokens, steps


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
@pytest.mark.parametrize("method", METHODS)
def test_sequences_in_one_batch_say_what_each_says_alone(method, sampling):
    lengths = (8, 3, 12)
    plain = [alone(number, NoDrafter(), sampling, 0) for number in range(3)]
    apart = [
        alone(number, drafter(method, plain[number]), sampling, length)
        for number, length in enumerate(lengths)
    ]
    assert apart == plain
    context = ScriptedSequences([model(number) for number in range(3)])
    members = [
        member(PROMPTS[number], drafter(method, plain[number]), FixedLength(length), sampling)
        for number, length in enumerate(lengths)
    ]
    tokens, steps = together(context, members)
    assert tokens == plain
    tally = Tally(stats for step in steps for stats in step.stats.values())
    assert tally.emitted == 3 * TOKENS
    assert any(0 in said[:-1] for said in plain)  # an end token does not end a sequence
    if method == "oracle":
        # 9, 4 and 13 tokens a pass: each leaves the batch when it has its tokens.
        assert [sum(number in step.stats for step in steps) for number in range(3)] == [7, 15, 5]
    if method == "adversarial":
        assert tally.accepted == 0


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    temperature=st.sampled_from([0.0, 0.8]),
    lengths=st.tuples(*[st.integers(0, 14)] * 3),
    methods=st.tuples(*[st.sampled_from(METHODS)] * 3),
    max_rows=st.integers(3, 40),
)
def test_neither_neighbours_nor_narrow_passes_change_what_is_said(
    seed, temperature, lengths, methods, max_rows
):
    sampling = SamplingParams(temperature=temperature, seed=seed)
    plain = [alone(number, NoDrafter(), sampling, 0, 30) for number in range(3)]
    context = ScriptedSequences([model(number) for number in range(3)], max_rows=max_rows)
    members = [
        member(
            PROMPTS[number], drafter(methods[number], plain[number]), FixedLength(lengths[number]), sampling
        )
        for number in range(3)
    ]
    tokens, _ = together(context, members, 30)
    assert tokens == plain
    assert all(sum(widths.values()) <= max_rows for widths in context.passes)


def test_rows_of_a_pass_are_shared_out_fairly():
    assert share_out([8, 8, 8], 7) == [2, 2, 3]
    assert share_out([8, 1, 8], 13) == [6, 1, 6]
    assert share_out([3, 0, 2], 100) == [3, 0, 2]
    assert share_out([5, 5], 0) == [0, 0]
    assert share_out([], 4) == []
    plain = [alone(number, NoDrafter(), GREEDY, 0) for number in range(3)]
    context = ScriptedSequences([model(number) for number in range(3)], max_rows=12)
    members = [member(PROMPTS[n], OracleDrafter(plain[n]), FixedLength(8)) for n in range(3)]
    tokens, steps = together(context, members)
    assert tokens == plain
    assert {number: stats.budget for number, stats in steps[0].stats.items()} == {0: 3, 1: 3, 2: 3}
    assert {stats.accepted for stats in steps[0].stats.values()} == {3}


def test_a_context_that_cannot_trim_decodes_plainly():
    models = [model(number, can_trim=False) for number in range(2)]
    context = ScriptedSequences(models)
    members = [member(PROMPTS[n], NgramDrafter(), FixedLength(8)) for n in range(2)]
    tokens, steps = together(context, members, 20)
    assert tokens == [alone(number, NoDrafter(), GREEDY, 0, 20) for number in range(2)]
    assert all(stats.drafted == 0 for step in steps for stats in step.stats.values())
    # A new prompt cannot be reached by trimming: everything is read again.
    tokens, _ = together(context, [member(PROMPTS[n], NgramDrafter(), FixedLength(8)) for n in range(2)], 20)
    assert tokens == [alone(number, NoDrafter(), GREEDY, 0, 20) for number in range(2)]


class VirtualTime(ScriptedSequences):
    """A pass over n rows takes 10 + n, a look at the clock nothing."""

    now = 0

    def decode(self, pieces: Mapping[int, Sequence[int]], outputs: Outputs) -> Rows:
        self.now += 10 + sum(map(len, pieces.values()))
        return super().decode(pieces, outputs)

    def clock(self) -> int:
        return self.now


def test_shares_of_time_add_up_to_the_wall_time():
    assert split(10, [1, 1, 1]) == [3, 3, 4]
    assert split(7, [5, 2]) == [5, 2]
    context = VirtualTime([model(number) for number in range(3)])
    ticks = iter(range(0, 10**9, 7))
    session = ParallelSession(context, lambda: context.now + next(ticks))
    session.begin([member(PROMPTS[n], NgramDrafter(), FixedLength(5)) for n in range(3)])
    steps = []
    for step in session.run(40):
        steps.append(step)
        context.now += 3  # whoever looks at the step takes time, which belongs to the next one
    assert next(stats.time_ns for stats in steps[-1].stats.values()) == sum(step.total_ns for step in steps)
    for index, step in enumerate(steps):
        assert {stats.index for stats in step.stats.values()} == {index}
        assert len({stats.time_ns for stats in step.stats.values()}) == 1
        assert all(min(s.draft_ns, s.verify_ns, s.sample_ns, s.other_ns) >= 0 for s in step.stats.values())


def test_prompts_in_the_cache_are_not_read_again():
    context = ScriptedSequences([model(number) for number in range(3)])
    session = ParallelSession(context)

    def begin(prompts: Sequence[Sequence[int]]) -> int:
        context.passes.clear()
        session.begin([member(prompt, NgramDrafter(), FixedLength(4)) for prompt in prompts])
        return sum(sum(widths.values()) for widths in context.passes)

    assert begin(PROMPTS) == 7 + 2 + 0
    list(session.run(25))
    first = session.tokens
    assert begin(PROMPTS) == 0
    list(session.run(25))
    assert session.tokens == first
    assert begin(([5, 9, 12, 6, 6], [4, 4, 4])) == 1
    assert [context.length(number) for number in range(3)] == [4, 2, 0]
    # Another session on a cache with content of which it knows nothing.
    session = ParallelSession(context)
    assert begin(PROMPTS) == 9
    list(session.run(25))
    assert session.tokens == first


def test_what_has_no_room_is_a_sentence():
    context = ScriptedSequences([model(number) for number in range(3)], capacity=60)
    session = ParallelSession(context)
    members = [member(PROMPTS[n], NoDrafter(), Off()) for n in range(3)]
    with pytest.raises(UsageError, match="4 sequences cannot share a batch here; this context takes 1 to 3"):
        session.begin([*members, members[0]])
    with pytest.raises(UsageError, match="0 sequences"):
        session.begin([])
    with pytest.raises(UsageError, match="no tokens"):
        session.begin([members[0], member([], NoDrafter(), Off())])
    with pytest.raises(
        PromptTooLongError, match="2 prompts in one batch have 60 tokens and the context holds 60"
    ):
        session.begin([member([4] * 30, NoDrafter(), Off())] * 2)
    session.begin(members)
    with pytest.raises(UsageError, match="need 63 tokens of context and it holds 60; raise --context"):
        next(session.run(17))
    assert len(list(session.run(16))) == 16
    narrow = ParallelSession(ScriptedSequences([model(number) for number in range(3)], max_rows=2))
    with pytest.raises(UsageError, match="takes 1 to 2"):
        narrow.begin(members)


def test_a_failed_pass_leaves_a_session_that_works():
    context = ScriptedSequences([model(number) for number in range(3)])
    session = ParallelSession(context)
    session.begin([member(PROMPTS[n], NgramDrafter(), FixedLength(4)) for n in range(3)])
    stream = session.run(20)
    next(stream)
    context.models[1].capacity = 0
    with pytest.raises(EngineError):
        list(stream)
    assert [context.length(number) for number in range(3)] == [0, 0, 0]
    context.models[1].capacity = 4096
    session.begin([member(PROMPTS[n], NgramDrafter(), FixedLength(4)) for n in range(3)])
    list(session.run(20))
    assert session.tokens == [alone(number, NoDrafter(), GREEDY, 0, 20) for number in range(3)]


# --- measuring ---------------------------------------------------------------------------------------------


def text(number: int, tokens: int = 48) -> ForcedText:
    prompt = PROMPTS[number]
    return ForcedText(tuple(prompt), tuple(alone(number, NoDrafter(), GREEDY, 0, tokens)[len(prompt) :]))


def with_drafter(make: Callable[[ForcedText], Drafter], length: int, text: ForcedText) -> Member:
    forced = forced_member(text)
    return Member(text.prompt, make(text), FixedLength(length), forced.verifier, forced.sampler)


def oracle(text: ForcedText) -> Drafter:
    return OracleDrafter((*text.prompt, *text.reply))


def wrong(text: ForcedText) -> Drafter:
    return AdversarialDrafter((*text.prompt, *text.reply), VOCABULARY)


def test_plain_and_speculative_time_of_one_text():
    context = VirtualTime([model(0), model(1)])
    told: list[tuple[int, int]] = []
    results = measure_parallel(
        context,
        [text(0), text(1)],
        2,
        [partial(with_drafter, oracle, 3), partial(with_drafter, wrong, 3)],
        tokens=40,
        runs=2,
        progress=lambda done, rounds: told.append((done, rounds)),
        clock=context.clock,
    )
    assert told == [(1, 3), (2, 3), (3, 3)]
    right, refused = results
    # Plain: 12 a step of two tokens. With drafts one costs 18, for eight tokens where they are right.
    assert right.baseline.tokens == right.timing.tokens == 80
    assert right.baseline.runs == pytest.approx([480e-9] * 2)
    assert right.baseline.seconds == pytest.approx(480e-9)
    assert right.timing.seconds == pytest.approx(180e-9)
    assert right.timing.first_token_s == pytest.approx(18e-9)
    assert (right.counts.steps, right.counts.drafted, right.counts.accepted) == (20, 60, 60)
    assert right.counts.verify_s == pytest.approx(180e-9)
    assert set(right.lengths) == {3}
    assert refused.baseline.seconds == pytest.approx(480e-9)
    # The last two steps may draft one token and none: there is no room for more.
    assert refused.timing.seconds == pytest.approx((37 * 18 + 16 + 14 + 12) * 1e-9)
    assert refused.counts.accepted == 0


def test_time_counts_while_all_sequences_are_in_the_batch():
    def uneven(text: ForcedText) -> Drafter:
        return oracle(text) if text.prompt == tuple(PROMPTS[0]) else wrong(text)

    context = VirtualTime([model(0), model(1)])
    (result,) = measure_parallel(
        context,
        [text(0), text(1)],
        2,
        [partial(with_drafter, uneven, 3)],
        tokens=40,
        runs=1,
        clock=context.clock,
    )
    # Forty tokens of the first sequence and ten of the second one, in ten steps, each with six draft tokens.
    assert result.timing.tokens == result.baseline.tokens == 50
    assert result.timing.seconds == pytest.approx(180e-9)
    assert result.baseline.seconds == pytest.approx(50 * 6e-9)
    assert (result.counts.steps, result.counts.emitted, result.counts.accepted) == (20, 50, 30)


def test_runs_that_took_other_steps_are_compared_over_the_tokens_they_share():
    class Moody:
        """Right or wrong for a whole run, as a controller that follows the clock may be."""

        made = 0

    def moody(text: ForcedText) -> Drafter:
        Moody.made += 1
        return oracle(text) if Moody.made % 2 else wrong(text)

    context = VirtualTime([model(0)])
    (result,) = measure_parallel(
        context, [text(0)], 1, [partial(with_drafter, moody, 3)], tokens=40, runs=3, clock=context.clock
    )
    assert result.timing.tokens == 40
    slow, fast = (37 * 14 + 13 + 12 + 11) * 1e-9, 10 * 14e-9
    assert result.timing.runs == pytest.approx([slow, fast, slow])
    assert result.timing.seconds == pytest.approx(slow)


def test_fewer_prompts_are_used_in_turn_and_every_run_starts_cold():
    made: list[ForcedText] = []
    closed: list[Closing] = []

    class Closing(NgramDrafter):
        def close(self) -> None:
            closed.append(self)

    def make(text: ForcedText) -> Drafter:
        made.append(text)
        return Closing()

    context = ScriptedSequences([model(number % 2) for number in range(4)])
    texts = [text(0), text(1, 30)]
    (result,) = measure_parallel(context, texts, 4, [partial(with_drafter, make, 4)], tokens=99, runs=2)
    assert made == texts * 2 * 3
    assert len(closed) == len(made)
    assert result.baseline.tokens <= 4 * 30
    assert result.counts.emitted == result.timing.tokens
    # Both copies of a text took the same steps.
    assert result.lengths[0::4] == result.lengths[2::4]
    # Prompts are read once: the cache keeps them from run to run.
    assert sum(sum(widths.values()) for widths in context.passes if len(widths) == 1) == 2 * (7 + 2)


def test_a_batch_that_cannot_be_measured_says_why():
    context = ScriptedSequences([model(number) for number in range(2)], capacity=100)
    candidates = [partial(forced_member, draft=DraftOptions("ngram", 4))]
    measure = partial(measure_parallel, context, candidates=candidates, runs=1)
    with pytest.raises(UsageError, match="recorded replies"):
        measure([], 2, tokens=10)
    with pytest.raises(UsageError, match="recorded replies"):
        measure([ForcedText((1, 2), ())], 2, tokens=10)
    with pytest.raises(UsageError, match="3 sequences cannot share a batch"):
        measure([text(0)], 3, tokens=10)
    with pytest.raises(UsageError, match="0 sequences"):
        measure([text(0)], 0, tokens=10)
    with pytest.raises(UsageError, match="112 tokens of context and it holds 100"):
        measure([text(0)], 2, tokens=50)
    with pytest.raises(PromptTooLongError, match="raise --context"):
        measure([ForcedText((4,) * 60, (5, 6, 7))], 2, tokens=10)
    assert context.passes == []
    (result,) = measure([text(0)], 2, tokens=20)
    assert result.timing.tokens == 40
