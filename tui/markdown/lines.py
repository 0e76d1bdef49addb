"""Lines of styled text, the currency between Markdown and the transcript."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass

from rich.cells import get_character_cell_size
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.strip import Strip

TAB = 4

# Only measures and splits; nothing is ever printed with it.
_CONSOLE = Console(file=io.StringIO(), width=80, color_system="truecolor", legacy_windows=False)


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the transcript.

    Attributes:
        strip: what is drawn.
        glue: what stood between this row and the next in the source; a copy puts it back.
        lead: characters at the start that are decoration; a copy leaves them out.
    """

    strip: Strip
    glue: str = "\n"
    lead: int = 0

    @property
    def text(self) -> str:
        """The row without its styles."""
        return self.strip.text


BLANK = Line(Strip([]))


@dataclass(frozen=True, slots=True)
class MarkdownStyles:
    """Styles of everything Markdown can say; `code_tokens` is keyed by Pygments' names of token types."""

    text: Style
    strong: Style
    emphasis: Style
    strike: Style
    code: Style
    link: Style
    dim: Style
    heading: Style
    subheading: Style
    marker: Style
    code_block: Style
    code_label: Style
    code_tokens: dict[str, Style]


def styled(text: str, style: Style) -> Text:
    """Text in one style; unlike `Text(text, style)`, it keeps it when it is rendered."""
    return Text(end="").append(text, style)


def to_line(text: Text, glue: str = "\n") -> Line:
    """A row from text that holds no newline."""
    return Line(Strip([Segment(part, style) for part, style, _ in text.render(_CONSOLE)]), glue)


def wrap(text: Text, width: int) -> list[tuple[Text, str]]:
    """Rows of at most `width` cells, broken between words where possible, each with its glue."""
    rows: list[tuple[Text, str]] = []
    for line in _split(text):
        # Wrapping is the costly part, and most lines are short already.
        if line.cell_len <= width:
            rows.append((line, "\n"))
            continue
        pieces = list(line.wrap(_CONSOLE, max(width, 1), overflow="fold"))
        rows += zip(pieces, _glue(line.plain, pieces), strict=True)
    return rows


def fold(text: Text, width: int) -> list[tuple[Text, str]]:
    """Rows of code: cut at the width and nowhere else, so that every space survives."""
    rows: list[tuple[Text, str]] = []
    for line in _split(text):
        if line.cell_len <= width:
            rows.append((line, "\n"))
            continue
        pieces = list(line.divide(_cuts(line.plain, max(width, 2))))
        rows += zip(pieces, [""] * (len(pieces) - 1) + ["\n"], strict=True)
    return rows


def indent(lines: Iterable[Line], first: Segment, rest: Segment, *, decoration: bool = False) -> list[Line]:
    """Put `first` before the first row and `rest` before the others.

    What is put before a row that continues the row above it is decoration in any case.
    """
    indented = []
    continues = False
    for index, line in enumerate(lines):
        segment = rest if index else first
        lead = line.lead + (len(segment.text) if decoration or continues else 0)
        indented.append(Line(Strip([segment, *line.strip]), line.glue, lead))
        continues = line.glue != "\n"
    return indented


def pad(line: Line, width: int, style: Style, left: int = 0) -> Line:
    """The row with `left` spaces before it and as many after it as fill `width` cells."""
    segments = list(line.strip)
    if left:
        segments.insert(0, Segment(" " * left, style))
    missing = width - left - line.strip.cell_length
    if missing > 0:
        segments.append(Segment(" " * missing, style))
    return Line(Strip(segments), line.glue, line.lead + left)


def _split(text: Text) -> list[Text]:
    lines = list(text.split("\n", allow_blank=True))
    for line in lines:
        if "\t" in line.plain:
            line.expand_tabs(TAB)
    return lines


def _glue(plain: str, pieces: list[Text]) -> list[str]:
    # Wrapping drops the space that would stand beyond the edge; a copy has to put it back.
    glues, position = [], 0
    for piece in pieces[:-1]:
        position += len(piece.plain)
        lost = position
        while lost < len(plain) and plain[lost].isspace():
            lost += 1
        glues.append(plain[position:lost])
        position = lost
    return [*glues, "\n"]


def _cuts(plain: str, width: int) -> list[int]:
    cuts, used = [], 0
    for index, character in enumerate(plain):
        cells = get_character_cell_size(character)
        if used + cells > width:
            cuts.append(index)
            used = 0
        used += cells
    return cuts
