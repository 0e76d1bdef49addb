"""One visit to everything that the app has, on the real model in a real pseudo-terminal."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.e2e.terminal import Terminal
from tests.e2e.test_chat_in_a_terminal import wait_for_messages

pytestmark = pytest.mark.model

F2, F3, F4 = "\x1bOQ", "\x1bOR", "\x1bOS"
ESCAPE, ENTER, ALT_LEFT = "\x1b", "\r", "\x1b[1;3D"
CTRL_O, CTRL_Q, CTRL_R = "\x0f", "\x11", "\x12"
QUESTION = "Say this twice: the lighthouse keeper lights the lamp at dusk."


@pytest.fixture
def terminal(private_home: Path, smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-m", "localspec", "chat", "--model", str(smollm2_path), "--threads", "1"]
    environment = {**os.environ, "LOCALSPEC_HOME": str(private_home)}
    opened = Terminal([*command, "--max-tokens", "48"], environment, 110, 36)
    yield opened
    opened.close()


def test_a_visit(terminal: Terminal, private_home: Path, tmp_path: Path) -> None:
    terminal.wait_for("Message")

    # Chat, and the toggle.
    terminal.send(QUESTION + ENTER)
    wait_for_messages(private_home, 2)
    terminal.send(F2)
    terminal.wait_for("speculation off")
    terminal.send(F2)
    terminal.wait_for("speculation on")

    # The same question both ways.
    terminal.send(F3)
    terminal.wait_for("A/B", "asked both ways")
    terminal.send(ENTER)
    terminal.wait_for("tokens are identical", "tok/s")
    terminal.send(ESCAPE)
    terminal.wait_for("Message")

    # The reply as tokens, with what else was likely.
    terminal.send(F4)
    terminal.wait_for("accepted", "correction", "passes")
    terminal.wait_for("log-probability")
    terminal.send(ESCAPE)
    terminal.wait_for("Message")

    # The reply once more, and back to the first one.
    terminal.send(CTRL_R)
    kept = wait_for_messages(private_home, 3)
    assert [role for role, *_ in kept] == ["user", "assistant", "assistant"]
    terminal.wait_for("2/2")
    terminal.send(ALT_LEFT)
    terminal.wait_for("1/2")

    # Found again by a word of it, and written to a file.
    terminal.send(CTRL_O)
    terminal.wait_for("Earlier chats")
    terminal.send("keeper")
    terminal.wait_for("lighthouse keeper")
    terminal.send(F4)
    terminal.wait_for(".json")
    terminal.send(ESCAPE)
    terminal.wait_for("Message")
    (exported,) = tmp_path.glob("*.json")
    assert QUESTION in json.dumps(json.loads(exported.read_text()))

    terminal.send(CTRL_Q)
    assert terminal.wait_until_ended() == 0
