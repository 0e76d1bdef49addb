"""Tables, as wide as their text and never wider than the room there is.

A table of more columns than there is room for is drawn in bands, one below the other, each with as many
columns as fit and with the first column before them. One of thousands of cells is shown as text.
"""

from __future__ import annotations

from collections.abc import Sequence

from markdown_it.token import Token
from rich.style import Style
from rich.text import Text

from tui.markdown.inline import inline_text
from tui.markdown.lines import BLANK, Line, MarkdownStyles, fold, styled, to_line, wrap

_CELLS = ("th_open", "td_open")
_BETWEEN = " │ "
_CROSSING = "─┼─"

_NARROWEST = 8
"""Cells that a column keeps, where its text has as many."""

MOST_CELLS = 2000
"""Of a table that is laid out: with more, that would hold up the app for a good part of a second."""


def table_rows(tokens: Sequence[Token], styles: MarkdownStyles, width: int, base: Style) -> list[Line]:
    """Rows of a table: its head, a rule, its body."""
    if sum(token.type in _CELLS for token in tokens) > MOST_CELLS:
        return _text_rows(tokens, styles, width, base)
    table = _cells(tokens, styles, base)
    natural = [max(_natural(row[column]) for row in table) for column in range(len(table[0]))]
    rows: list[Line] = []
    for band in _bands(natural, width):
        if rows:
            rows.append(BLANK)
        rows += _band_rows([[row[column] for column in band] for row in table], natural, band, styles, width)
    return rows


def _text_rows(tokens: Sequence[Token], styles: MarkdownStyles, width: int, base: Style) -> list[Line]:
    """What the cells say, as it was written, with bars between them."""
    rows: list[Line] = []
    texts: list[str] = []
    for index, token in enumerate(tokens):
        if token.type in _CELLS:
            texts.append(tokens[index + 1].content)
        elif token.type == "tr_close":
            style = base if rows else base + styles.subheading
            rows += [to_line(row, glue) for row, glue in fold(styled(" | ".join(texts), style), width)]
            texts = []
    return rows


def _band_rows(
    table: list[list[Text]], natural: list[int], band: list[int], styles: MarkdownStyles, width: int
) -> list[Line]:
    widths = _widths([natural[column] for column in band], width - len(_BETWEEN) * (len(band) - 1))
    between = styled(_BETWEEN, styles.dim)
    rows: list[Line] = []
    for index, row in enumerate(table):
        rows += _row(row, widths, between)
        if index == 0:
            rule = _CROSSING.join("─" * column for column in widths)
            rows.append(to_line(styled(rule, styles.dim)))
    return rows


def _bands(natural: list[int], width: int) -> list[list[int]]:
    """Columns that are drawn side by side; none is cut to less than `_NARROWEST` cells."""
    least = [min(max(cells, 1), _NARROWEST) for cells in natural]
    # The first column tells the rows apart, where it leaves room for others.
    head = [0] if least[0] + len(_BETWEEN) + _NARROWEST <= width else []
    bands: list[list[int]] = []
    band: list[int] = []
    used = 0
    for column, cells in enumerate(least):
        if band and used + len(_BETWEEN) + cells > width and band != head:
            bands.append(band)
            band = list(head)
            used = sum(least[place] for place in band)
        used += cells + (len(_BETWEEN) if band else 0)
        band.append(column)
    return [*bands, band]


def _cells(tokens: Sequence[Token], styles: MarkdownStyles, base: Style) -> list[list[Text]]:
    table: list[list[Text]] = []
    for index, token in enumerate(tokens):
        if token.type == "tr_open":
            table.append([])
        elif token.type in _CELLS:
            style = base + styles.subheading if token.type == "th_open" else base
            cell = inline_text(tokens[index + 1], styles, style)
            alignment = str(token.attrGet("style") or "")
            cell.justify = "right" if "right" in alignment else "center" if "center" in alignment else "left"
            table[-1].append(cell)
    return table


def _natural(cell: Text) -> int:
    return max((line.cell_len for line in cell.split("\n", allow_blank=True)), default=0)


def _widths(natural: list[int], room: int) -> list[int]:
    """The widest columns give way first, down to one cell each."""
    widths = [max(width, 1) for width in natural]
    while sum(widths) > room and max(widths) > 1:
        widest = max(widths)
        second = max((width for width in widths if width < widest), default=1)
        sharing = widths.count(widest)
        excess = sum(widths) - room
        cut = min(widest - second, -(-excess // sharing))
        widths = [width - cut if width == widest else width for width in widths]
    return widths


def _row(cells: list[Text], widths: list[int], between: Text) -> list[Line]:
    wrapped = []
    for cell, width in zip(cells, widths, strict=True):
        justify, cell.justify = cell.justify, None
        wrapped.append([_aligned(row, width, justify or "left") for row, _ in wrap(cell, width)])
    height = max(len(column) for column in wrapped)
    rows = []
    for index in range(height):
        parts = [
            column[index] if index < len(column) else Text(" " * width, end="")
            for column, width in zip(wrapped, widths, strict=True)
        ]
        row = Text(end="")
        for column, part in enumerate(parts):
            row.append_text(between if column else Text()).append_text(part)
        rows.append(to_line(row))
    return rows


def _aligned(row: Text, width: int, justify: str) -> Text:
    row.rstrip()
    spare = max(width - row.cell_len, 0)
    before = spare if justify == "right" else spare // 2 if justify == "center" else 0
    row.pad_left(before)
    row.pad_right(spare - before)
    return row
