"""Work that takes minutes, shown on standard error: a bar with the time left; lines where nobody watches."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol


class Work(Protocol):
    """How far something is: share done, seconds left where they are known, and what is at work."""

    @property
    def done(self) -> float:
        """From 0 to 1."""

    @property
    def seconds_left(self) -> float | None:
        """An estimate."""

    @property
    def what(self) -> str:
        """In words."""


@contextmanager
def long_work(*, every_s: float | None = None) -> Iterator[Callable[[Work], None]]:
    """Takes news of the work for as long as the block runs.

    Args:
        every_s: seconds between two lines where there is no terminal; None: a line whenever something else is
            at work.
    """
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _Lines(every_s).show
        return
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f} %"),
        # The names of a user's prompts are no markup.
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        task = bars.add_task("starting", total=1.0)
        yield lambda now: bars.update(task, completed=now.done, description=_words(now))


class _Lines:
    """Progress for logs and pipes."""

    def __init__(self, every_s: float | None) -> None:
        self._every_s = every_s
        self._last = ""
        self._when = float("-inf")

    def show(self, now: Work) -> None:
        """Print what is new."""
        # A share of the work at the end of the sentence is for those who watch.
        what = now.what.split(", ")[0] if now.what.endswith("%") else now.what
        moment = time.monotonic()
        due = what != self._last if self._every_s is None else moment - self._when >= self._every_s
        if due:
            self._last, self._when = what, moment
            sys.stderr.write(f"{now.done:4.0%}  {_words(now)}\n")
            sys.stderr.flush()


def _words(now: Work) -> str:
    if now.seconds_left is None:
        return now.what
    minutes, seconds = divmod(round(now.seconds_left), 60)
    return f"{minutes}:{seconds:02d} left   {now.what}"
