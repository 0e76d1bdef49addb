"""The A/B screen: where things stand, and that all can be reached."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import Input, OptionList, Static

from localspec.messages import Generate
from localspec.model_files import WantedFiles
from localspec.models import registry
from localspec.models.registry import Resolved
from tests.models.conftest import gguf_bytes
from tests.tui.helpers import OPTIONS, running
from tests.tui.scripted import ScriptedEngine
from tests.tui.test_compare import TEXT, Look, opened
from tui.commands import ActionProvider
from tui.keys import COMPARE_ACTIONS
from tui.screens.choice import ChoiceScreen
from tui.screens.compare import CompareScreen
from tui.screens.help import HelpScreen, help_sections
from tui.state import Phase
from tui.widgets.prompt import Prompt
from tui.widgets.transcript import Transcript


@pytest.mark.parametrize("size", [(60, 24), (80, 24), (120, 36)])
async def test_columns_stand_beside_each_other_where_there_is_room(size: tuple[int, int]) -> None:
    async with running(ScriptedEngine(["A first answer.", TEXT, TEXT]), size=size) as app:
        look = await opened(app)
        await app.pilot.press("enter")
        await look.ends()
        a, b = (look.screen.query_one(f"#side-{side}").region for side in "ab")
        assert (a.y == b.y) is (size[0] >= 80)
        assert (a.x == b.x) is (size[0] < 80)
        assert "tokens are identical" in look.rows("verdict")
        assert look.screen.query_one("#answer-b", Transcript).size.height >= 3


async def test_every_action_has_a_key_a_command_a_help_line_and_a_method() -> None:
    async with running() as app:
        await app.ready()
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        screen = app.app.screen
        provider = ActionProvider(screen)
        offered = {str(hit.text or hit.display) async for hit in provider.discover()}
        explained = {(key, title) for _, pairs in help_sections() for key, title in pairs}
        bound = {one.id: one for some in screen._bindings.key_to_bindings.values() for one in some}
        for action in COMPARE_ACTIONS:
            assert hasattr(screen, f"action_{action.name}"), action.id
            assert bound[action.id].key == action.key
            assert (action.shown, action.title) in explained
            assert action.title in offered
        # Nothing of the chat's, which is not on screen.
        assert "New chat" not in offered
        assert "Help" in offered
        await app.pilot.press("f1")
        await app.until(lambda: isinstance(app.app.screen, HelpScreen))
        assert str(app.app.screen.query(".heading").first().render()) == "A/B (f3)"


async def test_there_is_nothing_to_compare_without_a_model() -> None:
    async with running(ScriptedEngine(load=False)) as app:
        await app.until(lambda: app.chat.state.phase is Phase.LOADING)
        await app.pilot.press("f3")
        assert "There is no model yet" in app.activity
        assert app.app.screen is app.screen


async def test_resizing_and_colours_in_the_middle_of_a_comparison() -> None:
    engine = ScriptedEngine()
    async with running(engine) as app:
        await app.ready()
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        look = Look(app)
        look.screen.query_one("#question", Prompt).insert("Why?")
        await app.pilot.press("enter")
        engine.step("Because the lamp turns all night and ships count its flashes ")
        await app.until(lambda: "flashes" in look.answer("a"))
        for size in ((50, 20), (160, 45), (40, 10), (30, 6), (100, 30)):
            await app.pilot.resize_terminal(*size)
            app.app.theme = "nord" if app.app.theme.startswith("localspec") else "localspec-light"
            await app.pilot.pause()
        engine.step("from afar.")
        engine.finish()
        await app.until(lambda: len(engine.of(Generate)) == 2)
        engine.step("Because.")
        engine.finish()
        await look.ends()
        assert "count its flashes from afar." in " ".join(look.answer("a").split())
        assert "Because." in look.answer("b")
        assert "The texts part at token" in look.rows("verdict")


async def test_without_an_engine_there_is_nothing_to_start() -> None:
    async with running() as app:
        await app.ready()
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        look = Look(app)
        app.engine.die()
        await app.until(lambda: app.chat.state.phase is Phase.DOWN)
        look.screen.query_one("#question", Prompt).insert("Why?")
        await app.pilot.press("enter")
        assert "There is no engine" in str(look.screen.query_one("#question").border_subtitle)
        assert not app.engine.of(Generate)


async def test_a_side_is_put_together_from_its_parts(tmp_path: Path) -> None:
    model, guest = tmp_path / "model.gguf", tmp_path / "guest.gguf"
    model.write_bytes(gguf_bytes())
    guest.write_bytes(gguf_bytes())
    file = registry.user_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'[models.guest]\nsource = "{guest.as_posix()}"\n')
    files = WantedFiles(Resolved("scripted", model, None), OPTIONS)
    async with running(ScriptedEngine(["One."]), files=files) as app:
        look = await opened(app)

        async def choose(text: str) -> None:
            await app.until(lambda: isinstance(app.app.screen, ChoiceScreen))
            choices = app.app.screen.query_one(OptionList)
            await app.until(lambda: choices.option_count > 1)
            app.app.screen.query_one(Input).insert_text_at_cursor(text)
            await app.until(lambda: choices.option_count == 1)
            await app.pilot.press("enter")
            await app.pilot.pause()

        for part, wanted in (
            ("rule:", "rejection"),
            ("length:", "32"),
            ("drafter:", "earlier replies"),
            ("model:", "guest"),
        ):
            await app.pilot.press("f7")
            await choose(part)
            await choose(wanted)
            await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        await app.until(lambda: "B guest · suffix · length 32 · rejection" in look.rows("head-b"))
        assert look.comparison.contenders[0].draft.spec == "none"
        # esc leads back to the parts, and from there to the screen.
        await app.pilot.press("f6")
        await choose("rule:")
        titles = app.app.screen.query_one(OptionList)
        await app.until(lambda: titles.option_count > 4)
        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen.query_one(OptionList) is not titles)
        await app.pilot.press("escape")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))


async def test_help_has_each_key_once_and_nothing_of_the_chat() -> None:
    async with running() as app:
        await app.ready()
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        await app.pilot.press("f1")
        await app.until(lambda: isinstance(app.app.screen, HelpScreen))
        sections = help_sections("compare")
        shown = [str(one.render()) for one in app.app.screen.query(".heading").results(Static)]
        assert shown == [heading for heading, _ in sections]
        keys = [key for _, pairs in sections for key, _ in pairs]
        for key in ("f6", "f7", "f4", "ctrl+r", "ctrl+o"):
            assert keys.count(key) == 1, key
        titles = {title for _, pairs in sections for _, title in pairs}
        assert "Choose how A answers" in titles
        assert "Choose the drafter" not in titles
        assert "Quit" in titles
    # The chat's help has all of it, the other screens' keys under headings of their own.
    assert {heading for heading, _ in help_sections()} > {"Reply", "Prompt", "A/B (f3)", "Tokens (f4)"}


def seen(look: Look, side: str) -> list[str]:
    """What can be read of a side in the terminal: its rows that are in view, the head first."""
    head, answer = look.screen.query_one(f"#head-{side}"), look.screen.query_one(f"#answer-{side}")
    rows = [head.render_line(y).text.strip() for y in range(head.region.height)]
    return [*rows, *(answer.render_line(y).text.strip() for y in range(answer.region.height))]


@pytest.mark.parametrize("size", [(40, 10), (60, 12), (79, 15)])
async def test_in_a_small_window_a_key_brings_the_other_side(size: tuple[int, int]) -> None:
    engine = ScriptedEngine(["A first answer."])
    async with running(engine, size=size) as app:
        look = await opened(app)
        await app.pilot.press("enter")
        await app.until(lambda: len(engine.of(Generate)) == 2)
        engine.step("This is what A says.")
        await app.until(lambda: "what A says" in look.answer("a"))
        assert "This is what A says." in seen(look, "a")
        engine.finish()
        await app.until(lambda: len(engine.of(Generate)) == 3)
        engine.step("This is what B says.")
        engine.finish()
        await look.ends()
        # Both heads are there, and the side that was at work last.
        assert seen(look, "a")[0].startswith("A  without drafts")
        assert len(seen(look, "a")) == 1
        assert seen(look, "b")[0].startswith("B  ngram")
        assert "This is what B says." in seen(look, "b")
        assert "f4 other side" in look.rows("compare-keys")
        await app.pilot.press("f4")
        await app.pilot.pause()
        assert "This is what A says." in seen(look, "a")
        assert len(seen(look, "b")) == 1
        # Everything is within the window, and the verdict has room.
        for name in ("side-a", "side-b", "verdict", "question", "compare-keys"):
            region = look.screen.query_one(f"#{name}").region
            assert region.height >= 1
            assert region.bottom <= size[1]
        assert "as fast as A" in look.rows("verdict") or "equally fast" in look.rows("verdict")
        # With more room both are shown, and the key has no meaning.
        await app.pilot.resize_terminal(100, 24)
        await app.pilot.pause()
        assert "This is what A says." in seen(look, "a")
        assert "This is what B says." in seen(look, "b")
        assert "other side" not in look.rows("compare-keys")


async def test_hints_have_a_row_in_the_smallest_window() -> None:
    async with running(size=(40, 10)) as app:
        await app.ready()
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        look = Look(app)
        look.screen.query_one("#question", Prompt).insert("Why?")
        await app.pilot.press("enter")
        await app.until(lambda: look.comparison.running)
        await app.pilot.press("enter")
        assert "This comparison is at work; esc stops it." in look.rows("verdict")
