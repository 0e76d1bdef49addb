"""What the commands of `localspec models` print with: tables, sizes, progress."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from localspec.models.progress import OnProgress, PullProgress

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A known model, or a source such as hf:OWNER/REPO/file.gguf.")
]
ModelArgument = Annotated[str, typer.Argument(metavar="NAME|PATH", help="A known model or a GGUF file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_LINE_EVERY_S = 5.0
_LEAST_ROOM = 20
"""Columns; where a terminal has fewer, its own breaking of lines is no worse."""


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as they need to be; in a terminal the last one is cut to the window."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in rows:
        line = "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        if room is not None and len(line) > room:
            line = f"{line[: room - 1]}…"
        typer.echo(line.rstrip())


def print_facts(facts: Mapping[str, str]) -> None:
    """A name and a text a line; in a terminal long texts go on under themselves."""
    width = max(map(len, facts), default=0)
    indent = " " * (width + 2)
    room = shutil.get_terminal_size().columns - len(indent) if sys.stdout.isatty() else 0
    for name, text in facts.items():
        lines = text.split("\n")
        if room >= _LEAST_ROOM:
            # Names of files and hashes stay whole, to be copied.
            lines = [part for line in lines for part in wrapped(line, room)]
        typer.echo(f"{name:<{width}}  {lines[0]}")
        for line in lines[1:]:
            typer.echo(indent + line)


def wrapped(line: str, room: int) -> list[str]:
    """A line in parts of at most `room` columns, as far as words allow; all but the first are indented."""
    parts = textwrap.wrap(line, room, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return parts or [""]


def print_json(value: Any) -> None:
    """A value as JSON for people and programs."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def readable(count: int | None) -> str:
    """Bytes for people, "" for none."""
    from localspec.models.disk import readable_size

    return readable_size(count) if count else ""


@contextmanager
def progress_display() -> Iterator[OnProgress]:
    """Shows progress on standard error: a bar in a terminal, else a line a stage and every few seconds."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _LinePrinter().show
        return
    from rich.progress import BarColumn, Progress, TextColumn

    # The text carries the figures: they are measured where the bytes arrive, not where they are drawn.
    columns = (BarColumn(bar_width=30), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show_progress(progress: PullProgress) -> None:
            bar.update(
                task,
                description=progress.text,
                total=progress.total_bytes,
                completed=progress.done_bytes,
            )

        yield show_progress


class _LinePrinter:
    """Progress for logs and pipes."""

    def __init__(self) -> None:
        self._stage = ""
        self._last = 0.0

    def show(self, progress: PullProgress) -> None:
        now = time.monotonic()
        if progress.stage == self._stage and now - self._last < _LINE_EVERY_S:
            return
        self._stage, self._last = progress.stage, now
        typer.echo(progress.text, err=True)
