"""Where the reasoning of a reply is seen while it is written: never on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import typer

from localspec.text import printable


class Thoughts:
    """Reasoning that nobody is shown; what shows it is made of this."""

    def show(self, blocks: Sequence[str]) -> None:
        """Take note of all blocks so far; the last may have grown, and those before it stay as they are."""

    def rest(self) -> None:
        """Something else is written next."""


class DimmedThoughts(Thoughts):
    """Reasoning on standard error, which is a terminal, apart from the answer by its colour."""

    def __init__(self) -> None:
        # An empty NO_COLOR does not count, as no-color.org has it.
        plain = os.environ.get("TERM") == "dumb" or os.environ.get("NO_COLOR")
        self._before, self._after = ("", "") if plain else ("\x1b[2m", "\x1b[22m")
        self._block = self._shown = 0
        self._within = False

    def show(self, blocks: Sequence[str]) -> None:
        """Write what has come, without the blank lines around a block."""
        for number in range(self._block, len(blocks)):
            if number > self._block:
                self.rest()
                self._block, self._shown = number, 0
            text = blocks[number]
            end = len(text.rstrip())
            piece = text[self._shown : end]
            self._write(piece if self._shown else piece.lstrip())
            self._shown = max(self._shown, end)

    def rest(self) -> None:
        """End the line, and leave a blank one."""
        if self._within:
            sys.stderr.write("\n\n")
            sys.stderr.flush()
            self._within = False

    def _write(self, text: str) -> None:
        if text:
            sys.stderr.write(f"{self._before}{printable(text)}{self._after}")
            sys.stderr.flush()
            self._within = True


class SaidThoughts(Thoughts):
    """That the model reasons, in one word on standard error: all of it would be long to listen to."""

    def __init__(self) -> None:
        self._said = False

    def show(self, blocks: Sequence[str]) -> None:
        """Say it, once a reply."""
        if not self._said and any(block.strip() for block in blocks):
            self._said = True
            typer.echo("Thinking…", err=True)
