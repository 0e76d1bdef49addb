"""Ways from the app to the user's clipboard: a program, the terminal (OSC 52), or else a file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from localspec import paths

PATIENCE_S = 2.0
"""For a clipboard program to take the text."""

MOST_FOR_TERMINALS = 74_000
"""Characters that all terminals with OSC 52 take; some drop longer texts without a word."""


def program(environment: Mapping[str, str] | None = None) -> Sequence[str] | None:
    """The command that takes text for the clipboard of the screen that the user looks at; None for none.

    Through SSH there is none: a program here would reach another screen, or nobody's.
    """
    env = os.environ if environment is None else environment
    if "SSH_CONNECTION" in env or "SSH_TTY" in env:
        return None
    if sys.platform == "darwin":
        known: list[list[str]] = [["pbcopy"]]
    elif sys.platform == "win32" or "WSL_DISTRO_NAME" in env:
        known = [["clip.exe"]]
    else:
        known = [["wl-copy"]] if env.get("WAYLAND_DISPLAY") else []
        if env.get("DISPLAY"):
            known += [["xclip", "-selection", "clipboard"], ["xsel", "--clipboard", "--input"]]
    return next((command for command in known if shutil.which(command[0], path=env.get("PATH"))), None)


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


def terminal_takes_text(environment: Mapping[str, str] | None = None) -> bool:
    """Whether the terminal may pass text on to the clipboard; few tell, and none says that it did."""
    env = os.environ if environment is None else environment
    in_screen = "STY" in env and "TMUX" not in env
    deaf = env.get("TERM") == "linux" or env.get("TERM_PROGRAM") == "Apple_Terminal"
    return not (in_screen or deaf)


def write_file(text: str) -> Path:
    """Put `text` into a file that only the user may read; it holds the newest copy alone.

    Raises:
        OSError: it cannot be written.
    """
    path = paths.ensure(paths.cache_dir()) / "copied.txt"
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
