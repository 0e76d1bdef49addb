"""Replies on a scripted target: forced, free, synthetic, and where two of them part."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from localspec.bench.driver import Driver, Reply
from localspec.bench.records import Configuration
from localspec.control import FixedLength
from localspec.drafters import Needs
from localspec.drafters.ngram import NgramDrafter
from localspec.errors import PromptTooLongError, UsageError
from localspec.sampling import Sampler
from localspec.testing import ScriptedModel
from localspec.types import SamplingParams

PROMPT = (5, 6, 7, 8, 5, 6)


@pytest.fixture
def driver() -> Driver:
    model = ScriptedModel(order=2, spread=3.0)
    ticks = itertools.count(0, 1000)
    return Driver(model, model, clock=lambda: next(ticks))


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("length", [1, 3, 8])
def test_a_free_run_is_the_plain_run(driver: Driver, temperature: float, length: int) -> None:
    reply = Reply(PROMPT, tokens=200, temperature=temperature)
    plain = driver.plain(reply)
    free = driver.speculative(reply, Configuration(draft="ngram", length=length, temperature=temperature))
    assert len(plain.token_ids) == 200
    assert free.token_ids == plain.token_ids
    assert len(free.steps) < len(plain.steps)
    assert driver.divergence(reply, plain.token_ids, free.token_ids) is None


def test_a_forced_run_says_the_recording_whatever_the_model_would(driver: Driver) -> None:
    forced = tuple([9, 10, 11, 12] * 10)
    reply = Reply(PROMPT, tokens=100, forced=forced)
    plain = driver.plain(reply)
    drafts = driver.speculative(reply, Configuration(draft="ngram", length=4))
    assert plain.token_ids == drafts.token_ids == forced
    assert len(plain.steps) == 40
    assert len(drafts.steps) < 20


@pytest.mark.parametrize("forced", [None, (9, 10, 11, 12)])
def test_drafts_end_where_a_reply_ends(driver: Driver, forced: tuple[int, ...] | None) -> None:
    reply = Reply((5, 6, 0, 9, 9, 5, 6), tokens=4, forced=forced, stops=True)
    run = driver.speculative(reply, Configuration(draft="ngram", length=8))
    assert run.steps[0].budget == 3
    assert run.steps[0].drafted == 1


def test_the_prompt_is_read_once_and_kept(driver: Driver) -> None:
    reply = Reply(PROMPT, tokens=10)
    driver.prefill(PROMPT)
    driver.plain(reply)
    assert isinstance(driver.context, ScriptedModel)
    before = len(driver.context.passes)
    driver.plain(reply)
    assert driver.context.passes[before:] == [1] * 10


def test_the_same_prompt_is_not_read_again_and_another_one_is(driver: Driver) -> None:
    assert isinstance(driver.context, ScriptedModel)
    prompt = PROMPT * 30
    passes = driver.context.passes
    seconds = driver.prefill(prompt)
    # As wide as the context allows, whatever time it takes: 179 tokens, and the last one waits for the reply.
    assert passes == [64, 64, 51]
    driver.plain(Reply(prompt, tokens=2))
    assert driver.prefill(prompt) == seconds
    assert passes == [64, 64, 51, 1, 1]
    driver.prefill(PROMPT)
    driver.prefill(prompt)
    assert passes[5:] == [5, 64, 64, 51]


def test_a_run_counts_the_time_of_its_steps_and_the_bench_own_share(driver: Driver) -> None:
    run = driver.plain(Reply(PROMPT, tokens=10))
    assert run.seconds == pytest.approx(sum(step.total_ns for step in run.steps) * 1e-9)
    # The clock ticks a microsecond a reading, and the bench reads it twice a step.
    assert run.overhead_s == pytest.approx(10e-6)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_where_two_replies_part_and_by_how_little(driver: Driver, temperature: float) -> None:
    reply = Reply(PROMPT, tokens=30, temperature=temperature)
    plain = list(driver.plain(reply).token_ids)
    other = [*plain[:12], 20 if plain[12] != 20 else 21, *plain[13:]]
    found = driver.divergence(reply, plain, other)
    assert found is not None
    assert (found.index, found.plain, found.other) == (12, plain[12], other[12])
    row = ScriptedModel(order=2, spread=3.0).row([*PROMPT, *plain[:12]])
    sampler = Sampler(SamplingParams(temperature=temperature, seed=1))
    expected = sampler.margin(row, len(PROMPT) + 12, [], plain[12], other[12])
    assert found.margin == pytest.approx(expected)
    if temperature == 0:
        assert found.margin == pytest.approx(float(row[plain[12]] - row[other[12]]))
    # The driver goes on as if nothing had happened.
    assert list(driver.plain(reply).token_ids) == plain


def test_synthetic_rates_make_the_theorys_number_of_steps(driver: Driver) -> None:
    forced = tuple(4 + place % 20 for place in range(400))
    reply = Reply(PROMPT, tokens=400, forced=forced)
    run = driver.speculative(reply, Configuration(draft="ngram", length=4, rates=(1.0, 1.0, 0.0, 0.0)))
    assert run.token_ids == forced
    assert len(run.steps) == pytest.approx(400 / 3, abs=2)


POLICIES = (
    "cost",
    "ema",
    "ema:0,1,3",
    "throughput",
    "adaspec",
    "turbospec",
    "heuristic",
    "fixed:3",
    "fixed",
    "off",
    None,
)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_chooses_the_length_and_begins_anew_with_every_reply(policy: str | None) -> None:
    model = ScriptedModel(order=2, spread=3.0)
    ticks = itertools.count(0, 1000)
    driver = Driver(model, model, clock=lambda: next(ticks), pass_ms={1: 0.001, 9: 0.002, 64: 0.004})
    reply = Reply(PROMPT, tokens=200)
    plain = driver.plain(reply)
    first, second = (driver.speculative(reply, Configuration(draft="ngram", policy=policy)) for _ in range(2))
    assert first.token_ids == second.token_ids == plain.token_ids
    assert [step.drafted for step in first.steps] == [step.drafted for step in second.steps]
    drafted = {step.drafted for step in first.steps}
    assert (drafted == {0}) == (policy == "off")
    assert policy != "fixed:3" or max(drafted) == 3


def test_a_policy_needs_the_costs_of_passes(driver: Driver) -> None:
    with pytest.raises(UsageError, match="cost"):
        driver.speculative(Reply(PROMPT, tokens=10), Configuration(draft="ngram"))
    assert len(driver.speculative(Reply(PROMPT, tokens=10), Configuration(draft="none")).steps) == 10


class Reading(NgramDrafter):
    """Drafts from the text, and notes which tokens' states it was shown, as a head would."""

    needs = Needs.LAYERS

    def __init__(self, driver: Driver) -> None:
        super().__init__()
        self._driver = driver
        self.pieces: list[tuple[int, int]] = []
        self.seen: list[int] = []

    def observe(self, start: int, tokens: Sequence[int]) -> None:
        # The states are those of the target's newest pass.
        assert self._driver.context.length == start + len(tokens)
        self.pieces.append((start, len(tokens)))
        self.seen[start:] = tokens

    def holds(self, tokens: Sequence[int], advice: object = None) -> int:
        held = 0
        while held < min(len(self.seen), len(tokens)) and self.seen[held] == tokens[held]:
            held += 1
        return held


@pytest.mark.parametrize("narrow", [False, True])
def test_a_drafter_that_reads_states_sees_the_prompt_in_passes_as_wide_as_before(
    driver: Driver, narrow: bool
) -> None:
    assert isinstance(driver.context, ScriptedModel)
    prompt = PROMPT * 60
    if narrow:
        driver.context.max_batch = 256
        driver.read(prompt)
    else:
        driver.prefill(prompt)
    passes = list(driver.context.passes)
    reply = Reply(prompt, tokens=30)
    plain = driver.plain(reply)
    before = len(driver.context.passes)
    drafter = Reading(driver)
    run = driver.speculative(reply, Configuration(draft="reading", length=3), drafter)
    assert run.token_ids == plain.token_ids
    assert drafter.seen == list(prompt[:-1])
    assert driver.context.passes[before : before + len(passes)] == passes
    assert [count for _, count in drafter.pieces] == passes
    # What it took to look on is its own time, the target's reading is not: a tick a look at the clock.
    assert run.begin_s == pytest.approx((len(passes) + 1) * 1e-6)


def test_every_reader_sees_the_prompt_and_dice_change_nothing_of_it(driver: Driver) -> None:
    prompt, forced = PROMPT * 20, tuple([9, 10, 11, 12] * 5)
    reply = Reply(prompt, tokens=20, forced=forced)
    for _ in range(2):
        drafter = Reading(driver)
        configuration = Configuration(draft="reading", length=3, rates=(0.5, 0.2, 0.1))
        driver.speculative(reply, configuration, drafter)
        assert drafter.seen == list(prompt[:-1])


def test_a_prompt_that_does_not_fit_is_said_to_a_reader_too(driver: Driver) -> None:
    reply = Reply(PROMPT * 1000, tokens=5)
    with pytest.raises(PromptTooLongError):
        driver.run(reply, Reading(driver), FixedLength(3), driver.verifier(reply, None))
