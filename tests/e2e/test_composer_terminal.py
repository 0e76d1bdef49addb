"""The prompt in a real terminal on the real model: a pasted text, the user's editor, versions of a reply."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.e2e.terminal import Terminal

EDITOR = "import sys; open(sys.argv[1], 'a').write(' Answer in one word.')"


@pytest.mark.model
def test_pasting_editing_and_answering_again(private_home: Path, smollm2_path: Path, tmp_path: Path) -> None:
    script = tmp_path / "editor.py"
    script.write_text(EDITOR)
    command = [
        sys.executable, "-m", "localspec", "chat", "--model", str(smollm2_path), "--threads", "1",
        "--max-tokens", "12", "--draft", "ngram",
    ]  # fmt: skip
    environment = {
        **os.environ,
        "LOCALSPEC_HOME": str(private_home),
        "EDITOR": f"'{sys.executable}' '{script}'",
        "VISUAL": "",
    }
    terminal = Terminal(command, environment, 100, 30)
    try:
        terminal.wait_for("speculation on", "RAM")
        text = "\n".join(f"The number {number} comes here." for number in range(1, 41))
        # As a terminal hands over what is pasted.
        terminal.send(f"\x1b[200~{text}\x1b[201~")
        terminal.wait_for("[pasted 40 lines]")
        terminal.send(" What comes after 40?")
        terminal.wait_for("after 40?")
        terminal.send("\x07")
        terminal.wait_for("one word.", "speculation on")
        terminal.send("\r")
        terminal.wait_for("more lines", "tok/s ·")
        terminal.send("\x12")
        terminal.wait_for("‹ 2/2 ›")
        terminal.send("\x1b[1;3D")
        terminal.wait_for("‹ 1/2 ›")
        terminal.send("\x11")
        assert terminal.wait_until_ended() == 0
    finally:
        terminal.close()
