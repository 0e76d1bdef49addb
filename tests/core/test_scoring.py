"""A reply looked at again: what was drafted and not said, tokens spelled, and how likely each was."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from localspec.control import FixedLength
from localspec.drafters.base import Drafter
from localspec.drafters.none import NoDrafter
from localspec.errors import BadLogitsError, EngineError, UsageError
from localspec.logprobs import token_logprobs
from localspec.messages import (
    Command,
    Event,
    Generate,
    PrefillProgress,
    Score,
    Scored,
    Spell,
    Spelled,
    Spelling,
    Step,
)
from localspec.prompting import Prompt
from localspec.sampling import Sampler
from localspec.scoring import PIECE, reply_scores, spelled
from localspec.session import Emission, Session, StopRules
from localspec.testing import AdversarialDrafter, DecoyDrafter, OracleDrafter, ScriptedModel
from localspec.trees import refused_branch
from localspec.types import Draft, Rows, SamplingParams
from localspec.wire import decode_commands, decode_events, encode_commands, encode_events
from tests.cli.scripted_worker import STATS

VOCABULARY = 32
PROMPT = [5, 9, 12, 5, 9, 7, 20, 11]
REQUEST = Generate(1, prompt="a prompt")


class Known:
    """A `Prompting` whose prompts are given: the short one where a reply is said after it."""

    def __init__(self, prompt: list[int], short: list[int] | None = None) -> None:
        self._prompt, self._short = prompt, short or prompt

    def prompt(self, request: Generate, said: Sequence[int]) -> Prompt:
        return Prompt("", [*(self._short if said else self._prompt), *said])


def session(model: ScriptedModel, drafter: Drafter | None = None, leaves: int = 1) -> Session:
    controller = FixedLength(5, leaves=leaves)
    return Session(model, model, drafter=drafter or NoDrafter(), controller=controller)


def steps(drafter: Drafter, leaves: int = 1, count: int = 40) -> list[Emission]:
    made = session(ScriptedModel(VOCABULARY), drafter, leaves=leaves)
    made.prefill(PROMPT)
    return list(made.reply(Sampler(SamplingParams(temperature=1.0, seed=4)), StopRules(max_tokens=count)))


def said(emissions: list[Emission]) -> list[int]:
    return [token.id for one in emissions for token in one.tokens]


def scores_of(
    made: Session, prompt: list[int], request: Score, stop_after: int = 1000, short: list[int] | None = None
) -> list[Scored]:
    heard: list[Event] = []
    calls = iter(range(100_000))
    last = reply_scores(
        made, Known(prompt, short), request, heard.append, lambda: next(calls) >= stop_after
    )  # fmt: skip
    parts = [event for event in heard if isinstance(event, Scored)]
    assert {type(event) for event in heard} <= {Scored, PrefillProgress}
    assert not any(part.ended for part in parts)
    assert last.ended
    return [*parts, last]


# --- what the step tells


def test_refused_tokens_are_told_with_the_step_that_refused_them() -> None:
    truth = PROMPT + said(steps(NoDrafter()))
    told = steps(AdversarialDrafter(truth, VOCABULARY, right=2))
    assert said(told) == truth[len(PROMPT) :]
    for one in told:
        start = one.stats.position
        if one.stats.kind == "correction":
            assert len(one.refused) == one.stats.drafted - one.stats.accepted > 0
            first = start + one.stats.accepted
            wrong = [(token + 1) % VOCABULARY for token in truth[first:]]
            assert list(one.refused) == wrong[: len(one.refused)]
        else:
            assert one.refused == ()
    assert any(one.refused for one in told)
    assert not any(one.refused for one in steps(OracleDrafter(truth)))


def test_a_reply_that_ends_within_a_draft_refuses_nothing() -> None:
    truth = PROMPT + said(steps(NoDrafter()))
    stop = ScriptedModel(VOCABULARY).token_bytes(truth[len(PROMPT) + 2])
    made = session(ScriptedModel(VOCABULARY), AdversarialDrafter(truth, VOCABULARY, right=4))
    made.prefill(PROMPT)
    rules = StopRules(max_tokens=40, stop=(stop.decode(),))
    told = list(made.reply(Sampler(SamplingParams(temperature=1.0, seed=4)), rules))
    last = told[-1]
    assert last.stats.kind == "accepted"
    assert last.stats.accepted < last.stats.drafted
    assert last.refused == ()


def test_of_a_tree_the_likeliest_branch_is_told() -> None:
    #          0 -> 1 -> 3
    #     root 2
    #          4 -> 5, 6
    tree = Draft(
        tokens=(10, 11, 12, 13, 14, 15, 16),
        parents=(-1, 0, -1, 1, -1, 4, 4),
        confidence=(0.3, 0.2, 0.1, 0.1, 0.5, 0.1, 0.4),
    )
    assert refused_branch(tree, ()) == (4, 6)
    assert refused_branch(tree, (0,)) == (1, 3)
    assert refused_branch(tree, (0, 1, 3)) == ()
    plain = Draft(tree.tokens, tree.parents)
    assert refused_branch(plain, ()) == (0, 1, 3)
    assert refused_branch(plain, (4,)) == (5,)
    assert refused_branch(Draft.chain((1, 2, 3)), (0,)) == (1, 2)


def test_trees_tell_a_refused_branch_below_what_was_accepted() -> None:
    truth = PROMPT + said(steps(NoDrafter()))
    told = steps(DecoyDrafter(truth, VOCABULARY, 3, seed=5), leaves=3)
    assert said(told) == truth[len(PROMPT) :]
    for one in told:
        assert bool(one.refused) == (one.stats.kind == "correction")
        if one.refused:
            assert one.refused[0] != one.tokens[-1].id


def test_confidence_belongs_to_the_tokens_said_and_then_to_the_refused() -> None:
    class Sure(AdversarialDrafter):
        def propose(self, tokens: Sequence[int], budget: object) -> Draft:
            draft = super().propose(tokens, budget)
            falling = tuple(0.9999 ** (place + 1) / (place + 1) for place in range(len(draft)))
            return Draft.chain(draft.tokens, source="sure", confidence=falling)

    truth = PROMPT + said(steps(NoDrafter()))
    for one in steps(Sure(truth, VOCABULARY, right=2)):
        shown = one.stats.accepted + len(one.refused)
        assert one.confidence == tuple(round(0.9999 ** (i + 1) / (i + 1), 3) for i in range(shown))


# --- spelling


def test_tokens_are_spelled_by_themselves() -> None:
    found = spelled(ScriptedModel(VOCABULARY), [4, 0, 1])
    assert found == (Spelling("a"), Spelling("<end>", "control"), Spelling("E2", "bytes"))


def test_the_new_messages_cross_the_pipe() -> None:
    commands: list[Command] = [Score(3, REQUEST, (1, 2), (-1, 5)), Spell("model.gguf", (1, 2))]
    assert decode_commands(encode_commands(commands)) == commands
    row = np.arange(5, dtype=np.float32)
    events: list[Event] = [
        Step(1, "x", (), STATS, (3, 4), (0.5, 0.25)),
        Scored(3, 1, (token_logprobs(row, 3, 2, str),), ended=True),
        Spelled("model.gguf", (1,), (Spelling("\x1b[2J"),)),
    ]
    assert decode_events(encode_events(events)) == events


# --- scores


def test_scores_are_those_of_the_rows_and_the_session_is_as_after_the_reply() -> None:
    model = ScriptedModel(VOCABULARY)
    made = session(model)
    made.prefill(PROMPT)
    sampler = Sampler(SamplingParams(temperature=1.0, seed=4))
    reply = [t.id for one in made.reply(sampler, StopRules(max_tokens=2 * PIECE + 9)) for t in one.tokens]
    tokens, cached = list(made.tokens), model.cached
    also = tuple((token + 1) % VOCABULARY if place % 3 == 0 else -1 for place, token in enumerate(reply))
    model.passes.clear()
    parts = scores_of(made, PROMPT, Score(2, REQUEST, tuple(reply), also, alternatives=3))
    assert (made.tokens, model.cached) == (tokens, cached)
    assert model.passes == [PIECE, PIECE, 9]
    assert [part.start for part in parts] == [0, PIECE, 2 * PIECE]
    assert not any(part.shortened for part in parts)
    scores = [score for part in parts for score in part.scores]
    for place, (token, other, score) in enumerate(zip(reply, also, scores, strict=True)):
        row = model.row(PROMPT + reply[:place])
        wanted = token_logprobs(row, token, 3, model.token_text)
        assert (score.text, score.logprob, score.top[:3]) == (wanted.text, wanted.logprob, wanted.top)
        likely = {one.id for one in wanted.top}
        if other >= 0 and other not in likely:
            assert score.top[3].id == other
            assert score.top[3].logprob == pytest.approx(
                token_logprobs(row, other, 0, model.token_text).logprob, abs=1e-5
            )
        else:
            assert len(score.top) == 3


def test_an_earlier_reply_is_read_anew_and_the_chat_after_it_too() -> None:
    model = ScriptedModel(VOCABULARY)
    made = session(model)
    reply = [6, 7, 8, 9]
    made.prefill([*PROMPT, *reply, 13, 14, 15])
    (part,) = scores_of(made, PROMPT, Score(2, REQUEST, tuple(reply)))
    assert len(part.scores) == 4
    assert made.tokens == [*PROMPT, *reply]
    found = made.prefill([*PROMPT, *reply, 13, 14, 15])
    assert found.cached == len(PROMPT) + 3


def test_a_model_that_cannot_go_back_reads_all_of_it_anew() -> None:
    model = ScriptedModel(VOCABULARY, can_trim=False)
    made = session(model)
    made.prefill([*PROMPT, 6, 7, 8])
    (part,) = scores_of(made, PROMPT, Score(2, REQUEST, (6, 7, 8)))
    assert part.scores[0].logprob == token_logprobs(model.row(PROMPT), 6, 0, str).logprob
    assert model.cached == (*PROMPT, 6, 7)


@pytest.mark.parametrize("asked", range(4))
def test_cancelling_keeps_what_was_read(asked: int) -> None:
    model = ScriptedModel(VOCABULARY)
    made = session(model)
    reply = tuple(4 + place % 20 for place in range(3 * PIECE))
    parts = scores_of(made, PROMPT, Score(2, REQUEST, reply), stop_after=asked)
    scores = sum(len(part.scores) for part in parts)
    assert scores < len(reply)
    assert scores % PIECE == 0
    assert len(model.cached) == max(len(made.tokens) - 1, 0)
    wanted = [*PROMPT, *reply[:scores]]
    assert made.tokens == wanted[: len(made.tokens)]


def test_a_reply_that_outlived_its_prompt_is_scored_after_the_shorter_one() -> None:
    model = ScriptedModel(VOCABULARY, capacity=20)
    made = session(model)
    reply = tuple(range(4, 20))
    parts = scores_of(made, PROMPT, Score(2, REQUEST, reply), short=PROMPT[-4:])
    assert all(part.shortened for part in parts)
    assert parts[0].scores[0].logprob == token_logprobs(model.row(PROMPT[-4:]), 4, 0, str).logprob
    assert sum(len(part.scores) for part in parts) == len(reply)


def test_an_empty_reply_has_no_scores() -> None:
    (part,) = scores_of(session(ScriptedModel(VOCABULARY)), PROMPT, Score(2, REQUEST, ()))
    assert part.scores == ()


def test_bad_input() -> None:
    with pytest.raises(UsageError, match="between 0 and 20"):
        scores_of(session(ScriptedModel(VOCABULARY)), PROMPT, Score(2, REQUEST, (4,), alternatives=21))


class Broken(ScriptedModel):
    """Its rows are not numbers, or rule tokens out, or there are none."""

    def __init__(self, value: float) -> None:
        super().__init__(VOCABULARY)
        self._value = value

    def decode(self, tokens: Sequence[int], outputs: str) -> Rows:
        rows = super().decode(tokens, outputs)
        if outputs == "all" and math.isinf(self._value) and self._value > 0:
            raise EngineError("The pass failed.")
        if outputs == "all":
            rows[:, 5:] = self._value
        return rows


def test_a_failed_pass_or_bad_numbers_clear_the_cache() -> None:
    for value, error in ((math.nan, BadLogitsError), (math.inf, EngineError)):
        model = Broken(value)
        made = session(model)
        with pytest.raises(error):
            scores_of(made, PROMPT, Score(2, REQUEST, (4, 5)))
        assert (made.tokens, model.cached) == ([], ())


def test_what_is_ruled_out_is_no_alternative() -> None:
    (part,) = scores_of(session(Broken(-math.inf)), PROMPT, Score(2, REQUEST, (4, 9), (6, 6), 10))
    assert [len(score.top) for score in part.scores] == [5, 5]
    assert decode_events(encode_events([part])) == [part]
