"""Blocks of reasoning as rows: folded to one, or with their text."""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style

from localspec.text import printable
from tui import figures
from tui.keymap import KEYS
from tui.markdown import Line
from tui.markdown.lines import indent, styled, to_line, wrap
from tui.markdown.plain import GrowingText
from tui.reasoning import Span

PEEK = 2
"""Rows of a block that is being written which are shown below its heading."""

_STEP = 1000
"""Characters: where the end of a very long line begins to be wrapped moves by so many, not by one."""


class Thought:
    """One block; drawn again only from the line on that still grows.

    Args:
        heading: style of its first row.
        text: style of what was thought.
        bar: style of the bar before it.
        width: cells, at most, without the margin.
        margin: stands before every row.
    """

    def __init__(self, heading: Style, text: Style, bar: Style, width: int, margin: Segment) -> None:
        self._heading, self._style, self._width = heading, text, width
        self._bar, self._margin = Segment("▎ ", bar), margin
        self._text = GrowingText(text, width - 2, self._barred)

    def rows(self, text: str, span: Span, *, state: str, unfolded: bool) -> list[Line]:
        """All rows; the first is the heading.

        Args:
            text: what was thought so far.
            span: how long.
            state: "thinking" while it grows, "ended", or "stopped" where the reply ended within it.
            unfolded: show all of the text.
        """
        words = heading(span, state, unfolded=unfolded)
        # Said while there is nothing else to look at: the key that unfolds.
        key = f" · {KEYS['view.reasoning']}"
        if state == "thinking" and len(words) + len(key) <= self._width:
            words += key
        rows = wrap(styled(words, self._heading), self._width)
        first = self._indented([to_line(row, glue) for row, glue in rows])
        if unfolded:
            return [*first, *self._text.rows(printable(text.lstrip("\n")))]
        return [*first, *self._peek(text)] if state == "thinking" else first

    def _peek(self, text: str) -> list[Line]:
        end = text.rstrip()
        rows: list[Line] = []
        while end and len(rows) < PEEK:
            start = end.rfind("\n") + 1
            begin = max(start, (len(end) // _STEP - 1) * _STEP)
            rows = [*self._wrapped(end[begin:]), *rows]
            end = end[:start].rstrip()
        return rows[-PEEK:]

    def _wrapped(self, text: str) -> list[Line]:
        return GrowingText(self._style, self._width - 2, self._barred).rows(printable(text))

    def _barred(self, rows: list[Line]) -> list[Line]:
        return self._indented(indent(rows, self._bar, self._bar, decoration=True))

    def _indented(self, rows: list[Line]) -> list[Line]:
        return indent(rows, self._margin, self._margin, decoration=True)


def heading(span: Span, state: str, *, unfolded: bool) -> str:
    """The first row of a block, in words."""
    sign = "▾" if unfolded else "▸"
    tokens = figures.DASH if span.tokens is None else f"{span.tokens}"
    noun = "token" if span.tokens == 1 else "tokens"
    if state == "thinking":
        seconds = figures.DASH if span.seconds is None else f"{span.seconds:.0f}"
        return f"{sign} Thinking  {seconds} s · {tokens} {noun}"
    stopped = ", not to the end" if state == "stopped" else ""
    return f"{sign} Thought for {_time(span.seconds)} ({tokens} {noun}){stopped}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return figures.DASH
    return f"{seconds:.1f} s" if seconds < 9.95 else figures.duration(seconds)
