"""Replies on trial: made with a drafter of their own, they leave no trace in the chat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from localspec.control import Off
from localspec.drafters import METHODS
from localspec.engine import Engine
from localspec.errors import EngineError, UsageError
from localspec.messages import Event, Generate, Note, SpeculationChanged, Step, Weigh
from localspec.testing import OracleDrafter
from localspec.types import Budget, ChatMessage, Draft, DraftOptions, EngineOptions, SamplingParams, Trial

pytestmark = pytest.mark.model

QUESTION = (ChatMessage("user", "Tell me how a lighthouse works."),)
GREEDY = SamplingParams(temperature=0)
DRAWN = SamplingParams(temperature=0.8, seed=3)

PLAIN = Trial(DraftOptions("none"))
DRAFTED = Trial(DraftOptions("suffix", 6, policy="fixed"))


@pytest.fixture(scope="module")
def engine(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("memory")
    draft = DraftOptions("suffix", 6, policy="fixed")
    options = EngineOptions(context=512, threads=1, draft=draft, memory=str(folder))
    engine = Engine(smollm2_path, "smollm2", options)
    yield engine
    engine.close()


def asked(number: int, trial: Trial | None, sampling: SamplingParams = GREEDY, count: int = 40) -> Generate:
    return Generate(number, QUESTION, sampling=sampling, max_tokens=count, conversation="chat-a", trial=trial)


def sources(events: Sequence[Event]) -> set[str]:
    return {event.stats.source for event in events if isinstance(event, Step)} - {""}


def test_a_trial_is_not_remembered_nor_drafted_from_what_its_chat_said(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> None:
    said = engine.generate(asked(1, None)).reply
    memory = engine._memory
    assert memory is not None
    documents, size, known = list(memory._documents), memory.status.bytes, engine._prompting._known
    learnt = {key: (one.accepted, one.asked) for key, one in engine._drafting._estimates._bins.items()}
    controller, drafter = engine.session.controller, engine.session.drafter

    heard: list[Event] = []
    plain = engine.generate(asked(2, PLAIN), heard.append).reply
    assert plain.speculation.draft_tokens == 0
    drafted = engine.generate(asked(3, DRAFTED), heard.append).reply
    again = engine.generate(asked(4, DRAFTED), heard.append).reply
    assert plain.token_ids == drafted.token_ids == again.token_ids == said.token_ids
    # The second one had no help of the first.
    assert again.speculation.accepted_at == drafted.speculation.accepted_at
    assert again.speculation.steps == drafted.speculation.steps
    assert "suffix-memory" not in sources(heard)
    assert not [event for event in heard if isinstance(event, SpeculationChanged)]

    assert (memory._documents, memory.status.bytes, engine._prompting._known) == (documents, size, known)
    assert learnt == {
        key: (one.accepted, one.asked) for key, one in engine._drafting._estimates._bins.items()
    }
    assert (engine.session.controller, engine.session.drafter) == (controller, drafter)
    assert again.timings.cached_tokens == again.timings.prompt_tokens - 1

    # The chat itself, asked again, does draft from its memory.
    heard.clear()
    quick = engine.generate(asked(5, None), heard.append).reply
    assert quick.token_ids == said.token_ids
    assert "suffix-memory" in sources(heard)
    assert quick.speculation.steps < again.speculation.steps


def test_what_is_switched_during_a_trial_counts_after_it(engine: Engine) -> None:
    def switch() -> bool:
        engine.set_speculation(False)
        return False

    engine.generate(asked(1, DRAFTED, count=4), cancelled=switch)
    assert isinstance(engine.session.controller, Off)
    assert not engine.speculation.enabled
    engine.set_speculation(True)
    assert engine.generate(asked(2, None, count=12)).reply.speculation.draft_tokens > 0


def test_a_trial_that_cannot_be_had_leaves_all_as_it_was(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaking(OracleDrafter):
        def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
            raise ZeroDivisionError("division by zero")

    monkeypatch.setitem(METHODS, "breaking", lambda options, memory: Breaking([]))
    drafter = engine.session.drafter
    for trial, error in (
        (Trial(DraftOptions("nonsense")), UsageError),
        (Trial(DraftOptions("suffix"), "nonsense"), UsageError),
        (Trial(DraftOptions("suffix"), "adasd"), UsageError),
        (Trial(DraftOptions("breaking", 4, policy="fixed")), EngineError),
    ):
        with pytest.raises(error):
            engine.generate(asked(1, trial, count=6))
        assert engine.session.drafter is drafter
    assert engine.generate(asked(2, None, count=12)).reply.speculation.draft_tokens > 0


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "drawn"])
def test_two_tokens_are_weighed_where_replies_part(engine: Engine, sampling: SamplingParams) -> None:
    steps: list[Step] = []

    def keep(event: Event) -> None:
        if isinstance(event, Step):
            steps.append(event)

    request = Generate(1, QUESTION, sampling=sampling, max_tokens=12, logprobs=3, trial=PLAIN)
    reply = engine.generate(request, keep).reply
    place = 7
    scores = steps[place].tokens[0].logprobs
    assert scores is not None
    said = reply.token_ids[place]
    other = next(one for one in scores.top if one.id != said)
    found = engine.weigh(Weigh(2, request, reply.token_ids[:place], (said, other.id)))
    assert [one.text for one in found.scores] == [scores.text, other.text]
    # The same tokens, read in one pass instead of many.
    assert found.scores[0].logprob == pytest.approx(scores.logprob, abs=0.3)
    assert found.scores[1].logprob == pytest.approx(other.logprob, abs=0.3)
    assert found.margin is not None
    assert found.margin > 0
    if sampling.temperature == 0:
        gap = found.scores[0].logprob - found.scores[1].logprob
        assert found.margin == pytest.approx(gap, abs=1e-3)
    assert engine.session.context.length == len(engine.session.tokens) - 1
    stopped = engine.weigh(Weigh(3, Generate(1, (ChatMessage("user", "x" * 99),)), (), (1, 2)), lambda: True)
    assert (stopped.scores, stopped.margin) == ((), None)


def test_a_trial_says_nothing_in_the_chat(engine: Engine) -> None:
    long = tuple(
        ChatMessage("user" if number % 2 == 0 else "assistant", f"Message {number}: " + "the sea " * 60)
        for number in range(9)
    )
    heard: list[Event] = []
    engine.generate(Generate(1, long, sampling=GREEDY, max_tokens=2, trial=PLAIN), heard.append)
    assert not [event for event in heard if isinstance(event, Note)]
    engine.generate(Generate(2, long, sampling=GREEDY, max_tokens=2), heard.append)
    assert [event for event in heard if isinstance(event, Note)]
