"""What is written in the prompt: history, chips of long pastes, commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from textual import events

from localspec.chat.store import Store
from localspec.messages import Generate, SetDrafter, SetSpeculation
from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine
from tui import folding
from tui.attachments import Attachments
from tui.commands import ActionProvider
from tui.keys import ALL_ACTIONS, SLASH_COMMANDS
from tui.screens.help import help_sections

LONG = "\n".join(f"line {number}" for number in range(312))


async def paste(app: Running, text: str) -> None:
    app.prompt.post_message(events.Paste(text))
    await app.pilot.pause()


async def command(app: Running, text: str) -> str:
    """Write a command; what is said about it."""
    app.prompt.text = ""
    await app.send(text)
    await app.pilot.pause()
    return app.activity


def asked(app: Running) -> list[str]:
    return [one.messages[-1].content for one in app.engine.of(Generate)]


# --- history ------------------------------------------------------------------------------------------


async def test_messages_come_back_after_a_restart_and_those_of_private_chats_do_not() -> None:
    store = Store()
    async with running(ScriptedEngine(["ok"]), store=store) as app:
        await app.ready()
        await app.send("asked before")
        await app.until(lambda: app.chat.ready and asked(app))
    private = Store(private=True)
    async with running(ScriptedEngine(["ok"]), store=private, private=True) as app:
        await app.ready()
        await app.pilot.press("up")
        assert app.prompt.text == ""
        await app.send("asked in private")
        await app.until(lambda: app.chat.ready and asked(app))
        await app.pilot.press("up")
        assert app.prompt.text == "asked in private"
    private.close()
    async with running(ScriptedEngine(), store=store, conversation="new") as app:
        await app.ready()
        await app.pilot.press("up")
        assert app.prompt.text == "asked before"
        await app.pilot.press("up", "down")
        assert app.prompt.text == ""
        # What is deleted comes back no more.
        store.delete(store.conversations()[0].id)
        assert store.questions(10, 100) == []
    store.close()


async def test_enter_twice_at_once_sends_once_and_what_was_typed_behind_it_stays() -> None:
    async with running(ScriptedEngine(["ok"])) as app:
        await app.ready()
        app.prompt.text = "a question"
        sent = app.prompt.Sent("a question", "a question")
        app.prompt.post_message(sent)
        app.prompt.post_message(app.prompt.Sent("a question", "a question"))
        app.prompt.text = "a question and more"
        await app.until(lambda: app.chat.ready and bool(asked(app)))
        assert asked(app) == ["a question"]
        assert app.prompt.text == " and more"


# --- chips --------------------------------------------------------------------------------------------


async def test_a_long_paste_is_a_chip_that_is_sent_in_full_and_shown_folded() -> None:
    async with running(ScriptedEngine(["ok", "ok"])) as app:
        await app.ready()
        await app.write("Sum up: ")
        await paste(app, LONG.replace("\n", "\r\n"))
        assert app.prompt.text == "Sum up: [pasted 312 lines]"
        await app.pilot.press("enter")
        await app.until(lambda: app.chat.ready and asked(app))
        assert asked(app) == [f"Sum up: {LONG}"]
        assert "line 3" in app.transcript.text
        assert "300 more lines" in app.transcript.text
        assert "line 100\n" not in app.transcript.text
        # It comes back as it was written.
        await app.pilot.press("up")
        assert app.prompt.text == "Sum up: [pasted 312 lines]"
        app.prompt.text = ""
        await app.pilot.press("ctrl+t")
        assert app.prompt.text == "Sum up: [pasted 312 lines]"


async def test_a_chip_is_removed_by_one_key_and_comes_back_with_undo() -> None:
    async with running() as app:
        await app.ready()
        await paste(app, LONG)
        await app.write(" x")
        await app.pilot.press("left", "left", "backspace")
        assert app.prompt.text == " x"
        await app.pilot.press("ctrl+z")
        assert app.prompt.text == "[pasted 312 lines] x"
        await app.pilot.press("home", "delete")
        assert app.prompt.text == " x"
        await app.pilot.press("ctrl+z", "enter")
        await app.until(lambda: asked(app))
        assert asked(app) == [f"{LONG} x"]


async def test_short_pastes_are_text_and_control_characters_are_not_drawn() -> None:
    async with running(ScriptedEngine(["ok"])) as app:
        await app.ready()
        await paste(app, "two\nlines")
        assert app.prompt.text == "two\nlines"
        app.prompt.text = ""
        await paste(app, "\x1b]0;title\x07")
        assert app.prompt.text == "[pasted 10 characters]"
        await app.pilot.press("enter")
        await app.until(lambda: app.chat.ready and asked(app))
        assert asked(app) == ["\x1b]0;title\x07"]
        assert "\x1b" not in app.transcript.text


def test_chips_have_names_of_their_own() -> None:
    chips = Attachments()
    other = LONG.replace("line", "row")
    assert [chips.hold(text) for text in (LONG, other, LONG, "x" * 3000)] == [
        "[pasted 312 lines]",
        "[pasted 312 lines #2]",
        "[pasted 312 lines]",
        "[pasted 3,000 characters]",
    ]
    written = "[pasted 312 lines #2] and [pasted 312 lines] but [pasted 9 lines]"
    whole = f"{other} and {LONG} but [pasted 9 lines]"
    assert chips.expanded(written) == whole
    assert chips.collapsed(whole) == written
    # What a chip holds is not looked into.
    nested = chips.hold("see [pasted 312 lines]" * 2)
    assert chips.expanded(nested) == "see [pasted 312 lines]" * 2


async def test_ten_megabytes_are_refused_in_a_sentence_and_stay() -> None:
    async with running() as app:
        await app.ready()
        await paste(app, "word " * (2 << 20))
        assert app.prompt.text == "[pasted 10,485,760 characters]"
        await app.pilot.press("enter")
        await app.pilot.pause()
        assert "10,485,760 characters are too many for a context of 8,192 tokens." in app.activity
        assert app.prompt.text == "[pasted 10,485,760 characters]"
        assert asked(app) == []


@pytest.mark.parametrize("text", ["", "a", "a\nb", "x" * 4000, "\n" * 23])
def test_short_messages_are_shown_whole(text: str) -> None:
    assert not folding.is_long(text)


@pytest.mark.parametrize("text", ["x" * 5000, "\n" * 5000, LONG, f"{'x' * 9000}\n{'y' * 9000}", "w " * 10**6])
def test_long_messages_are_shown_in_part(text: str) -> None:
    assert folding.is_long(text)
    shown = "\n".join(part for part in folding.folded(text) if part)
    assert len(shown) < 6000
    assert shown.count("\n") < 16
    assert "⋯" in shown


# --- commands -----------------------------------------------------------------------------------------


async def test_sampling_and_system_prompt_belong_to_the_conversation() -> None:
    store = Store()
    async with running(ScriptedEngine(["ok"] * 4), store=store, fresh_seeds=True) as app:
        await app.ready()
        assert "Temperature of this chat: 0.25" in await command(app, "/temp 0.25")
        assert "Seed of this chat: 11" in await command(app, "/SEED 11")
        assert "told: Be brief." in await command(app, "/system Be\nbrief.")
        assert "off" in await command(app, "/think off")
        await app.send("Q")
        await app.until(lambda: app.chat.ready and asked(app))
        sent = app.engine.of(Generate)[0]
        assert (sent.sampling.temperature, sent.sampling.seed, sent.think) == (0.25, 11, False)
        assert sent.messages[0].content == "Be\nbrief."
        assert "0.5" in await command(app, "/temp 0.5")
        await app.pilot.press("ctrl+n")
        assert "a seed of its own" in await command(app, "/seed")
        assert "told nothing" in await command(app, "/system")
    row = store.conversations()[0]
    assert json.loads(row.settings) == {"temperature": 0.5, "seed": 11, "think": False}
    async with running(ScriptedEngine(["ok"]), store=store, fresh_seeds=True) as app:
        await app.ready()
        await app.send("Q2")
        await app.until(lambda: asked(app))
        sent = app.engine.of(Generate)[0]
        assert (sent.sampling.temperature, sent.sampling.seed, sent.think) == (0.5, 11, False)
        for name in ("temp", "seed", "think", "system"):
            await command(app, f"/{name} -")
    assert (store.conversations()[0].settings, store.conversations()[0].system_prompt) == ("{}", "")
    store.close()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("/temp hot", "a number from 0 up"),
        ("/temp nan", "a number from 0 up"),
        ("/temp -1", "a number from 0 up"),
        ("/temp inf", "a number from 0 up"),
        ("/seed -3", "a whole number"),
        ("/seed 99999999999999999999", "a whole number"),
        ("/spec maybe", "/spec on or /spec off"),
        ("/think 1", "/think on or /think off"),
        ("/export pdf", "/export md or /export json"),
        ("/export md", "nothing to write yet"),
        ("/tmp 1", "did you mean /temp?"),
        ("/qqqqqq", "There is no command /qqqqqq"),
        ("/new one", "/new stands alone"),
    ],
)
async def test_commands_that_cannot_be_done_are_a_sentence(text: str, answer: str) -> None:
    async with running() as app:
        await app.ready()
        assert answer in await command(app, text)
        assert asked(app) == []


async def test_commands_do_what_keys_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with running(ScriptedEngine(["ok", "ok", "ok"])) as app:
        await app.ready()
        assert "Speculation: off" in await command(app, "/spec off")
        assert app.engine.of(SetSpeculation)[-1].enabled is False
        await command(app, "/draft suffix")
        await app.until(lambda: app.engine.of(SetDrafter))
        assert app.engine.of(SetDrafter)[0].draft.spec == "suffix"
        await command(app, "/draft nonsense-of-all-kinds")
        await app.until(lambda: "nonsense-of-all-kinds" in app.transcript.text)
        await app.send("Q")
        await app.until(lambda: app.chat.ready and asked(app))
        await command(app, "/again")
        await app.until(lambda: app.chat.ready and len(asked(app)) == 2)
        assert "Written: 1-q.md" in await command(app, "/export")
        assert Path("1-q.md").read_text().startswith("# Q")
        await command(app, "/new")
        await app.until(lambda: app.chat.conversation.messages == [])
        # Paths, and what has a space before it, are messages.
        await command(app, "/usr/bin/env is what?")
        await app.until(lambda: app.chat.ready and len(asked(app)) == 3)
        await app.pilot.press("up")
        assert app.prompt.text == "/usr/bin/env is what?"
        await command(app, " /new is a command?")
        await app.until(lambda: len(asked(app)) == 4)
        assert asked(app)[-1] == " /new is a command?"


async def test_commands_that_need_words_wait_in_the_prompt_when_chosen() -> None:
    async with running() as app:
        await app.ready()
        await app.screen.run_action("begin_command('temp')")
        assert app.prompt.text == "/temp "
        await app.screen.run_action("begin_command('seed')")
        assert app.prompt.text == "/temp "
        assert "Send or delete" in app.activity


async def test_every_command_is_an_action_of_palette_and_help() -> None:
    explained = {(left, title) for _, pairs in help_sections() for left, title in pairs}
    async with running() as app:
        await app.ready()
        offered = {str(hit.text) async for hit in ActionProvider(app.screen).discover()}
        for name, action in SLASH_COMMANDS.items():
            assert action.slash == name
            assert (action.written, action.title) in explained
            assert action.title in offered
    for action in ALL_ACTIONS:
        assert action.key or action.slash
        assert {(action.shown, action.title), (action.written, action.title)} & explained
    assert len({action.id for action in ALL_ACTIONS}) == len(ALL_ACTIONS)


@pytest.mark.parametrize("size", [(40, 10), (80, 24)])
async def test_a_small_window_has_room_for_chips_and_commands(size: tuple[int, int]) -> None:
    async with running(size=size) as app:
        await app.ready()
        await paste(app, LONG)
        await app.write(" and more words than a line has room for")
        assert app.prompt.region.bottom <= size[1]
        assert app.prompt.region.height >= 3
        app.prompt.text = ""
        assert "Temperature" in await command(app, "/temp 1")
