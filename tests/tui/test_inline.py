"""`chat --inline`: the app in the flow of the terminal, in a real one."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cli.conftest import environment, scripted_command, tiny_gguf
from tests.e2e.terminal import Terminal
from tui.conversation import Message
from tui.leaving import last_words

__all__ = ["tiny_gguf"]  # a fixture


def test_what_is_left_is_the_last_exchange() -> None:
    assert last_words([]) == ""
    said = [
        Message("user", "one"), Message("assistant", "1"),
        Message("user", "two\nlines"), Message("assistant", "2 \x1b[31mred"),
    ]  # fmt: skip
    assert last_words(said) == "> two\n> lines\n\n2 ␛[31mred\n"
    assert last_words(said[:3]) == "> two\n> lines\n"
    thought = Message("assistant", "<think>\nhm\n</think>\n\nseven")
    assert last_words([*said[:3], thought]) == "> two\n> lines\n\nseven\n"


def test_the_terminal_keeps_what_stands_above(tiny_gguf: Path) -> None:
    chat = scripted_command("reply", "chat", "--inline", "--model", str(tiny_gguf), "--draft", "none")
    command = ["/bin/sh", "-c", 'echo before; "$@"; echo after', "sh", *chat]
    terminal = Terminal(command, {**environment(), **os.environ}, 100, 40)
    try:
        shown = terminal.wait_for("before", "Message", "speculation")
        lines = shown.split("\n")
        assert lines[0] == "before"
        # Half of the window is left to what was there.
        assert sum(1 for line in lines[1:] if line) <= 24
        terminal.send("hello\r")
        terminal.wait_for("Hallo, Wörld", "20.0 tok/s")
        terminal.send("\x11")
        assert terminal.wait_until_ended() == 0
        after = terminal.text
        assert "after" in after
        assert after.startswith("before")
        assert "> hello" in after
        assert "Message" not in after
        assert b"\x1b[?1049h" not in terminal.written
    finally:
        terminal.close()
