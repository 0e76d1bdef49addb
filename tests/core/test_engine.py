"""The engine and its process on the real model: two turns, cancel, toggle, death, bad input."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from localspec.client import EngineClient
from localspec.engine import Engine
from localspec.errors import EngineDiedError, PromptTooLongError, UsageError
from localspec.messages import (
    Cancel,
    EngineExited,
    Event,
    Failed,
    Finished,
    Generate,
    Hello,
    Load,
    Loaded,
    Note,
    PrefillProgress,
    SetDrafter,
    SetSpeculation,
    SpeculationChanged,
    Step,
)
from localspec.types import ChatMessage, DraftOptions, EngineOptions, SamplingParams

pytestmark = pytest.mark.model

GREEDY = SamplingParams(temperature=0)
COPY = (
    "Copy the following text exactly, twice.\n\nThe scheduler keeps a queue of waiting requests and gives "
    "each "
    "one a token budget every step. When the budget runs out, the remaining requests wait for the next step."
)


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Iterator[Engine]:
    engine = Engine(smollm2_path, "smollm2", EngineOptions(context=1024, threads=1))
    yield engine
    engine.close()


@pytest.fixture
def client(tmp_path: Path) -> Iterator[EngineClient]:
    client = EngineClient(log_path=tmp_path / "engine.log")
    client.start()
    yield client
    client.close()


def until(client: EngineClient, kind: type[Event], seconds: float = 180) -> list[Event]:
    """Events up to the first one of `kind`; fails on silence."""
    seen: list[Event] = []
    for event in client.events(timeout=seconds):
        seen.append(event)
        if isinstance(event, kind):
            return seen
    raise AssertionError(f"no {kind.__name__} among {[type(event).__name__ for event in seen]}")


def test_a_second_turn_prefills_only_what_is_new(engine: Engine):
    turns = [user("Name three colours.")]
    first = engine.generate(Generate(1, tuple(turns), sampling=GREEDY, max_tokens=40)).reply
    turns += [ChatMessage("assistant", first.text), user("And three fruits?")]
    events: list[Event] = []
    second = engine.generate(Generate(2, tuple(turns), sampling=GREEDY, max_tokens=10), events.append).reply
    held = first.timings.prompt_tokens + first.timings.generated_tokens - 1
    assert second.timings.cached_tokens >= held - 1
    assert second.timings.prompt_tokens - second.timings.cached_tokens < 25
    progress = [event for event in events if isinstance(event, PrefillProgress)]
    assert progress[0].cached == second.timings.cached_tokens
    assert progress[-1].done == second.timings.prompt_tokens - 1


def test_the_reason_of_the_draft_length_comes_with_the_reply(engine: Engine):
    engine.set_drafter(DraftOptions("ngram", policy="cost"))
    events: list[Event] = []
    engine.generate(Generate(4, (user(COPY),), sampling=GREEDY, max_tokens=60), events.append)
    told = [event.reason for event in events if isinstance(event, SpeculationChanged)]
    assert told[-1] == engine.speculation.reason
    assert "break-even" in told[-1]
    assert all(one != other for one, other in pairwise(told))
    # Steps are many, and words that change with each of them help nobody.
    assert len(told) < sum(isinstance(event, Step) for event in events)


def test_speculation_accepts_on_a_copy_and_counts_agree(engine: Engine):
    engine.set_drafter(DraftOptions("ngram", policy="fixed"))
    events: list[Event] = []
    reply = engine.generate(Generate(3, (user(COPY),), sampling=GREEDY, max_tokens=60), events.append).reply
    steps = [event for event in events if isinstance(event, Step)]
    assert "".join(step.text for step in steps) == reply.text
    assert [token.id for step in steps for token in step.tokens] == list(reply.token_ids)
    assert reply.speculation.accepted_tokens > 10
    assert reply.speculation.steps == len(steps) < len(reply.token_ids)
    assert reply.timings.tokens_per_second is not None


def test_a_seed_gives_the_same_reply_twice_and_another_seed_another(engine: Engine):
    def said(seed: int) -> tuple[int, ...]:
        sampling = SamplingParams(temperature=1.0, seed=seed)
        return engine.generate(Generate(4, (user("Tell a story."),), None, sampling, 30)).reply.token_ids

    engine.set_speculation(False)
    first = said(1)
    assert said(1) == first
    assert said(2) != first


def test_ignored_eos_goes_on_to_max_tokens(engine: Engine):
    request = Generate(5, (user("Say only: yes"),), None, GREEDY, 120, ignore_eos=True)
    reply = engine.generate(request).reply
    assert reply.finish_reason == "length"
    assert len(reply.token_ids) == 120


def test_a_full_context_drops_the_oldest_turns_and_says_so(smollm2_path: Path):
    engine = Engine(smollm2_path, "smollm2", EngineOptions(context=256, threads=1))
    try:
        turns: list[ChatMessage] = []
        notes: list[str] = []

        def listen(event: Event) -> None:
            if isinstance(event, Note):
                notes.append(event.text)

        for number in range(6):
            turns.append(user(f"Message {number}: " + "one two three four five six seven " * 4))
            request = Generate(number, tuple(turns), None, GREEDY, 40, ignore_eos=True)
            finished = engine.generate(request, listen)
            assert finished.context_used <= 256
            turns.append(ChatMessage("assistant", finished.reply.text))
        assert notes
        assert "oldest" in notes[0]
        with pytest.raises(PromptTooLongError, match="256"):
            engine.generate(Generate(9, (user("word " * 400),), None, GREEDY, 5))
        # A reply that itself outgrows what is left goes on without older turns, then ends with the context.
        long_past = (user("Hi"), ChatMessage("assistant", "Hello. " * 40), user("Go on"))
        request = Generate(10, long_past, None, GREEDY, None, ignore_eos=True)
        steps: list[Step] = []
        finished = engine.generate(
            request, lambda event: steps.append(event) if isinstance(event, Step) else None
        )
        assert [step.stats.index for step in steps] == list(range(len(steps)))
        assert finished.reply.finish_reason == "context"
        assert len(finished.reply.token_ids) > 100
    finally:
        engine.close()


def test_a_prompt_that_was_cancelled_half_read_is_read_whole_the_next_time(engine: Engine):
    document = user(" ".join(f"Fox number {number} jumps." for number in range(60)))
    asked = itertools.count()
    request = Generate(11, (document,), None, GREEDY, 5)
    cut = engine.generate(request, cancelled=lambda: next(asked) > 1)
    assert cut.reply.finish_reason == "cancelled"
    assert cut.context_used < cut.reply.timings.prompt_tokens
    again = engine.generate(request)
    assert again.reply.timings.prompt_tokens == cut.reply.timings.prompt_tokens
    assert again.context_used == again.reply.timings.prompt_tokens + 5
    # The same after an empty reply, as the chat keeps it.
    other = user(document.content.replace("Fox", "Hare"))
    asked = itertools.count()
    cut = engine.generate(Generate(12, (other,), None, GREEDY, 5), cancelled=lambda: next(asked) > 1)
    assert cut.context_used < cut.reply.timings.prompt_tokens
    turns = (other, ChatMessage("assistant", ""), user("Well?"))
    more = engine.generate(Generate(13, turns, None, GREEDY, 1))
    assert more.reply.timings.prompt_tokens > cut.reply.timings.prompt_tokens


def test_a_template_that_writes_nothing_or_is_broken_is_said(smollm2_path: Path):
    options = EngineOptions(context=256, threads=1, chat_template="{# nothing #}")
    engine = Engine(smollm2_path, "smollm2", options)
    try:
        with pytest.raises(UsageError, match="no tokens"):
            engine.generate(Generate(1, (user("Hi"),), None, GREEDY, 5))
    finally:
        engine.close()
    with pytest.raises(UsageError, match="1 to 512"):
        Engine(smollm2_path, "smollm2", EngineOptions(threads=513))


def test_bad_options_are_refused(smollm2_path: Path, engine: Engine):
    with pytest.raises(UsageError, match="drafting method"):
        Engine(smollm2_path, "smollm2", EngineOptions(draft=DraftOptions("psychic")))
    with pytest.raises(UsageError, match="temperature"):
        engine.generate(Generate(1, (user("Hi"),), None, SamplingParams(temperature=-1)))


def test_a_process_loads_answers_toggles_and_cancels(client: EngineClient, smollm2_path: Path):
    options = EngineOptions(context=2048, threads=1)
    client.send(Load(str(smollm2_path), "smollm2", options))
    opening = until(client, Loaded)
    assert isinstance(opening[0], Hello)
    client.send(Generate(1, (user(COPY),), None, GREEDY, ignore_eos=True))
    until(client, Step)
    client.send(SetSpeculation(False))
    until(client, SpeculationChanged)
    seen = until(client, Step)
    time.sleep(0.3)
    client.send(SetDrafter(DraftOptions("ngram", 4)), SetDrafter(DraftOptions("nonsense")))
    seen += until(client, Failed)
    time.sleep(0.2)
    client.send(Cancel())
    sent = time.monotonic()
    seen += until(client, Finished)
    assert time.monotonic() - sent < 5.0, "the rest of the reply would take far longer"
    finished = seen[-1]
    assert isinstance(finished, Finished)
    assert finished.reply.finish_reason == "cancelled"
    budgets = {event.stats.budget for event in seen if isinstance(event, Step)}
    assert budgets >= {0, 4}
    failed = next(event for event in seen if isinstance(event, Failed))
    assert failed.error == "UsageError"


def test_commands_during_a_reply_keep_their_order(client: EngineClient, smollm2_path: Path):
    load = Load(str(smollm2_path), "smollm2", EngineOptions(context=1024, threads=1))
    long = (user("Tell a long story."),)
    client.send(load, Generate(1, long, None, GREEDY, ignore_eos=True))
    until(client, Step)
    # Both replies are cancelled; the second only after it has begun.
    client.send(Cancel(), Generate(2, long, None, GREEDY, ignore_eos=True), Cancel())
    for number in (1, 2):
        finished = until(client, Finished)[-1]
        assert isinstance(finished, Finished)
        assert (finished.id, finished.reply.finish_reason) == (number, "cancelled")


def test_an_unreadable_command_is_answered(client: EngineClient):
    process = client._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.write(b'[{"type":"dance"}]\n')
    process.stdin.flush()
    failed = until(client, Failed)[-1]
    assert isinstance(failed, Failed)
    assert "cannot read" in failed.message
    assert client.alive


def test_a_killed_process_is_reported_and_starts_again(client: EngineClient, smollm2_path: Path):
    load = Load(str(smollm2_path), "smollm2", EngineOptions(context=1024, threads=1))
    client.send(load, Generate(1, (user("Tell a long story."),), None, GREEDY, ignore_eos=True))
    until(client, Step)
    assert client.pid is not None
    os.kill(client.pid, signal.SIGKILL)
    exited = until(client, EngineExited)[-1]
    assert isinstance(exited, EngineExited)
    assert not exited.expected
    assert "SIGKILL" in exited.message
    with pytest.raises(EngineDiedError):
        client.send(Cancel())
    client.start()
    client.send(load, Generate(2, (user("Hello"),), None, GREEDY, 5))
    finished = until(client, Finished)[-1]
    assert isinstance(finished, Finished)
    assert finished.reply.token_ids


def test_a_missing_file_fails_the_load_and_not_the_process(client: EngineClient, tmp_path: Path):
    client.send(Load(str(tmp_path / "none.gguf"), "none", EngineOptions()))
    failed = until(client, Failed)[-1]
    assert isinstance(failed, Failed)
    assert failed.error == "NotFoundError"
    assert failed.id is None
    assert client.alive


def test_the_process_ends_when_its_client_is_gone(smollm2_path: Path, tmp_path: Path):
    client = EngineClient(log_path=tmp_path / "engine.log")
    client.start()
    client.send(Load(str(smollm2_path), "smollm2", EngineOptions(context=512, threads=1)))
    until(client, Loaded)
    process = client._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(timeout=60) == 0
    client.close()
