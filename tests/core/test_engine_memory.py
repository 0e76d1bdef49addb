"""What the engine remembers of its replies, and what it says when it cannot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from localspec.drafters import METHODS
from localspec.engine import Engine
from localspec.memory.log import TokenLog
from localspec.memory.memory import Memory
from localspec.memory.records import Record
from localspec.messages import Event, Generate, Note, SpeculationChanged, Step
from localspec.models.gguf import read_header
from localspec.testing import OracleDrafter
from localspec.types import ChatMessage, DraftOptions, EngineOptions, SamplingParams

pytestmark = pytest.mark.model

QUESTION = (ChatMessage("user", "Name three rivers."),)
GREEDY = SamplingParams(temperature=0)


def opened(path: Path, memory: Path | None, spec: str = "ngram") -> Engine:
    options = EngineOptions(
        context=256, threads=1, draft=DraftOptions(spec), memory=None if memory is None else str(memory)
    )
    return Engine(path, "smollm2", options)


def held(path: Path, memory: Path) -> list[Record]:
    fingerprint = read_header(path).fingerprint
    return TokenLog(memory / f"{fingerprint}.tokens", fingerprint).refresh().records


def test_replies_are_remembered_as_they_were_said(smollm2_path: Path, tmp_path: Path) -> None:
    engine = opened(smollm2_path, tmp_path)
    asked = Generate(1, QUESTION, sampling=GREEDY, max_tokens=60, conversation="chat-a")
    try:
        whole = engine.generate(asked).reply
        engine.generate(Generate(2, QUESTION, sampling=GREEDY, max_tokens=4))
        steps = 0

        def count(event: Event) -> None:
            nonlocal steps
            steps += isinstance(event, Step)

        cut = engine.generate(
            Generate(3, QUESTION, sampling=GREEDY, conversation="chat-b"), count, lambda: steps >= 3
        ).reply
        assert cut.finish_reason == "cancelled"
        engine.generate(Generate(4, QUESTION, conversation="chat-c"), cancelled=lambda: True)
        end = engine.session.vocabulary.eog_tokens
    finally:
        engine.close()
    found = [(one.conversation, one.tokens.tolist()) for one in held(smollm2_path, tmp_path)]
    said = [token for token in whole.token_ids if token not in end]
    assert found == [("chat-a", said), ("chat-b", list(cut.token_ids))]


def test_what_is_in_the_way_is_told_once(smollm2_path: Path, tmp_path: Path) -> None:
    (tmp_path / "memory").write_text("in the way")
    engine = opened(smollm2_path, tmp_path / "memory")
    events: list[Event] = []
    try:
        for number in range(2):
            asked = Generate(number, QUESTION, max_tokens=3, conversation="chat-a")
            assert len(engine.generate(asked, events.append).reply.token_ids) == 3
    finally:
        engine.close()
    notes = [event.text for event in events if isinstance(event, Note)]
    assert len(notes) == 1
    assert notes[0].endswith("The chat goes on without it.")


class Listener(OracleDrafter):
    """A drafter that looks at what it is given."""

    name = "listener"
    remembers = True

    def __init__(self, memory: Memory | None) -> None:
        super().__init__([])
        self.memory = memory
        self.seen: list[tuple[int, tuple[tuple[int, int], ...]]] = []

    def begin(self, tokens: Sequence[int]) -> None:
        super().begin(tokens)
        if self.memory is not None:
            self.seen.append((len(self.memory.index), self.memory.index.hidden))


@pytest.fixture
def listeners(monkeypatch: pytest.MonkeyPatch) -> list[Listener]:
    made: list[Listener] = []

    def make(options: DraftOptions, memory: Memory | None) -> Listener:
        made.append(Listener(memory))
        return made[-1]

    monkeypatch.setitem(METHODS, "listener", make)
    return made


def test_a_drafter_is_given_earlier_replies_without_those_that_it_sees_anyway(
    smollm2_path: Path, tmp_path: Path, listeners: list[Listener]
) -> None:
    engine = opened(smollm2_path, tmp_path)
    try:
        first = engine.generate(
            Generate(1, QUESTION, sampling=GREEDY, max_tokens=8, conversation="chat-a")
        ).reply
        assert isinstance(engine.set_drafter(DraftOptions("listener")), SpeculationChanged)
        turns = (*QUESTION, ChatMessage("assistant", first.text), ChatMessage("user", "More."))
        engine.generate(Generate(2, turns, sampling=GREEDY, max_tokens=2, conversation="chat-a"))
        engine.generate(Generate(3, QUESTION, sampling=GREEDY, max_tokens=2, conversation="chat-a"))
    finally:
        engine.close()
    # One is made only to see whether it remembers.
    listener = listeners[-1]
    # The first call tells it the sequence so far, before the memory is read.
    assert listener.seen[1:] == [(9, ((1, 9),)), (12, ())]
