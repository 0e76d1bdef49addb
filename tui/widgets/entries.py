"""What the transcript is made of, as rows of a given width: questions, replies, notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from localspec.chat.thinking import Reasoning, opening_in, reasoning_of
from localspec.text import printable
from tui import figures, folding
from tui.conversation import Message
from tui.keymap import KEYS
from tui.markdown import Line, MarkdownRenderer, MarkdownStream, MarkdownStyles
from tui.markdown.lines import BLANK, indent, pad, styled, to_line, wrap
from tui.reasoning import Span, Thoughts, span_in
from tui.widgets.thoughts import Thought

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
    thought: Style
    thought_text: Style


class Entry:
    """One thing in the transcript.

    Attributes:
        unfolded: whether all of it is shown, its reasoning too.
        headings: the rows that fold and unfold it, as it was drawn last; none where there is nothing to fold.
    """

    unfolded = False
    headings: Sequence[int] = ()

    def render(self, styles: EntryStyles, width: int) -> list[Line]:
        """All rows, at most `width` cells wide."""
        raise NotImplementedError

    def forget(self) -> None:
        """Its rows are no longer shown: let go of what was made for them."""
        self.headings = ()


class Question(Entry):
    """What the user said, exactly as typed; a long text is folded at first.

    Args:
        text: all of it.
        mark: which version of the message it is, in short; "" where it is the only one.
    """

    def __init__(self, text: str, mark: str = "") -> None:
        self._text, self._long = text, folding.is_long(text)
        self._mark = mark

    def render(self, styles: EntryStyles, width: int) -> list[Line]:
        """Rows on a ground of their own, with a bar before them."""
        bar = Segment("▌ ", styles.question_bar)
        room = _measure(width)
        rows: list[Line] = []
        parts: folding.Parts = (self._text, "", "")
        if self._long:
            parts = (folding.unfolded if self.unfolded else folding.folded)(self._text)
            words = folding.heading(self._text, KEYS["view.reasoning"], whole=self.unfolded)
            rows += [to_line(row, glue) for row, glue in wrap(styled(words, styles.footer), room - 1)]
        headings = [0] if self._long else []
        for number, part in enumerate(parts):
            if number and not part:
                continue
            if number == 1:
                # What is left out is what one would click on.
                headings.append(len(rows))
            text = styled(printable(part), styles.question)
            rows += [pad(to_line(row, glue), room, styles.question) for row, glue in wrap(text, room - 1)]
        self.headings = headings
        if self._mark:
            rows.append(to_line(styled(self._mark, styles.footer), "\n"))
        return [*indent(rows, bar, bar, decoration=True), BLANK]


class Answer(Entry):
    """A reply; `growing` until it is final."""

    def __init__(self, message: Message, *, unfolded: bool = False) -> None:
        self._message = message
        self._thoughts: Thoughts | None = None
        self.growing = message.status == "streaming"
        self.unfolded = unfolded
        self.forget()

    def forget(self) -> None:
        """Let go of the rows."""
        self._reasoning: Reasoning | None = None
        self._stream: MarkdownStream | None = None
        self._streamed = self._head_rows = self._width = 0
        self._blocks: list[Thought] = []
        self.headings = ()

    def render(self, styles: EntryStyles, width: int) -> list[Line]:
        """Rows of its reasoning and its Markdown, and the figures under it."""
        self.forget()
        self._width = _measure(width)
        if self._thoughts is not None and self.growing:
            self._reasoning = self._thoughts.reasoning
        else:
            self._reasoning = reasoning_of(self._message.text, opening_in(self._message.stats))
        renderer, answer = MarkdownRenderer(styles.markdown, self._width), self._reasoning.answer
        if not self.growing:
            return [*self._head(styles), *self._rows(renderer.render(printable(answer)), styles)]
        self._stream = MarkdownStream(renderer)
        self._append(answer)
        return [*self._head(styles), *self._rows(self._stream.lines, styles)]

    def grow(self, thoughts: Thoughts, styles: EntryStyles) -> tuple[int, list[Line]]:
        """Take over what was written since; returns the first row that changed, and all from there on."""
        self._thoughts = thoughts
        stream, reasoning = self._stream, thoughts.reasoning
        if stream is None:
            return 0, []
        # Nothing above the answer changes once it has begun, but for its first rows.
        begun = reasoning is self._reasoning and bool(self._streamed)
        self._reasoning = reasoning
        changed = self._append(reasoning.answer)
        if begun:
            return self._head_rows + changed, self._rows(stream.lines[changed:], styles)
        return 0, [*self._head(styles), *self._rows(stream.lines, styles)]

    def end(self, message: Message) -> None:
        """Make the reply final; it is to be rendered."""
        self._message, self._thoughts, self.growing = message, None, False

    def _append(self, answer: str) -> int:
        """Draw what of the answer is not drawn yet; returns the first row that changed."""
        stream = self._stream
        if stream is None:
            return 0
        changed = stream.append(printable(answer[self._streamed :]))
        self._streamed = len(answer)
        return changed

    def _head(self, styles: EntryStyles) -> list[Line]:
        """Rows above the answer."""
        reasoning = self._reasoning
        lines: list[Line] = []
        headings: list[int] = []
        blocks = reasoning.blocks if reasoning else []
        last = len(blocks) - 1
        for number, text in enumerate(blocks):
            open_still = bool(reasoning and reasoning.thinking) and number == last
            state = "ended" if not open_still else "thinking" if self.growing else "stopped"
            if number == len(self._blocks):
                bar = styles.markdown.dim
                margin = Segment(" " * MARGIN)
                self._blocks.append(Thought(styles.thought, styles.thought_text, bar, self._width, margin))
            if state == "thinking" or text.strip():
                headings.append(len(lines))
                span = self._span(number)
                lines += self._blocks[number].rows(text, span, state=state, unfolded=self.unfolded)
                if state != "thinking":
                    lines.append(BLANK)
        self.headings, self._head_rows = headings, len(lines)
        return lines

    def _span(self, number: int) -> Span:
        thoughts = self._thoughts
        if thoughts is None:
            return span_in(self._message.stats, number)
        return thoughts.spans[number] if number < len(thoughts.spans) else Span()

    def _rows(self, lines: list[Line], styles: EntryStyles) -> list[Line]:
        margin = Segment(" " * MARGIN)
        if not self.growing:
            figures_below = wrap(styled(footer(self._message), styles.footer), self._width)
            lines = [*lines, *(to_line(row, glue) for row, glue in figures_below), BLANK]
        return indent(lines, margin, margin, decoration=True)


class Notice(Entry):
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
    "them together: the same answer, and sooner where the guesses come true. {} switches it off and on, "
    "at any time."
)


class Greeting(Entry):
    """What an empty chat shows."""

    def __init__(self, model_name: str) -> None:
        self._model_name = printable(model_name)

    def render(self, styles: EntryStyles, width: int) -> list[Line]:
        """Rows of a short introduction."""
        heading, dim = styles.markdown.heading, styles.markdown.dim
        words = _GREETING.format(KEYS["chat.speculation"])
        texts = (styled(f"Chat with {self._model_name}", heading), Text(end=""), styled(words, dim))
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
        parts.append(f"{tokens:.0f} {'token' if tokens == 1 else 'tokens'}")
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
