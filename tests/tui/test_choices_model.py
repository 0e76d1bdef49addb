"""A running chat changes its drafter and its model: the real engine, a real draft model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from localspec.client import EngineClient
from localspec.messages import (
    Event,
    Failed,
    Finished,
    Generate,
    Load,
    Loaded,
    Note,
    SetDrafter,
    SpeculationChanged,
)
from localspec.runtime.quantize import requantize
from localspec.types import ChatMessage, DraftOptions, EngineOptions, SamplingParams

pytestmark = pytest.mark.model

E = TypeVar("E", bound=Event)


@pytest.fixture(scope="module")
def little(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in fewer bits: another file that drafts well for it."""
    path = tmp_path_factory.mktemp("little") / "little.Q2_K.gguf"
    requantize(smollm2_path, path, "Q2_K", threads=1)
    return path


class Talk:
    """An engine, and what it said since it was last asked."""

    def __init__(self, client: EngineClient) -> None:
        self.client = client
        self.heard: list[Event] = []
        self.turns: list[ChatMessage] = []

    def until(self, kind: type[E], like: Callable[[E], bool] = lambda event: True) -> E:
        """The first event of a kind; those before it are kept in `heard`."""
        self.heard = []
        for event in self.client.events(timeout=60):
            self.heard.append(event)
            if isinstance(event, kind) and like(event):
                return event
        raise AssertionError(f"no {kind.__name__} among {self.heard}")

    def ask(self, text: str, *, then: tuple[SetDrafter, ...] = ()) -> Finished:
        self.turns.append(ChatMessage("user", text))
        sampling = SamplingParams(temperature=0.8, seed=4)
        self.client.send(Generate(1, tuple(self.turns), sampling=sampling, max_tokens=24), *then)
        done = self.until(Finished)
        self.turns.append(ChatMessage("assistant", done.reply.text))
        return done


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    client = EngineClient(log_path=tmp_path / "engine.log")
    client.start()
    try:
        yield Talk(client)
    finally:
        client.close()


def test_drafter_and_model_change_under_a_conversation(talk: Talk, smollm2_path: Path, little: Path) -> None:
    def draft(spec: str, **files: Path) -> DraftOptions:
        return DraftOptions(
            spec, 4, policy="fixed:4", files={name: str(path) for name, path in files.items()}
        )

    options = EngineOptions(context=512, threads=1, draft=draft("none"), needs_draft=False)
    talk.client.send(Load(str(smollm2_path), "big", options))
    assert talk.until(Loaded).info.draft_models == ()
    plain = talk.ask("Say hello to the sea.")
    assert plain.reply.speculation.draft_tokens == 0

    # Another drafter, which begins with the conversation that there is.
    talk.client.send(SetDrafter(draft("suffix+small", small=little)))
    changed = talk.until(SpeculationChanged)
    assert (changed.draft, changed.enabled) == ("suffix+small", True)
    assert [(one.name, one.gpu_layers) for one in changed.draft_models] == [("small", 0)]
    assert changed.draft_models[0].backend == "CPU"
    del talk.turns[:]
    drafted = talk.ask("Say hello to the sea.")
    assert drafted.reply.token_ids == plain.reply.token_ids
    assert drafted.reply.speculation.accepted_tokens > 0

    # One that cannot be had: a sentence, and the drafter before goes on.
    for bad, error in ((smollm2_path, "IncompatibleError"), (little.with_name("no.gguf"), "NotFoundError")):
        talk.client.send(SetDrafter(draft("bad", bad=bad)))
        failed = talk.until(Failed)
        assert (failed.id, failed.error, failed.command, failed.unloaded) == (
            *(None, error, "set_drafter", False),
        )
        assert "\n" not in failed.message
    second = talk.ask("And to the hills.", then=(SetDrafter(draft("small", small=little)),))
    assert second.reply.timings.cached_tokens > 20
    assert second.reply.speculation.draft_tokens > 0
    changes = [event for event in talk.heard if isinstance(event, SpeculationChanged)]
    assert any(event.draft == "small" for event in changes)

    # A model that is no model: the one before is still there, with its drafter.
    broken = little.with_name("broken.gguf")
    broken.write_bytes(b"GGUF")
    talk.client.send(Load(str(broken), "broken", options))
    failed = talk.until(Failed)
    assert (failed.command, failed.unloaded) == ("load", False)
    assert talk.until(Loaded).info.name == "big"
    # One that native code refuses has to be unloaded for, and loaded again.
    hollow = little.with_name("hollow.gguf")
    hollow.write_bytes(broken_architecture(little))
    talk.client.send(Load(str(hollow), "hollow", options))
    assert talk.until(Failed).error == "ModelFileError"
    back = talk.until(Loaded).info
    assert (back.name, back.draft) == ("big", "small")

    # Another model answers the same conversation, whose tokens it reads anew.
    talk.client.send(Load(str(little), "little", options))
    assert talk.until(Loaded).info.name == "little"
    third = talk.ask("And to the moon.")
    assert third.reply.timings.cached_tokens == 0
    assert third.reply.timings.prompt_tokens > second.reply.timings.prompt_tokens
    assert not [event for event in talk.heard if isinstance(event, Failed | Note)]


def test_a_chat_without_the_draft_model_that_was_asked_for(
    talk: Talk, smollm2_path: Path, tmp_path: Path
) -> None:
    gone = DraftOptions("gone", files={"gone": str(tmp_path / "gone.gguf")})
    options = EngineOptions(context=256, threads=1, draft=gone, needs_draft=False)
    talk.client.send(Load(str(smollm2_path), "big", options))
    info = talk.until(Loaded).info
    assert (info.speculation, info.speculation_reason) == (False, "the draft model cannot be used")
    note = talk.until(Note).text
    assert "There is no file" in note
    assert note.endswith("The chat goes on without drafts.")
    assert talk.ask("Say hello.").reply.token_ids
    assert not [event for event in talk.heard if isinstance(event, Note)]
    talk.client.send(Load(str(smollm2_path), "big", EngineOptions(context=256, threads=1, draft=gone)))
    failed = talk.until(Failed)
    assert failed.error == "NotFoundError"


def broken_architecture(path: Path) -> bytes:
    """The file of a model whose architecture llama.cpp does not know."""
    return path.read_bytes().replace(b"llama", b"llamx")
