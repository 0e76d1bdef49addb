"""The models screen: what it lists, and fetching, removing and choosing there."""

from __future__ import annotations

import tomllib
from functools import partial
from pathlib import Path

import pytest
from textual.widgets import OptionList

from localspec.messages import Generate, Load
from localspec.models import registry
from localspec.settings import config_file
from tests.models.conftest import gguf_bytes
from tests.tui.helpers import running
from tests.tui.scripted import ScriptedEngine
from tests.tui.shelves import (
    MACHINE,
    Fetching,
    files_of,
    keys,
    line_of,
    listed,
    opened,
    put_in_place,
    said,
    typed,
)
from tui.commands import ActionProvider
from tui.keys import MODEL_ACTIONS
from tui.model_rows import read_shelf
from tui.screens.models import ModelsScreen
from tui.state import Phase

# --- what there is ----------------------------------------------------------------------------------


def test_installed_ones_come_first_and_families_fold(target: Path) -> None:
    shelf = read_shelf(target, MACHINE)
    assert [row.id for row in shelf.installed] == ["target", "little"]
    assert [row.current for row in shelf.installed] == [True, False]
    assert [row.id for row in shelf.available] == ["family/big", "demo", "single"]
    big = shelf.available[0]
    assert [row.id for row in big.sizes] == ["big-70b", "big-4b", "big-1b"]
    assert [row.runs_on for row in big.sizes] == ["too large", "CPU", "CPU"]
    assert big.entry is not None
    assert big.entry.name == "big-4b"
    assert shelf.free
    # Without knowing the machine, the list is there all the same.
    assert [row.runs_on for row in read_shelf(target, None).available[0].sizes] == ["", "", ""]


def test_what_was_fetched_has_left_the_family(target: Path) -> None:
    for name in ("big-4b:Q8_0", "big-1b", "hf:o/typed/typed-by-hand.gguf"):
        put_in_place(name)
    shelf = read_shelf(target, MACHINE)
    found = [row.id for row in shelf.installed]
    assert found[0] == "target"
    assert set(found) == {"target", "big-4b:Q8_0", "big-1b", "little", "hf:o/typed/typed-by-hand.gguf"}
    assert [row.id for row in shelf.available[0].sizes] == ["big-70b", "big-4b"]


def test_a_model_that_no_registry_knows_is_listed_while_it_answers(tmp_path: Path, target: Path) -> None:
    path = tmp_path / "elsewhere.gguf"
    path.write_bytes(gguf_bytes())
    first = read_shelf(path, MACHINE).installed[0]
    assert (first.name, first.current, first.entry) == ("elsewhere", True, None)


# --- the screen -------------------------------------------------------------------------------------


async def test_sizes_unfold_and_the_filter_narrows(target: Path) -> None:
    async with running(files=files_of(target), size=(80, 24)) as app:
        await app.ready()
        screen = await opened(app)
        await app.until(lambda: "CPU" in line_of(screen, "family/big"))
        assert listed(screen) == ["target", "little", "family/big", "demo", "single"]
        assert "3 sizes, 4B suits" in line_of(screen, "family/big")
        await app.pilot.press("down", "down", "right")
        assert listed(screen)[2:6] == ["family/big", "big-70b", "big-4b", "big-1b"]
        assert "too large" in line_of(screen, "big-70b")
        assert "~" in line_of(screen, "big-4b")
        await app.pilot.press("down")
        assert "does not fit" in said(screen)
        assert "MIT" in said(screen)
        assert "also Q8_0" not in said(screen)
        await app.pilot.press("down")
        assert "also Q8_0" in said(screen)
        assert "enter fetch and use" in keys(screen)
        await app.pilot.press("left")
        assert "big-4b" not in listed(screen)
        # The mark is on the family again, whose sizes the filter shows by itself.
        assert "→ sizes" in keys(screen)
        await typed(app, "big 4b")
        assert listed(screen) == ["family/big", "big-4b"]
        await typed(app, "nothing like it")
        assert listed(screen) == []
        assert "no model of that name" in said(screen)
        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen is app.screen)


async def test_a_source_or_a_quantization_can_be_typed(target: Path, fetching: Fetching) -> None:
    fetching.deliver.add("big-4b:Q8_0")
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await typed(app, "big-4b:q8_0")
        await app.until(lambda: len(listed(screen)) == 1)
        await typed(app, "hf:someone/some/model.gguf")
        assert len(listed(screen)) == 1
        assert "hf:someone" in line_of(screen, screen.listed[0])
        await typed(app, "hf:someone/../../model.gguf")
        assert listed(screen) == []
        await typed(app, "big-4b:Q8_0")
        await app.pilot.press("enter")
        await app.until(lambda: "From here on, big-4b:Q8_0 answers." in app.transcript.text)


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (120, 36), (200, 50)])
async def test_rows_are_one_line_of_every_window(target: Path, size: tuple[int, int]) -> None:
    async with running(files=files_of(target), size=size) as app:
        await app.ready()
        screen = await opened(app)
        await app.pilot.press("down", "down", "right")
        rows = screen.query_one(OptionList)
        assert rows.virtual_size.height == rows.option_count
        width = rows.scrollable_content_region.width
        assert {len(line_of(screen, row)) <= width for row in screen.listed} == {True}
        heads = str(screen.query_one("#models-columns").render())
        assert heads.index("runs on") == line_of(screen, "big-1b").index("CPU")


# --- choosing ---------------------------------------------------------------------------------------


async def test_another_model_goes_on_with_the_conversation(target: Path) -> None:
    engine = ScriptedEngine(["One.", "Two."])
    async with running(engine, files=files_of(target)) as app:
        await app.ready()
        await app.send("first")
        await app.until(lambda: "One." in app.transcript.text and not app.chat.busy)
        await opened(app)
        await app.pilot.press(*"little", "enter")
        await app.until(lambda: "From here on, little answers." in app.transcript.text)
        first, second = engine.of(Load)
        assert (second.path, second.name) == (str(target.with_name("little.gguf")), "little")
        assert second.options == first.options
        assert "little" in app.title
        assert app.prompt.placeholder == "Message little"
        await app.send("second")
        await app.until(lambda: "Two." in app.transcript.text and not app.chat.busy)
        asked = engine.of(Generate)[1]
        assert [message.content for message in asked.messages] == ["first", "One.", "second"]
        kept = app.store.messages(app.chat.conversation.id or 0)
        assert [message.stats["model"] for message in kept if message.stats] == ["scripted", "little"]


async def test_a_model_that_cannot_be_loaded_leaves_the_one_before(target: Path) -> None:
    engine = ScriptedEngine(["One."])
    engine.refuses[str(target.with_name("little.gguf"))] = "little.gguf needs 9 GiB; choose a smaller model."
    async with running(engine, files=files_of(target)) as app:
        await app.ready()
        await opened(app)
        await app.pilot.press(*"little", "enter")
        await app.until(lambda: "needs 9 GiB" in app.transcript.text and app.chat.ready)
        assert app.chat.setup.name == "scripted"
        assert app.chat.exit_code == 0
        await app.send("still there?")
        await app.until(lambda: "One." in app.transcript.text and not app.chat.busy)


async def test_an_engine_that_a_new_model_ends_starts_with_the_one_before(target: Path) -> None:
    engine = ScriptedEngine(load=False)
    async with running(engine, files=files_of(target)) as app:
        await app.until(lambda: app.chat.state.phase is Phase.LOADING)
        engine.loaded()
        await app.ready()
        await app.send("hello")
        await app.step("some text")
        await opened(app)
        await app.pilot.press(*"little", "enter")
        await app.until(lambda: app.chat.setup.switching)
        engine.die("The engine was ended by SIGABRT.")
        await app.until(lambda: "SIGABRT" in app.transcript.text)
        await app.send("again")
        await app.until(lambda: len(engine.of(Load)) == 3)
        assert engine.starts == 2
        assert [command.path for command in engine.of(Load)] == [
            *(str(target), str(target.with_name("little.gguf")), str(target)),
        ]


async def test_a_model_chosen_where_there_is_none(target: Path) -> None:
    engine = ScriptedEngine(load=False)
    async with running(engine, files=files_of(target)) as app:
        await app.until(lambda: app.chat.state.phase is Phase.LOADING)
        engine.fail("ModelFileError", "The file is truncated; fetch it again.")
        await app.until(lambda: "truncated" in app.transcript.text)
        await opened(app)
        await app.pilot.press(*"little", "enter")
        await app.until(lambda: len(engine.of(Load)) == 2)
        engine.loaded()
        await app.ready()
        assert app.chat.setup.name == "little"
        assert app.chat.exit_code == 0


def starts_with(screen: ModelsScreen, name: str) -> bool:
    return f"starts with {name} from now on" in said(screen)


async def test_any_model_can_be_the_one_to_start_with(target: Path) -> None:
    async with running(files=files_of(target), size=(80, 24)) as app:
        await app.ready()
        screen = await opened(app)
        for row, setting in (("little", "little"), ("single", "single"), ("big-4b:Q8_0", "big-4b:Q8_0")):
            await typed(app, row)
            await app.pilot.press("f9")
            await app.until(partial(starts_with, screen, row))
            assert tomllib.loads(config_file().read_text())["model"] == setting
        config_file().write_text("model = [broken\n")
        await app.pilot.press("f9")
        await app.until(lambda: "could not be changed" in said(screen))


async def test_palette_and_help_of_this_screen(target: Path) -> None:
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        offered = {str(hit.text) async for hit in ActionProvider(screen).discover()}
        assert {action.title for action in MODEL_ACTIONS} <= offered
        assert "Choose the drafter" not in offered
        for action in MODEL_ACTIONS:
            assert hasattr(screen, f"action_{action.name}")
            assert any(b.id == action.id for b in screen._bindings.key_to_bindings[action.key])


# --- removing, and what others do meanwhile ---------------------------------------------------------


async def test_removing_asks_and_tells_what_it_freed(target: Path) -> None:
    path = put_in_place("big-1b")
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await typed(app, "big-1b")
        await app.pilot.press("delete")
        assert "Remove big-1b and free" in said(screen)
        await app.pilot.press("escape")
        assert app.app.screen is screen
        assert "Remove" not in said(screen)
        await app.pilot.press("delete", "delete")
        await app.until(lambda: not path.exists())
        await app.until(lambda: [row.id for row in screen._shelf.installed] == ["target", "little"])
        assert "big-1b is gone" in said(screen)


async def test_what_is_used_or_not_ours_is_not_removed(target: Path) -> None:
    answering = put_in_place("big-1b")
    async with running(files=files_of(answering, "big-1b")) as app:
        await app.ready()
        screen = await opened(app)
        await typed(app, "big-1b")
        await app.pilot.press("delete", "delete")
        assert "in use" in said(screen)
        assert answering.is_file()
        await typed(app, "little")
        await app.pilot.press("delete", "delete")
        assert "localspec models rm little" in said(screen)
        assert target.with_name("little.gguf").is_file()


async def test_a_file_that_is_removed_behind_the_apps_back(target: Path) -> None:
    path = put_in_place("big-1b")
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await typed(app, "big-1b")
        path.unlink()
        await app.pilot.press("enter")
        await app.until(lambda: "is gone" in said(screen))
        assert app.app.screen is screen
        await app.until(lambda: [row.id for row in screen._shelf.installed] == ["target", "little"])


async def test_a_registry_that_breaks_while_the_screen_is_open(target: Path) -> None:
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        registry.user_file().write_text("[models.target\n")
        screen.read()
        await app.until(lambda: "models.toml, line 1" in said(screen))
        assert "little" in listed(screen)
        await app.pilot.press(*"little", "enter")
        await app.until(lambda: "models.toml, line 1" in " ".join(app.transcript.text.split()))
        # And one that was broken before.
        await app.pilot.press("f7")
        await app.until(lambda: isinstance(app.app.screen, ModelsScreen))
        again = app.app.screen
        assert isinstance(again, ModelsScreen)
        await app.until(lambda: "models.toml, line 1" in said(again))
