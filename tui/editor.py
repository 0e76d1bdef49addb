"""A message written in the user's own editor. No widgets here."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from localspec.errors import UsageError

EDITORS = ("nano", "vi", "notepad")
"""Those that are tried where the user has named none."""


def edited(text: str) -> str:
    """Let a text be edited in $VISUAL or $EDITOR, which has the terminal meanwhile.

    Raises:
        UsageError: there is no editor, or it failed; the text is as it was then.
    """
    command = _editor()
    # Readable for its user alone.
    number, name = tempfile.mkstemp(prefix="localspec-", suffix=".md")
    file = Path(name)
    try:
        with os.fdopen(number, "w", encoding="utf-8", errors="replace", newline="\n") as opened:
            opened.write(text)
        status = subprocess.run([*command, name], check=False).returncode
        if status:
            raise UsageError(f"The editor {command[0]} ended with status {status}; the message is as it was.")
        return file.read_text(encoding="utf-8").rstrip("\n")
    except OSError as error:
        raise UsageError(
            f"The editor {command[0]} failed ({error.strerror}); set EDITOR to another."
        ) from error
    except UnicodeDecodeError as error:
        raise UsageError("The editor left no UTF-8 text; the message is as it was.") from error
    finally:
        with contextlib.suppress(OSError):
            file.unlink()


def _editor() -> list[str]:
    named = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        command = shlex.split(named, posix=os.name != "nt")
    except ValueError as error:
        raise UsageError(f"EDITOR is {named!r}, which is no command; set it to one, such as nano.") from error
    if command:
        return command
    found = next((path for path in map(shutil.which, EDITORS) if path), None)
    if found is None:
        raise UsageError("There is no editor; set EDITOR to the command of one.")
    return [found]
