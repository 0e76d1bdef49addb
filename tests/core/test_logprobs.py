"""Log-probabilities come from the rows that verified the tokens, whoever drafted them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from localspec.control import FixedLength, Off
from localspec.drafters.base import Drafter
from localspec.drafters.none import NoDrafter
from localspec.errors import UsageError
from localspec.logprobs import check_logprobs, token_logprobs
from localspec.messages import EmittedToken, Step
from localspec.sampling import Sampler
from localspec.session import Session, StopRules
from localspec.testing import AdversarialDrafter, DecoyDrafter, OracleDrafter, ScriptedModel
from localspec.types import SamplingParams
from localspec.wire import decode_events, encode_events
from tests.cli.scripted_worker import STATS

PROMPT = [5, 9, 12, 5, 9, 7, 20, 11]
VOCABULARY = 32
PARAMS = SamplingParams(temperature=1.3, top_k=9, repeat_penalty=1.2, seed=8)


def emitted(drafter: Drafter, length: int, count: int | None, leaves: int = 1) -> list[EmittedToken]:
    model = ScriptedModel(VOCABULARY)
    controller = FixedLength(length, leaves=leaves) if length else Off()
    session = Session(model, model, drafter=drafter, controller=controller)
    session.prefill(PROMPT)
    steps = session.reply(Sampler(PARAMS), StopRules(max_tokens=60), logprobs=count)
    return [token for step in steps for token in step.tokens]


def test_every_way_of_drafting_gives_the_very_numbers_of_the_rows():
    plain = emitted(NoDrafter(), 0, 5)
    said = PROMPT + [token.id for token in plain]
    model = ScriptedModel(VOCABULARY)
    for place, token in enumerate(plain):
        row = model.row(said[: len(PROMPT) + place])
        assert token.logprobs == token_logprobs(row, token.id, 5, model.token_text)
    for drafter, leaves in (
        (OracleDrafter(said), 1),
        (AdversarialDrafter(said, VOCABULARY, right=3), 1),
        (DecoyDrafter(said, VOCABULARY, 4, seed=3), 4),
    ):
        drafted = emitted(drafter, 12, 5, leaves)
        assert any(token.kind == "accepted" for token in drafted)
        assert [(token.id, token.logprobs) for token in drafted] == [
            (token.id, token.logprobs) for token in plain
        ]


def test_they_are_logarithms_of_probabilities_at_temperature_one():
    row = np.array([1.0, 3.0, -2.0, 3.0, 0.0], dtype=np.float32)
    total = sum(math.exp(value) for value in row)
    found = token_logprobs(row, 4, 3, str)
    assert found.text == "4"
    assert found.logprob == pytest.approx(math.log(1 / total))
    assert [(other.id, other.text) for other in found.top] == [(1, "1"), (3, "3"), (0, "0")]
    assert found.top[0].logprob == pytest.approx(math.log(math.exp(3) / total))
    everything = token_logprobs(row, 4, 20, str).top
    assert sum(math.exp(other.logprob) for other in everything) == pytest.approx(1.0)
    assert token_logprobs(row, 4, 0, str).top == ()


def test_logits_far_apart_overflow_nothing():
    found = token_logprobs(np.array([3e4, -3e4], dtype=np.float32), 1, 2, str)
    assert (found.logprob, found.top[0].logprob) == (-6e4, 0.0)


def test_without_being_asked_there_are_none():
    assert {token.logprobs for token in emitted(NoDrafter(), 0, None)} == {None}
    assert {token.logprobs.top for token in emitted(NoDrafter(), 0, 0) if token.logprobs} == {()}


def test_they_cross_the_pipe_whole():
    token = EmittedToken(3, "bonus", token_logprobs(np.arange(5, dtype=np.float32), 3, 2, str))
    step = Step(1, "x", (token, EmittedToken(4, "accepted")), STATS)
    assert decode_events(encode_events([step])) == [step]


@pytest.mark.parametrize("count", [-1, 21])
def test_how_many_is_bounded(count: int):
    with pytest.raises(UsageError, match="between 0 and 20"):
        check_logprobs(count)
