"""Ways from the app to the user's clipboard: a program, the terminal (OSC 52), or else a file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from localspec.clipboard import copies_file, program, terminal_takes_text

__all__ = ["copied", "hand_over", "program", "terminal_takes_text", "write_file"]

PATIENCE_S = 2.0
"""For a clipboard program to take the text."""

MOST_FOR_TERMINALS = 74_000
"""Characters that all terminals with OSC 52 take; some drop longer texts without a word."""


def hand_over(command: Sequence[str], text: str) -> bool:
    """Give `text` to a clipboard program; whether it took it. Takes `PATIENCE_S` at most."""
    # The one program of Windows reads UTF-16.
    data = text.encode("utf-16" if command[0] == "clip.exe" else "utf-8", "replace")
    try:
        # Some stay behind to hold the text, so nothing may wait for the end of their output.
        done = subprocess.run(
            command,
            input=data,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def write_file(text: str) -> Path:
    """Put `text` into `copies_file`, which only the user may read.

    Raises:
        OSError: it cannot be written.
    """
    path = copies_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", newline="") as file:
        file.write(text)
    return path


def copied(text: str, what: str, *, keep: bool, sent: bool, command: Sequence[str] | None) -> str:
    """Bring `text` to the clipboard, and say how; may take `PATIENCE_S`.

    Args:
        text: what is copied.
        what: in words, such as "the last reply".
        keep: whether it may be written to the disk.
        sent: whether it has been sent to the terminal.
        command: the clipboard program.
    """
    count = f"{len(text)} characters" if len(text) != 1 else "1 character"
    if command is not None and hand_over(command, text):
        return f"Copied {what} with {command[0]}, {count}."
    if sent and len(text) <= MOST_FOR_TERMINALS:
        return f"Copied {what} through the terminal (OSC 52), {count}."
    doubt = "may be too much for the terminal's clipboard (OSC 52)" if sent else "found no clipboard here"
    if not keep:
        return f"{_capital(what)}, {count}, {doubt}; a private chat writes no file instead."
    try:
        path = write_file(text)
    except OSError as error:
        return f"{_capital(what)}, {count}, {doubt}, and no file can be written ({error.strerror})."
    return f"{_capital(what)}, {count}, {doubt}; it is in {path} too."


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
