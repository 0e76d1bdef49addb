"""The models screen: what it lists, and fetching, removing and choosing there."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, OptionList

from localspec.messages import Generate, Load
from localspec.models import registry, store
from tests.models.conftest import gguf_bytes, hub
from tests.models.hub_server import Hub
from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine
from tests.tui.shelves import MACHINE, REGISTRY, Fetching, files_of, opened, put_in_place, shipped
from tui.model_rows import part_bytes, read_shelf
from tui.screens.models import ModelsScreen
from tui.state import Phase

__all__ = ["hub"]  # a fixture


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model that answers; another of the user's own beside it, and a shipped registry with a family."""
    shipped(tmp_path, monkeypatch)
    monkeypatch.setattr("tui.library.capacity", lambda: MACHINE)
    own = registry.user_file()
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("")
    for name in ("target", "little"):
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(gguf_bytes())
        with own.open("a") as file:
            file.write(f'[models.{name}]\nsource = "{path.as_posix()}"\n')
    return tmp_path / "target.gguf"


@pytest.fixture
def fetching(monkeypatch: pytest.MonkeyPatch) -> Fetching:
    tap = Fetching()
    monkeypatch.setattr("tui.downloads.pull", tap.pull)
    monkeypatch.setattr("localspec.model_files.pull", tap.pull)
    return tap


def line_of(screen: ModelsScreen, row: str) -> str:
    return str(screen.query_one(OptionList).get_option(row).prompt)


def listed(screen: ModelsScreen) -> list[str]:
    return list(screen.listed)


def said(screen: ModelsScreen) -> str:
    return " ".join(str(screen.query_one("#models-details").render()).split())


def keys(screen: ModelsScreen) -> str:
    return str(screen.query_one("#models-keys").render())


async def typed(app: Running, text: str) -> None:
    app.app.screen.query_one(Input).value = text
    await app.pilot.pause()


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
    assert found == ["target", "big-4b:Q8_0", "big-1b", "little", "hf:o/typed/typed-by-hand.gguf"]
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


# --- fetching ---------------------------------------------------------------------------------------


async def test_models_are_fetched_in_line_without_leaving(target: Path, fetching: Fetching) -> None:
    engine = ScriptedEngine(["One."])
    async with running(engine, files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await typed(app, "big-1b")
        await app.pilot.press("f8")
        await app.until(lambda: "41 %" in line_of(screen, "big-1b"))
        assert "Downloading 246.0 MB of 600.0 MB" in said(screen)
        assert "f8 stop" in keys(screen)
        await typed(app, "single")
        await app.pilot.press("f8")
        await app.until(lambda: "waits" in line_of(screen, "single"))
        assert fetching.asked == ["big-1b"]
        # Back in the chat, it goes on and is told of.
        await app.pilot.press("escape")
        await app.until(lambda: "fetching big-1b 41 %, 1 more" in app.activity)
        await app.send("meanwhile")
        await app.until(lambda: "One." in app.transcript.text and not app.chat.busy)
        fetching.deliver.add("big-1b")
        await app.until(lambda: "big-1b is here; f7 changes to it." in app.transcript.text)
        screen = await opened(app)
        assert "big-1b" in [row.id for row in screen._shelf.installed]
        await app.until(lambda: "41 %" in line_of(screen, "single"))
        fetching.deliver.add("single")
        await app.until(lambda: "single" in [row.id for row in screen._shelf.installed])
        assert app.chat.setup.name == "scripted"
    assert fetching.asked == ["big-1b", "single"]


async def test_fetching_is_stopped_and_goes_on_later(target: Path, fetching: Fetching) -> None:
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await typed(app, "single")
        await app.pilot.press("f8")
        await app.until(lambda: "41 %" in line_of(screen, "single"))
        await app.pilot.press("f8")
        assert "Stopped" in said(screen)
        entry = registry.find_entry("single")
        part = store.entry_dir(entry) / ".partial" / "single.gguf.abc.part"
        part.parent.mkdir(parents=True)
        part.write_bytes(bytes(1000))
        assert part_bytes(entry) == 1000
        await app.pilot.press("escape")
        screen = await opened(app)
        await typed(app, "single")
        assert "is here" in line_of(screen, "single")
        assert "f8 fetch on" in keys(screen)
        await app.pilot.press("f8")
        await app.until(lambda: fetching.asked == ["single", "single"])
        await app.pilot.press("f8", "delete")
        assert "free 1.0 kB" in said(screen)
        await app.pilot.press("delete")
        await app.until(lambda: not part.exists())


async def test_what_cannot_be_fetched_says_why_in_its_place(target: Path, fetching: Fetching) -> None:
    fetching.fail["single"] = "No connection to huggingface.co; check the network."
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await typed(app, "single")
        await app.pilot.press("f8")
        await app.until(lambda: "! not fetched" in line_of(screen, "single"))
        assert "No connection to huggingface.co" in said(screen)
        fetching.fail["single"] = "Not enough space in the cache folder."
        await app.pilot.press("f8")
        await app.until(lambda: "Not enough space" in said(screen))
        del fetching.fail["single"]
        fetching.deliver.add("single")
        await app.pilot.press("f8")
        await app.until(lambda: "single" in [row.id for row in screen._shelf.installed])
        # A failure that nobody looks at is told in the chat.
        await typed(app, "demo")
        await app.pilot.press("f8", "escape")
        await app.until(lambda: "fetching demo" in app.activity)
        fetching.fail["demo"] = "No connection to huggingface.co; check the network."
        await app.until(lambda: "No connection to huggingface.co" in app.transcript.text)


async def test_a_model_is_fetched_and_used_while_the_chat_goes_on(target: Path, fetching: Fetching) -> None:
    engine = ScriptedEngine(["One."])
    async with running(engine, files=files_of(target)) as app:
        await app.ready()
        await opened(app)
        await typed(app, "single")
        await app.pilot.press("enter")
        await app.until(lambda: "Downloading single" in app.activity)
        await app.send("meanwhile")
        await app.until(lambda: "One." in app.transcript.text and not app.chat.busy)
        # Here it is seen too, and stopped.
        screen = await opened(app)
        await typed(app, "single")
        await app.until(lambda: "41 %" in line_of(screen, "single"))
        await app.pilot.press("f8")
        await app.until(lambda: app.chat.setup.fetching is None)
        await app.pilot.press("escape")
        await app.until(lambda: "Downloading" not in app.activity)
        await opened(app)
        await typed(app, "single")
        await app.pilot.press("enter")
        await app.until(lambda: "Downloading single" in app.activity)
        await app.pilot.press("escape")
        await app.until(lambda: "Downloading" not in app.activity)
        await opened(app)
        await typed(app, "single")
        await app.pilot.press("enter")
        fetching.deliver.add("single")
        await app.until(lambda: app.chat.setup.name == "single")


async def test_a_family_is_fetched_in_the_size_that_suits(target: Path, fetching: Fetching) -> None:
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await app.until(lambda: "CPU" in line_of(screen, "family/big"))
        await app.pilot.press("down", "down")
        assert "f8 fetch it" in keys(screen)
        await app.pilot.press("f8")
        await app.until(lambda: "41 %" in line_of(screen, "big-4b"))
        assert "f8 stop" in keys(screen)
        fetching.deliver.add("big-4b")
        await app.until(lambda: "big-4b" in [row.id for row in screen._shelf.installed])
        await typed(app, "big")
        await app.pilot.press("down", "f8")
        assert "big-4b is here already" in said(screen)


async def test_what_there_is_no_room_for_is_asked_for_twice(target: Path, fetching: Fetching) -> None:
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await app.until(lambda: "CPU" in line_of(screen, "family/big"))
        await typed(app, "big-70b")
        for key in ("enter", "f8"):
            await app.pilot.press(key)
            assert app.app.screen is screen
            assert f"{key} again: fetch it all the same" in said(screen)
        await app.pilot.press("escape")
        assert app.app.screen is screen
        assert fetching.asked == []
        await app.pilot.press("f8", "f8")
        await app.until(lambda: fetching.asked == ["big-70b"])


async def test_a_real_download_is_stopped_and_continued(
    hub: Hub, target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = gguf_bytes(tensors=(("token_embd.weight", (64 * 1024, 8), 8),))
    hub.publish("o/single", {"single.gguf": whole})
    hub.holds["single.gguf"] = 200_000
    shipped(tmp_path, monkeypatch, REGISTRY.replace("2000000000", str(len(whole))))
    async with running(files=files_of(target)) as app:
        await app.ready()
        screen = await opened(app)
        await typed(app, "single")
        await app.pilot.press("f8")
        await app.until(lambda: "% ━" in line_of(screen, "single"), 20)
        await app.pilot.press("f8")
        await app.until(lambda: "is here" in line_of(screen, "single"), 20)
        hub.holds.clear()
        hub.released.set()
        await app.pilot.press("f8")
        await app.until(lambda: "single" in [row.id for row in screen._shelf.installed], 20)
        assert store.fetched(registry.find_entry("single"))
    assert any(wanted for wanted in hub.asked("single.gguf")), "it did not begin anew"


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
        await app.until(lambda: "models.toml, line 1" in app.transcript.text)
        # And one that was broken before.
        await app.pilot.press("f7")
        await app.until(lambda: isinstance(app.app.screen, ModelsScreen))
        again = app.app.screen
        assert isinstance(again, ModelsScreen)
        await app.until(lambda: "models.toml, line 1" in said(again))
