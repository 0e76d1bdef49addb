"""Keys, sizes, copying: what is on screen and how it answers."""

from __future__ import annotations

import pytest
from textual.widgets import OptionList

from localspec.errors import UsageError
from localspec.messages import Generate
from tests.tui.helpers import running
from tests.tui.scripted import ScriptedEngine
from tui.commands import ActionProvider
from tui.keys import ACTIONS, KEY_BAR
from tui.screens.chat import ChatScreen
from tui.screens.help import help_sections

LONG = "\n\n".join(f"Paragraph {number} of a long reply." for number in range(60))


async def test_resizing_to_a_narrow_window_and_back() -> None:
    async with running(ScriptedEngine(["A reply of some words that will wrap. " * 20])) as app:
        await app.ready()
        await app.send("hello")
        await app.until(lambda: "tok/s ·" in app.transcript.text)
        wide = app.transcript.text
        assert app.panel.display
        assert not app.line.display

        await app.pilot.resize_terminal(60, 20)
        await app.until(lambda: app.line.display and "tok/s" in app.line.text)
        assert not app.panel.display
        assert max(len(line) for line in app.transcript.text.split("\n")) < 60
        assert app.transcript.at_end

        await app.pilot.resize_terminal(120, 40)
        await app.until(lambda: app.panel.display and app.transcript.text == wide)
        assert "SPEED" in app.panel.text


async def test_a_window_that_is_too_small_says_so_and_recovers() -> None:
    async with running() as app:
        await app.ready()
        await app.pilot.resize_terminal(30, 6)
        small = app.screen.query_one("#small")
        await app.until(lambda: small.display)
        assert not app.screen.query_one("#body").display
        await app.pilot.resize_terminal(80, 24)
        await app.until(lambda: not small.display and app.prompt.has_focus)
        await app.send("still works")
        await app.until(lambda: len(app.engine.of(Generate)) == 1)


async def test_f5_shows_the_figures_as_a_panel_as_a_line_and_not_at_all() -> None:
    async with running() as app:
        await app.ready()

        def shown() -> tuple[bool, bool]:
            return app.panel.display, app.line.display

        assert shown() == (True, False)
        for wanted in ((False, True), (False, False), (True, False)):
            await app.pilot.press("f5")
            await app.until(lambda wanted=wanted: shown() == wanted)
            assert not app.line.display or "tok/s" in app.line.text
        # Where there is no room for a panel, it is a line or nothing.
        await app.pilot.resize_terminal(80, 24)
        await app.until(lambda: shown() == (False, True))
        for wanted in ((False, False), (False, True)):
            await app.pilot.press("f5")
            await app.until(lambda wanted=wanted: shown() == wanted)


async def test_theme_and_panel_of_the_settings_are_used() -> None:
    async with running(panel=False, theme="localspec-light") as app:
        await app.ready()
        assert not app.panel.display
        assert app.app.theme == "localspec-light"
        await app.pilot.press("f5")
        await app.until(lambda: app.panel.display)
    with pytest.raises(UsageError, match="no theme 'mauve'"):
        async with running(theme="mauve"):
            pass


async def test_the_view_follows_the_end_only_from_the_end() -> None:
    async with running(ScriptedEngine([LONG])) as app:
        await app.ready()
        await app.send("hello")
        await app.until(lambda: "Paragraph 59" in app.transcript.text and not app.chat.busy)
        assert app.transcript.at_end
        app.engine._replies.clear()
        await app.send("more")
        await app.until(lambda: app.chat.busy)
        await app.pilot.press("pageup")
        place = app.transcript.scroll_offset.y
        await app.step("\n\n".join(["new"] * 50))
        assert app.transcript.scroll_offset.y == place
        await app.pilot.press("ctrl+end")
        assert app.transcript.at_end
        await app.step("\n\nand the last")
        assert app.transcript.at_end
        await app.pilot.press("ctrl+home")
        assert app.transcript.scroll_offset.y == 0
        assert app.prompt.has_focus


async def test_control_characters_are_shown_not_executed() -> None:
    async with running(ScriptedEngine(["\x1b[31mred\x1b[0m \x07bell \x9b2J"], characters=3)) as app:
        await app.ready()
        await app.send("hello \x1b]0;title\x07")
        await app.until(lambda: "bell" in app.transcript.text and not app.chat.busy)
        assert "\x1b" not in app.transcript.text + app.title
        assert "␛[31mred␛[0m ␇bell ␛[2J" in app.transcript.text
        # What is kept and sent is the text itself.
        assert app.chat.conversation.last_reply() == "\x1b[31mred\x1b[0m \x07bell \x9b2J"


async def test_copying_the_reply_and_its_code() -> None:
    reply = "Text:\n\n```python\nx = 1\n```\n\nand\n\n```sh\nls -l\n```\n"
    async with running(ScriptedEngine([reply, "You are welcome."])) as app:
        await app.ready()
        await app.pilot.press("ctrl+y")
        assert "no reply to copy" in app.activity
        await app.pilot.press("ctrl+b")
        assert "no code block to copy" in app.activity
        await app.send("hello")
        await app.until(lambda: "ls -l" in app.transcript.text and not app.chat.busy)
        await app.pilot.press("ctrl+y")
        assert app.app.clipboard == reply
        assert "OSC 52" in app.activity
        await app.pilot.press("ctrl+b")
        assert app.app.clipboard == "ls -l\n"
        # The last code block stays the last one when the talk goes on without code.
        await app.send("thanks")
        await app.until(lambda: "welcome" in app.transcript.text and not app.chat.busy)
        await app.pilot.press("ctrl+y")
        assert app.app.clipboard == "You are welcome."
        await app.pilot.press("ctrl+b")
        assert app.app.clipboard == "ls -l\n"


async def test_selected_text_is_copied_without_decoration() -> None:
    reply = (
        "A paragraph that is long enough to be wrapped over two rows, " * 3 + "\n\n```python\n  x = 1\n```"
    )
    async with running(ScriptedEngine([reply])) as app:
        await app.ready()
        await app.send("a question")
        await app.until(lambda: "x = 1" in app.transcript.text and not app.chat.busy)
        app.app.screen.text_select_all()
        await app.pilot.pause()
        selected = app.app.screen.get_selected_text() or ""
        assert (
            "a question\n\n" + ("A paragraph that is long enough to be wrapped over two rows, " * 3).rstrip()
            in selected
        )
        assert "\n  x = 1\n" in selected


async def test_the_prompt_takes_several_lines_and_remembers() -> None:
    async with running(ScriptedEngine(["ok", "ok"])) as app:
        await app.ready()
        await app.write("first")
        await app.pilot.press("ctrl+j")
        await app.write("second")
        assert app.prompt.text == "first\nsecond"
        await app.pilot.press("enter")
        await app.until(lambda: not app.chat.busy and "ok" in app.transcript.text)
        assert app.engine.of(Generate)[0].messages[0].content == "first\nsecond"
        await app.send("third")
        await app.until(lambda: not app.chat.busy and len(app.engine.of(Generate)) == 2)
        await app.write("draft")
        await app.pilot.press("up")
        assert app.prompt.text == "third"
        await app.pilot.press("up")
        assert app.prompt.text == "first\nsecond"
        await app.pilot.press("down", "down")
        assert app.prompt.text == "draft"
        await app.pilot.press(*["backspace"] * 5)
        await app.send("   ")
        assert len(app.engine.of(Generate)) == 2


async def test_every_action_has_a_key_a_command_a_help_line_and_a_method() -> None:
    async with running() as app:
        await app.ready()
        provider = ActionProvider(app.screen)
        offered = {str(hit.text or hit.display) async for hit in provider.discover()}
        explained = {(key, title) for _, pairs in help_sections() for key, title in pairs}
        bound = {
            binding.id: binding
            for binding in app.app._bindings.key_to_bindings.values()
            for binding in binding
        }
        bound |= {b.id: b for bindings in app.screen._bindings.key_to_bindings.values() for b in bindings}
        keys = [action.key for action in ACTIONS if action.key]
        assert len(set(keys)) == len(keys)
        assert len({action.id for action in ACTIONS}) == len(ACTIONS)
        for action in ACTIONS:
            owner = app.app if action.owner == "app" else app.screen
            assert hasattr(owner, f"action_{action.name.partition('(')[0]}"), action.id
            if action.key:
                assert bound[action.id].key == action.key
            else:
                assert action.slash
            assert (action.shown, action.title) in explained
            if action.id != "app.commands":
                assert action.title in offered
                found = [hit async for hit in provider.search(action.title)]
                assert found, action.id
        assert all(action.hint for action in KEY_BAR)


async def test_an_action_runs_from_the_palette_and_from_the_key_bar() -> None:
    async with running() as app:
        await app.ready()
        await app.pilot.press("ctrl+p")
        await app.until(lambda: not isinstance(app.app.screen, ChatScreen))
        await app.pilot.press(*"speculation")
        await app.pilot.pause(0.3)
        await app.pilot.press("enter")
        await app.until(lambda: app.chat.state.wanted is False)
        await app.until(lambda: app.app.screen is app.screen)
        x = app.keys.index("f5 panel") + 4
        await app.pilot.click("#keys", offset=(x, 0))
        await app.until(lambda: not app.panel.display)


async def test_help_opens_and_closes() -> None:
    async with running() as app:
        await app.pilot.press("f1")
        await app.until(lambda: app.app.screen is not app.screen)
        await app.pilot.press("f1")
        await app.until(lambda: app.app.screen is app.screen)


async def test_themes_redraw_the_transcript() -> None:
    async with running(ScriptedEngine(["```python\nx = 1\n```"])) as app:
        await app.ready()
        await app.send("hello")
        await app.until(lambda: "x = 1" in app.transcript.text and not app.chat.busy)
        text = app.transcript.text

        def grounds() -> set[str]:
            strips = [app.transcript.render_line(y) for y in range(app.transcript.size.height)]
            return {
                segment.style.bgcolor.name
                for strip in strips
                for segment in strip
                if segment.style and segment.style.bgcolor
            }

        dark = grounds()
        app.app.theme = "localspec-light"
        await app.until(lambda: not grounds() & dark)
        assert app.transcript.text == text


async def test_every_theme_can_be_chosen() -> None:
    async with running() as app:
        await app.ready()
        for name in app.app.available_themes:
            app.app.theme = name
            await app.pilot.pause()
            await app.pilot.press("f1")
            await app.pilot.press("f1")
            muted = app.panel.get_component_rich_style("rows--muted").color
            assert muted is not None, name
            assert muted != app.panel.get_component_rich_style("rows--value").color, name
    async with running(theme="nord") as app:
        await app.ready()
        assert app.app.theme == "nord"


async def test_a_long_title_takes_one_row_of_the_list() -> None:
    async with running(size=(60, 24)) as app:
        await app.ready()
        for title in ("w" * 60, "many words " * 5, "日本語 " * 9):
            app.store.create(model="scripted", title=title)
        await app.pilot.press("ctrl+o")
        await app.pilot.pause()
        found = app.app.screen.query_one("#conversations", OptionList)
        assert found.virtual_size.height == 3 * 2
