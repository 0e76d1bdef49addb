"""What hasty hands, narrow windows and hostile text do to the app."""

from __future__ import annotations

from textual.command import CommandPalette

from localspec.text import printable
from tests.tui.helpers import running
from tests.tui.scripted import ScriptedEngine
from tui.conversation import Message
from tui.screens.help import HelpScreen
from tui.widgets.bars import wrapped
from tui.widgets.entries import footer

HOSTILE = "\x1b[31mred \x1b]0;owned\x07 \x9b2J \u202eevil \u2028 line [@click=app.quit]Q[/] 日本語 مرحبا"


async def test_the_palette_and_the_help_open_once() -> None:
    async with running() as app:
        await app.pilot.press("f1", "ctrl+p", "f1", "ctrl+p")
        await app.pilot.pause()
        kinds = [type(screen) for screen in app.app.screen_stack]
        assert kinds.count(CommandPalette) <= 1
        assert kinds.count(HelpScreen) <= 1
        await app.pilot.press("escape")
        await app.until(lambda: not isinstance(app.app.screen, CommandPalette))
        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen is app.screen)


async def test_a_long_hint_takes_more_rows_in_a_narrow_window() -> None:
    async with running(size=(60, 20)) as app:
        await app.ready()
        await app.send("@no/such/file.txt what does it say?")
        await app.until(lambda: "sends it as text." in app.activity)
        assert app.activity.count("\n") == 1
        app.screen.hint("")
        await app.pilot.pause()
        assert "\n" not in app.activity


def test_a_sentence_is_wrapped_between_words() -> None:
    assert wrapped("one two three", 7, 3) == ["one two", "three"]
    assert wrapped("one two three four", 7, 2) == ["one two", "three …"]
    assert wrapped("incomprehensible", 5, 3) == ["inco…"]


async def test_control_characters_are_drawn_and_never_sent() -> None:
    for size in ((120, 40), (40, 10)):
        engine = ScriptedEngine([HOSTILE + "\n\n```\n\x1b[2J\n```\n\n| \x07 |\n|---|\n| \x1b[H |\n"])
        async with running(engine, size=size) as app:
            await app.ready()
            await app.send(HOSTILE)
            await app.until(lambda: not app.chat.busy)
            for key in ("escape", "f4", "f3", "ctrl+o", "f1"):
                await app.pilot.press(key)
                await app.pilot.pause()
                drawn = app.app.export_screenshot()
                assert printable(drawn) == drawn
                if app.app.screen is not app.screen:
                    await app.pilot.press("escape")
                    await app.until(lambda: app.app.screen is app.screen)


def test_one_token_is_no_tokens() -> None:
    reply = Message("assistant", "Yes", "complete", {"generated_tokens": 1})
    assert footer(reply) == "1 token"
