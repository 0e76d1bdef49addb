"""Reading: messages selected and copied, ways to the clipboard, long conversations, odd texts and windows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from localspec import paths
from localspec.chat.rows import MessageRow, Tree
from localspec.chat.store import Store
from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine
from tui import clipboard
from tui.widgets.drawn import MOST, SHOWN
from tui.widgets.entry_view import MARK

REPLIES = (
    "<think>\nhm\n</think>\n\nOne:\n\n```py\na = 1\n```\n\nand\n\n```sh\nls\n```\n\nand\n\n    indented\n",
    "No code here.",
)

REAL_PROGRAM, REAL_TERMINAL = clipboard.program, clipboard.terminal_takes_text


async def talk(app: Running) -> None:
    """Two questions and their replies."""
    await app.ready()
    for count, question in enumerate(("first?", "second?"), start=1):
        await app.send(question)
        await app.until(lambda count=count: app.transcript.text.count("tok/s") == count)


def marked(app: Running) -> list[str]:
    """The rows of the view that are marked as selected."""
    rows = [app.transcript.render_line(y).text for y in range(app.transcript.size.height)]
    return [row[1:].strip() for row in rows if row.startswith(MARK)]


async def test_messages_are_selected_one_after_the_other() -> None:
    async with running(ScriptedEngine(REPLIES)) as app:
        await app.ready()
        await app.pilot.press("alt+up")
        assert "no messages yet" in app.activity
        await talk(app)
        for place, first in (
            (4, "No code here."),
            (3, "second?"),
            (2, "▸ Thought"),
            (1, "first?"),
            (1, "first?"),
        ):
            await app.pilot.press("alt+up")
            assert app.transcript.selected == place - 1
            assert f"Message {place} of 4" in app.activity
            assert marked(app)[0].startswith(first)
        await app.pilot.press("alt+down")
        assert app.transcript.selected == 1
        await app.pilot.press("escape")
        assert app.transcript.selected is None
        assert marked(app) == []
        await app.pilot.press("alt+up", "alt+down")
        assert app.transcript.selected is None
        # A new message lets go of it.
        await app.pilot.press("alt+up", "alt+up")
        await app.send("third?")
        await app.until(lambda: app.chat.busy)
        assert app.transcript.selected is None


async def test_the_selected_message_and_its_code_blocks_are_copied() -> None:
    async with running(ScriptedEngine(REPLIES)) as app:
        await talk(app)
        await app.pilot.press("ctrl+b")
        assert app.app.clipboard == "indented\n"
        await app.pilot.press("alt+up", "ctrl+y")
        assert app.app.clipboard == "No code here."
        await app.until(lambda: "Copied the selected message" in app.activity)
        await app.pilot.press("ctrl+b")
        assert "no code block in this message" in app.activity
        await app.pilot.press("alt+up", "ctrl+y")
        assert app.app.clipboard == "second?"
        await app.pilot.press("alt+up", "ctrl+y")
        assert app.app.clipboard.startswith("One:\n")
        for number, code in enumerate(("a = 1\n", "ls\n", "indented\n", "a = 1\n")):
            await app.pilot.press("ctrl+b")
            assert app.app.clipboard == code
            await app.until(lambda number=number: f"code block {number % 3 + 1} of 3" in app.activity)


async def test_what_the_mouse_selects_is_copied_the_same_way() -> None:
    async with running(ScriptedEngine(REPLIES)) as app:
        await talk(app)
        app.app.screen.text_select_all()
        await app.pilot.pause()
        app.screen.action_copy_text()
        assert "No code here." in app.app.clipboard
        await app.until(lambda: "Copied the selection through the terminal (OSC 52)" in app.activity)


@pytest.mark.skipif(sys.platform == "win32", reason="a shell script stands for the program")
async def test_a_clipboard_program_takes_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = tmp_path / "taken"
    script = tmp_path / "wl-copy"
    script.write_text(f'#!/bin/sh\ncat > "{taken}"\n')
    script.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    monkeypatch.delenv("SSH_TTY", raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(clipboard, "program", REAL_PROGRAM)
    async with running(ScriptedEngine(REPLIES)) as app:
        await talk(app)
        await app.pilot.press("ctrl+y")
        await app.until(lambda: "Copied the last reply with wl-copy, 13 characters." in app.activity)
        assert taken.read_text() == "No code here."
        script.write_text("#!/bin/sh\nexit 1\n")
        await app.pilot.press("ctrl+y")
        await app.until(lambda: "through the terminal (OSC 52)" in app.activity)


def test_which_way_leads_to_the_clipboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("xclip", "wl-copy"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o700)
    env = {"PATH": str(tmp_path)}
    assert REAL_PROGRAM(env) is None
    assert REAL_PROGRAM({**env, "DISPLAY": ":0"}) == ["xclip", "-selection", "clipboard"]
    assert REAL_PROGRAM({**env, "DISPLAY": ":0", "WAYLAND_DISPLAY": "w"}) == ["wl-copy"]
    assert REAL_PROGRAM({**env, "DISPLAY": ":0", "SSH_TTY": "/dev/pts/1"}) is None
    assert REAL_PROGRAM({"PATH": "", "DISPLAY": ":0"}) is None
    assert REAL_TERMINAL({"TERM": "xterm-256color"})
    assert REAL_TERMINAL({"TERM": "screen-256color", "TMUX": "x", "STY": "y"})
    for deaf in ({"TERM": "linux"}, {"TERM_PROGRAM": "Apple_Terminal"}, {"TERM": "screen", "STY": "1.pts"}):
        assert not REAL_TERMINAL(deaf)


def test_without_a_clipboard_the_text_is_in_a_file_but_for_private_chats() -> None:
    said = clipboard.copied("text", "the last reply", keep=True, sent=False, command=None)
    path = paths.cache_dir() / "copied.txt"
    assert said == f"The last reply, 4 characters, found no clipboard here; it is in {path} too."
    assert path.read_text() == "text"
    if os.name == "posix":
        assert path.stat().st_mode & 0o77 == 0
    long = "x" * (clipboard.MOST_FOR_TERMINALS + 1)
    said = clipboard.copied(long, "the last reply", keep=True, sent=True, command=("no-such-program",))
    assert "may be too much for the terminal" in said
    assert path.read_text() == long
    path.unlink()
    said = clipboard.copied("text", "the last reply", keep=False, sent=False, command=None)
    assert "a private chat writes no file" in said
    assert not path.exists()
    path.mkdir()
    assert "no file can be written" in clipboard.copied("x", "it", keep=True, sent=False, command=None)
    path.rmdir()
    path.parent.rmdir()
    path.parent.write_text("a file where the folder should be")
    assert "no file can be written" in clipboard.copied("x", "it", keep=True, sent=False, command=None)


def long_chat(store: Store, count: int) -> int:
    """A conversation of so many messages."""
    row = store.create(model="scripted", title="long")
    roles = ("user", "assistant")
    messages = tuple(
        MessageRow(n, row.id, n - 1 or None, roles[(n - 1) % 2], f"message {n} **end**", "complete", 1.0)
        for n in range(1, count + 1)
    )
    (added,) = store.add_trees([Tree(row, messages, count)])
    return added.id


async def test_of_a_long_conversation_only_what_is_around_the_view_is_drawn() -> None:
    store = Store()
    number = long_chat(store, 2000)
    engine = ScriptedEngine(["fine"])
    async with running(engine, store=store, conversation=number, size=(100, 120)) as app:
        await app.ready()
        await app.until(lambda: "message 2000 end" in app.transcript.text)

        def drawn() -> int:
            return app.transcript.text.count("message ")

        assert drawn() == SHOWN
        # All the way up by pages, and everything is seen on the way.
        seen: set[str] = set()
        for _ in range(400):
            top = app.transcript.scroll_offset.y
            rows = app.transcript.text.split("\n")[top : top + app.transcript.size.height]
            seen.update(row.strip("▌ ") for row in rows if "message" in row)
            assert drawn() <= MOST
            if top == 0 and "message 1 " in rows[0]:
                break
            app.screen.action_page_up()
        assert len(seen) == 2000
        await app.pilot.press("ctrl+end")
        assert drawn() == SHOWN
        assert app.transcript.at_end
        await app.pilot.press("ctrl+home")
        assert app.transcript.text.startswith("▌ message 1 ")
        assert not app.transcript.at_end
        # And down again, by messages.
        for _ in range(SHOWN + 5):
            app.screen.action_next_message()
        await app.pilot.pause()
        assert app.transcript.selected == SHOWN + 4
        assert marked(app)[0].startswith(f"message {SHOWN + 5}")
        # A reply that grows out of view draws nothing, and is there at the end.
        await app.pilot.press("ctrl+home")
        await app.send("how are you?")
        await app.until(lambda: "fine" in app.transcript.text)
        assert app.transcript.at_end
    store.close()


async def test_what_grows_out_of_view_does_not_move_it() -> None:
    store = Store()
    async with running(store=store, conversation=long_chat(store, 400)) as app:
        await app.ready()
        await app.send("go on")
        await app.until(lambda: app.chat.busy)
        await app.step("<think>\nhm")
        await app.pilot.press("ctrl+home")
        before = app.transcript.text
        await app.step("</think>\n\nbegin")
        app.chat.handle([])
        app.screen.show_note("a note in between", "note")
        await app.step(" and end")
        app.engine.finish()
        await app.until(lambda: not app.chat.busy)
        assert app.transcript.text == before
        await app.pilot.press("ctrl+end")
        assert "a note in between\n\n  ▸ Thought for" in app.transcript.text
        assert "begin and end" in app.transcript.text
    store.close()


async def test_resizing_while_reasoning_and_answer_grow() -> None:
    async with running(size=(100, 30)) as app:
        await app.ready()
        await app.send("a question of some words that will be wrapped in a narrow window")
        await app.until(lambda: app.chat.busy)
        pieces = [
            "<think>\n",
            "an idea " * 30,
            "\n</think>\n\n",
            "word " * 60,
            "\n\n| a | b |\n|--|--|\n",
            "| 1 | 2 |",
        ]
        for number, piece in enumerate(pieces):
            await app.step(piece)
            await app.pilot.resize_terminal(*((40, 10), (250, 60), (60, 12))[number % 3])
            await app.pilot.pause()
            width = app.transcript.size.width
            assert max(len(line) for line in app.transcript.text.split("\n")) <= width
        app.engine.finish()
        await app.until(lambda: not app.chat.busy)
        await app.pilot.resize_terminal(40, 10)
        await app.pilot.pause()
        assert "Thought for" in app.transcript.text
        assert app.transcript.at_end
        await app.pilot.press("alt+up", "alt+t", "pageup", "alt+down")
        assert app.transcript.size.height >= 1


@pytest.mark.parametrize(
    "text",
    [
        "שלום עולם, mixed with English",
        "مرحبا بالعالم\u200f",
        "日本語のテキスト 🎉👨\u200d👩\u200d👧 e\u0301 z\u0325\u0330",
        "\x1b]52;c;aGk=\x07 \x1b[2J \x9b31m \x00 \u202eevil\u202c",
    ],
    ids=["hebrew", "arabic", "wide", "controls"],
)
async def test_any_text_is_drawn_and_copied_as_it_is(text: str) -> None:
    async with running(
        ScriptedEngine([f"<think>\n{text}\n</think>\n\n{text}"], characters=1), size=(40, 10)
    ) as app:
        await app.ready()
        await app.send("show")
        await app.until(lambda: "tok/s" in app.transcript.text)
        await app.pilot.press("alt+t")
        rows = [app.transcript.render_line(y) for y in range(app.transcript.size.height)]
        width = app.transcript.scrollable_content_region.width
        assert {row.cell_length for row in rows} == {width}
        assert not any(character in app.transcript.text for character in "\x1b\x07\x9b\x00\u202e")
        await app.pilot.press("ctrl+y")
        assert app.app.clipboard == text
