"""Which ways lead to the user's clipboard from here."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from localspec import paths


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


def terminal_takes_text(environment: Mapping[str, str] | None = None) -> bool:
    """Whether the terminal may pass text on to the clipboard; few tell, and none says that it did."""
    env = os.environ if environment is None else environment
    in_screen = "STY" in env and "TMUX" not in env
    deaf = env.get("TERM") == "linux" or env.get("TERM_PROGRAM") == "Apple_Terminal"
    return not (in_screen or deaf)


def copies_file() -> Path:
    """Where text is put that no clipboard takes; it holds the newest copy alone."""
    return paths.cache_dir() / "copied.txt"
