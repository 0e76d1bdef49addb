"""What the word before the cursor could go on as: a command, or a path behind an @. No widgets here."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tui.keys import SLASH_COMMANDS
from tui.mentions import path_completions

_COMMAND = re.compile(r"/(\w*)")
_PATH = re.compile(r'(?:^|(?<=\s))@("?)([^"\n]*)$')


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Text that could take the place of the line from column `start` on; how it is shown, and explained."""

    start: int
    text: str
    shown: str
    about: str = ""


def suggestions_for(line: str, *, first: bool) -> list[Suggestion]:
    """What could be meant.

    Args:
        line: the line up to the cursor.
        first: whether it is the first one.
    """
    command = _COMMAND.fullmatch(line) if first else None
    if command is not None:
        name = command.group(1).lower()
        return [
            Suggestion(
                0,
                f"/{action.slash} " if action.argument else f"/{action.slash}",
                action.written,
                action.title,
            )
            for action in SLASH_COMMANDS.values()
            if action.slash.startswith(name) and action.slash != name
        ]
    mention = _PATH.search(line)
    if mention is None:
        return []
    quote, begun = mention.groups()
    if not quote and re.search(r"\s", begun):
        return []
    return [
        Suggestion(mention.start(), _mention(path), path) for path in path_completions(begun) if path != begun
    ]


def _mention(path: str) -> str:
    """A path as it is written; a folder's is left open, to be gone on with."""
    spaced = " " in path
    if path.endswith("/"):
        return f'@"{path}' if spaced else f"@{path}"
    return f'@"{path}" ' if spaced else f"@{path} "
