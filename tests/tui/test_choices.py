"""Choosing who drafts and who answers, in a running chat."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from textual.widgets import OptionList

from localspec.errors import LocalspecError
from localspec.messages import Load, SetDrafter
from localspec.model_files import WantedFiles
from localspec.models import registry
from localspec.models.registry import Resolved
from tests.models.conftest import gguf_bytes
from tests.tui.helpers import OPTIONS, Running, running
from tests.tui.scripted import ScriptedEngine
from tui import choices
from tui.choices import Choice, draft_choices
from tui.screens.choice import ChoiceScreen
from tui.state import Phase

TABLE = "token_embd.weight"


def write(path: Path, rows: int = 64, **metadata: object) -> Path:
    values = {key.replace("__", "."): value for key, value in metadata.items()}
    path.write_bytes(gguf_bytes(values, tensors=((TABLE, (rows, 8), 8),)))
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """A model, and beside it ones that can draft for it and ones that cannot; the registry knows them all."""
    found = write(tmp_path / "target.gguf", 640)
    names = {
        "little": write(tmp_path / "little.gguf"),
        "foreign": write(tmp_path / "foreign.gguf", tokenizer__ggml__tokens=["x"] * 900),
        "padded": write(tmp_path / "padded.gguf", tokenizer__ggml__tokens=["a", "b", "é", "", "pad"]),
        "huge": write(tmp_path / "huge.gguf", 6400),
        "sentences": write(tmp_path / "sentences.gguf", general__architecture="bert"),
        "same": found,
        "away": tmp_path / "away.gguf",
    }
    (tmp_path / "broken.gguf").write_bytes(b"GGUF")
    names["broken"] = tmp_path / "broken.gguf"
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(
        "".join(f'[models.{name}]\nsource = "{path.as_posix()}"\n' for name, path in names.items())
    )
    return found


def files_of(path: Path) -> WantedFiles:
    return WantedFiles(Resolved("scripted", path, None), OPTIONS)


async def opened(app: Running, key: str) -> ChoiceScreen:
    await app.pilot.press(key)
    await app.until(lambda: isinstance(app.app.screen, ChoiceScreen))
    screen = app.app.screen
    assert isinstance(screen, ChoiceScreen)
    await app.until(lambda: screen.query_one(OptionList).option_count > 0)
    return screen


# --- what there is to choose ------------------------------------------------------------------------


def test_drafters_and_why_not(target: Path) -> None:
    found = {choice.id: choice for choice in draft_choices(target, "suffix+little")}
    usable = [choice.id for choice in found.values() if not choice.refusal]
    assert usable[:4] == ["none", "auto", "suffix", "ngram"]
    assert set(usable[4:]) == {
        *("little", "foreign", "padded"),
        *("suffix+little", "suffix+foreign", "suffix+padded"),
    }
    assert found["little"].facts.endswith("· same vocabulary")
    assert "much the same vocabulary" in found["padded"].facts
    assert "drafts go through text, which is slower" in found["foreign"].facts
    assert [choice.id for choice in found.values() if choice.current] == ["suffix+little"]
    assert found["same"].refusal.startswith("is the target itself")
    assert found["huge"].refusal.startswith("it is larger")
    assert "cannot write text" in found["sentences"].refusal
    assert "broken" in found
    assert all(found[name].refusal.endswith("; little would do") for name in ("same", "huge", "sentences"))
    assert "away" not in found


def test_what_was_given_on_the_command_line_is_there_too(target: Path) -> None:
    for spec in ("suffix:arctic", str(target.with_name("little.gguf")), "ngram+little", "suffix+ngram"):
        current = [choice.id for choice in draft_choices(target, spec) if choice.current]
        assert current == [spec]


def test_a_suggestion_without_any_usable_model(tmp_path: Path) -> None:
    target = write(tmp_path / "target.gguf")
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'[models.mine]\nsource = "{target.as_posix()}"\nfamily = "smollm2"\n')
    (refused,) = (choice for choice in draft_choices(target, "none") if choice.refusal)
    assert refused.refusal.endswith("a copy of few bits would do: `localspec models quantize`")
    with file.open("a") as more:
        more.write('[models.tiny]\nsource = "hf:o/r/t.gguf"\nsize = 10\nfamily = "smollm2"\n')
    (refused,) = (choice for choice in draft_choices(target, "none") if choice.refusal)
    assert refused.refusal.endswith("tiny would do, once it is fetched")


# --- drafters ---------------------------------------------------------------------------------------


async def test_choosing_a_drafter_while_a_reply_is_written(target: Path) -> None:
    async with running(files=files_of(target)) as app:
        await app.ready()
        await app.send("hello")
        await app.step("some ", drafted=3, accepted=2)
        screen = await opened(app, "f6")
        assert "Who drafts?" in str(screen.query_one("#choice-title").render())
        await app.pilot.press(*"suffix little", "enter")
        await app.until(lambda: app.engine.of(SetDrafter))
        (command,) = app.engine.of(SetDrafter)
        assert command.draft.spec == "suffix+little"
        assert command.draft.files == {"little": str(target.with_name("little.gguf"))}
        await app.until(lambda: app.chat.state.draft == "suffix+little")
        assert "on · suffix+little" in app.panel.text
        assert "little" in app.panel.text
        assert "CUDA" in app.panel.text
        assert "Drafter: suffix+little." in app.activity
        assert "speculation on · suffix+little" in app.title
        await app.step("text")
        app.engine.finish()
        await app.until(lambda: not app.chat.busy)
        assert app.chat.state.phase is Phase.READY
        assert app.chat.state.load is None
        # A new engine starts with what was chosen.
        app.engine.die()
        await app.until(lambda: app.chat.state.phase is Phase.DOWN)
        await app.send("again")
        await app.until(lambda: len(app.engine.of(Load)) == 2)
        assert app.engine.of(Load)[1].options.draft.spec == "suffix+little"


async def test_a_drafter_that_cannot_be_used_leaves_the_one_before(target: Path) -> None:
    engine = ScriptedEngine()
    engine.refuses["little"] = "little.gguf does not fit beside the target; choose a smaller one."
    async with running(engine, files=files_of(target)) as app:
        await app.ready()
        await app.pilot.press("f2")
        await app.until(lambda: app.chat.state.speculating is False)
        await opened(app, "f6")
        await app.pilot.press(*"little", "enter")
        await app.until(lambda: "does not fit beside the target" in app.transcript.text)
        assert app.chat.state.draft == "ngram"
        assert app.chat.setup.options.draft.spec == "ngram"
        assert app.chat.state.phase is Phase.READY
        assert app.chat.state.wanted is False
        engine.refuses.clear()
        await opened(app, "f6")
        await app.pilot.press(*"little", "enter")
        await app.until(lambda: app.chat.state.draft == "little")
        # Whoever chooses a drafter wants it to draft.
        assert app.chat.state.wanted is True


async def test_what_cannot_be_chosen_is_not_chosen(target: Path) -> None:
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app, "f6")
        await app.pilot.press(*"huge", "enter")
        await app.pilot.pause()
        assert app.app.screen is screen
        assert "nothing to choose" in str(screen.query_one("#choice-hint").render())
        shown = str(screen.query_one(OptionList).get_option_at_index(0).prompt)
        assert "it is larger" in " ".join(shown.split())
        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen is app.screen)
        assert app.engine.of(SetDrafter) == []


async def test_the_end_of_a_long_list_can_be_read(target: Path) -> None:
    async with running(files=files_of(target), size=(80, 20)) as app:
        await app.ready()
        rows = (await opened(app, "f6")).query_one(OptionList)
        last = max(place for place in range(rows.option_count) if not rows.options[place].disabled)
        while rows.highlighted != last:
            await app.pilot.press("down")
        await app.pilot.press("down")
        await app.pilot.pause()
        assert rows.highlighted == last
        assert rows.scroll_offset.y == rows.max_scroll_y
        await app.pilot.press("down")
        assert rows.highlighted == 0


async def test_looking_for_drafters_does_not_hold_up_the_chat(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proceed = threading.Event()

    def slow(*_: object) -> list[Choice]:
        proceed.wait(5)
        raise LocalspecError("The registry is broken; mend it.")

    monkeypatch.setattr(choices, "draft_choices", slow)
    async with running(files=files_of(target)) as app:
        await app.ready()
        await app.send("hello")
        await app.pilot.press("f6")
        await app.until(lambda: isinstance(app.app.screen, ChoiceScreen))
        hint = app.app.screen.query_one("#choice-hint")
        assert "looking" in str(hint.render())
        await app.step("still written")
        assert "still written" in app.transcript.text
        proceed.set()
        await app.until(lambda: "The registry is broken" in str(hint.render()))


async def test_a_drafter_chosen_while_the_model_is_loading(target: Path) -> None:
    engine = ScriptedEngine(load=False)
    async with running(engine, files=files_of(target)) as app:
        await app.until(lambda: app.chat.state.phase is Phase.LOADING)
        await opened(app, "f6")
        await app.pilot.press(*"suffix little", "enter")
        await app.until(lambda: app.chat.state.draft == "suffix+little")
        assert engine.of(SetDrafter) == []
        engine.loaded()
        await app.until(lambda: engine.of(SetDrafter))
        await app.until(lambda: app.chat.setup.options.draft.spec == "suffix+little")
