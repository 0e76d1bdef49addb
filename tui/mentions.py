"""Files that a message names as `@path`: read, and sent with it. No widgets here."""

from __future__ import annotations

import re
import stat
from itertools import islice
from pathlib import Path

from localspec.errors import UsageError
from localspec.text import printable
from tui import figures

MOST_BYTES = 1 << 20
"""A file of more is not sent."""

MOST_LISTED = 5000
"""Entries of a folder that are looked at to complete a path."""

_MENTION = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s"]\S*))')
_PUNCTUATION = ".,;:!?)]}'\""
_AS_TEXT = "a space behind the @ sends it as text."


def with_files(text: str, written: str) -> str:
    """A message with the files that it names, each as a block of its own behind it.

    Words behind an @ that are neither a path's shape nor the name of a file stay words. Files whose block the
    message has already are not added again.

    Args:
        text: the message, with what its chips stand for.
        written: the part of it in which files are looked for.

    Raises:
        UsageError: a file is missing, a folder, too large, no text, or cannot be read.
    """
    names: dict[str, Path] = {}
    for match in _MENTION.finditer(written):
        named = _named(match.group(1), match.group(2))
        if named is not None and f"\n{named[0]}:\n```" not in text:
            names.setdefault(*named)
    return "\n\n".join([text, *(_block(name, path) for name, path in names.items())])


def path_completions(begun: str) -> list[str]:
    """Paths that begin as `begun` does, folders with a slash behind them, in order."""
    folder, slash, start = begun.rpartition("/")
    try:
        place = Path(f"{folder}{slash}" or ".").expanduser()
        found = [
            f"{folder}{slash}{entry.name}{'/' if entry.is_dir() else ''}"
            for entry in islice(place.iterdir(), MOST_LISTED)
            if entry.name.lower().startswith(start.lower())
            and (start or not entry.name.startswith("."))
            and printable(entry.name) == entry.name
        ]
    except (OSError, RuntimeError, ValueError):
        return []
    return sorted(found)


def _named(quoted: str | None, bare: str | None) -> tuple[str, Path] | None:
    """The name of a file and its path; None where it is no file's."""
    for name in [quoted] if quoted else [bare or "", (bare or "").rstrip(_PUNCTUATION)]:
        try:
            path = Path(name).expanduser()
            if name and path.exists():
                return name, path
        except (OSError, RuntimeError, ValueError):
            # Too long for a path, no such user, or a zero byte.
            continue
    name = quoted or (bare or "").rstrip(_PUNCTUATION)
    if quoted or "/" in name or "." in name:
        raise UsageError(f"There is no file {printable(name)}; {_AS_TEXT}")
    return None


def _block(name: str, path: Path) -> str:
    shown = printable(name)
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise UsageError(f"{shown} is a folder; name a file in it, or {_AS_TEXT}")
        if not stat.S_ISREG(about.st_mode):
            raise UsageError(f"{shown} is no ordinary file; {_AS_TEXT}")
        if about.st_size > MOST_BYTES:
            raise UsageError(f"{shown} has {figures.size(about.st_size)}; at most 1 MiB can be sent.")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"Cannot read {shown} ({error.strerror}); make it readable.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{shown} is no text file, and only text can be sent.") from error
    if "\0" in text:
        raise UsageError(f"{shown} is no text file, and only text can be sent.")
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text) or [""]))
    return f"{name}:\n{fence}{path.suffix[1:]}\n{text.rstrip()}\n{fence}"
