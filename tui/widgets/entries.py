"""What the transcript is made of, as rows of a given width: questions, replies, notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from localspec.text import printable
from tui import figures
from tui.conversation import Message
from tui.folding import folded
from tui.markdown import Line, MarkdownRenderer, MarkdownStream, MarkdownStyles
from tui.markdown.lines import BLANK, indent, pad, styled, to_line, wrap

MARGIN = 2
"""Columns of decoration before the text of every entry."""

MEASURE = 104
"""Widest text in columns; longer lines are hard to read."""


@dataclass(frozen=True, slots=True)
class EntryStyles:
    """Styles of the transcript: Markdown's, and those of what stands around it."""

    markdown: MarkdownStyles
    question: Style
    question_bar: Style
    footer: Style
    note: Style
    error: Style


class Entry(Protocol):
    """One thing in the transcript."""

    def render(self, styles: EntryStyles, width: int) -> list[Line]:
        """All rows, at most `width` cells wide."""


class Question:
    """What the user said, exactly as typed; of a long text its beginning and its end.

    Args:
        text: all of it.
        mark: which version of the message it is, in short; "" where it is the only one.
    """

    def __init__(self, text: str, mark: str = "") -> None:
        self._text = printable(folded(text))
        self._mark = mark

    def render(self, styles: EntryStyles, width: int) -> list[Line]:
        """Rows on a ground of their own, with a bar before them."""
        text = styled(self._text, styles.question)
        bar = Segment("▌ ", styles.question_bar)
        room = _measure(width)
        rows = [pad(to_line(row, glue), room, styles.question) for row, glue in wrap(text, room - 1)]
        if self._mark:
            rows.append(to_line(styled(self._mark, styles.footer), "\n"))
        return [*indent(rows, bar, bar, decoration=True), BLANK]


class Answer:
    """A reply; `growing` until it is final."""

    def __init__(self, message: Message) -> None:
        self._source = message.text
        self.growing = message.status == "streaming"
        self._footer = "" if self.growing else footer(message)
        self._stream: MarkdownStream | None = None
        self._width = 0

    def render(self, styles: EntryStyles, width: int) -> list[Line]:
        """Rows of its Markdown, and the figures under it."""
        self._width = _measure(width)
        self._stream = MarkdownStream(MarkdownRenderer(styles.markdown, self._width))
        self._stream.append(printable(self._source))
        if not self.growing:
            self._stream.finish()
        return self._rows(0, styles)

    def grow(self, text: str, styles: EntryStyles) -> tuple[int, list[Line]]:
        """Add text; returns the index of the first row that changed, and all rows from there on."""
        self._source += text
        if self._stream is None:
            return 0, []
        changed = self._stream.append(printable(text))
        return changed, self._rows(changed, styles)

    def end(self, message: Message, styles: EntryStyles, width: int) -> list[Line]:
        """Make the reply final; returns all rows."""
        self._source, self._footer, self.growing = message.text, footer(message), False
        return self.render(styles, width)

    def _rows(self, start: int, styles: EntryStyles) -> list[Line]:
        margin = Segment(" " * MARGIN)
        lines = self._stream.lines[start:] if self._stream else []
        if not self.growing:
            figures_below = wrap(styled(self._footer, styles.footer), self._width)
            lines = [*lines, *(to_line(row, glue) for row, glue in figures_below), BLANK]
        return indent(lines, margin, margin, decoration=True)


class Notice:
    """A sentence from the app itself."""

    def __init__(self, text: str, *, error: bool) -> None:
        self._text = printable(text)
        self._error = error

    def render(self, styles: EntryStyles, width: int) -> list[Line]:
        """Rows, marked as the app's by a sign."""
        style = styles.error if self._error else styles.note
        rows = [to_line(row, glue) for row, glue in wrap(styled(self._text, style), _measure(width))]
        sign = Segment("! " if self._error else "· ", style)
        return [*indent(rows, sign, Segment("  "), decoration=True), BLANK]


GREETING_WIDTH = 72

_GREETING = (
    "Everything is computed on this machine. Speculation guesses several tokens ahead and the model checks "
    "them together: the same answer, and sooner where the guesses come true. f2 switches it off and on, "
    "at any time."
)


class Greeting:
    """What an empty chat shows."""

    def __init__(self, model_name: str) -> None:
        self._model_name = printable(model_name)

    def render(self, styles: EntryStyles, width: int) -> list[Line]:
        """Rows of a short introduction."""
        heading, dim = styles.markdown.heading, styles.markdown.dim
        texts = (styled(f"Chat with {self._model_name}", heading), Text(end=""), styled(_GREETING, dim))
        margin = Segment(" " * MARGIN)
        room = min(_measure(width), GREETING_WIDTH)
        rows = [to_line(row, glue) for text in texts for row, glue in wrap(text, room)]
        return [BLANK, *indent(rows, margin, margin)]


def version_mark(message: Message) -> str:
    """Which of its versions a message is, such as 2/3; "" where there is one only."""
    return f"‹ {message.version}/{message.versions} ›" if message.versions > 1 else ""


def footer(message: Message) -> str:
    """The figures under a reply: version, speed, length, what speculation did, and why it ended early."""
    stats = message.stats or {}
    parts = [mark] if (mark := version_mark(message)) else []
    rate, tokens = _number(stats, "tokens_per_second"), _number(stats, "generated_tokens")
    if rate is not None:
        parts.append(f"{figures.rate(rate)} tok/s")
    if tokens:
        parts.append(f"{tokens:.0f} tokens")
    acceptance, length = _number(stats, "acceptance_rate"), _number(stats, "acceptance_length")
    if acceptance is not None:
        parts.append(f"{figures.percent(acceptance)} accepted")
    if length is not None:
        parts.append(f"{figures.decimal(length)} per pass")
    if stats.get("exact") is False:
        parts.append(f"lossy ({stats.get('verify')})")
    if message.status == "failed":
        parts.append("not finished")
    elif message.status == "cancelled":
        parts.append("stopped")
    elif stats.get("finish_reason") == "length":
        parts.append("length limit reached")
    elif stats.get("finish_reason") == "context":
        parts.append("context full")
    return " · ".join(parts)


def _number(stats: dict[str, Any], name: str) -> float | None:
    value = stats.get(name)
    return float(value) if isinstance(value, int | float) else None


def _measure(width: int) -> int:
    return max(min(width - 2 * MARGIN, MEASURE), 8)
