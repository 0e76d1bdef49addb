"""The base of everything that shows live figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from localspec.text import printable

Row = Sequence[tuple[str, str]]
"""A row as pieces of text, each with the name of its style: one of `Rows.STYLES`, or "" for none."""

BLANK_ROW: Row = ()


def row_width(row: Row) -> int:
    """Cells that a row takes."""
    return sum(cell_len(text) for text, _ in row)


def spread(left: Row, right: Row, width: int) -> Row:
    """A row with `right` at the right edge; `left` is cut where both do not fit."""
    room = max(width - row_width(right), 0)
    left = cut(left, max(room - 1, 0))
    return (*left, (" " * (room - row_width(left)), ""), *right)


def cut(row: Row, width: int) -> Row:
    """The row, ended with an ellipsis where it is wider than `width`."""
    if row_width(row) <= width:
        return row
    pieces: list[tuple[str, str]] = []
    room = width
    for text, style in row:
        cells = cell_len(text)
        if cells >= room:
            if room > 0:
                pieces.append((set_cell_size(text, room - 1) + "…", style))
            break
        pieces.append((text, style))
        room -= cells
    return tuple(pieces)


class Rows(Widget):
    """A widget of fixed size whose rows are set from outside; only rows that changed are drawn again."""

    STYLES: ClassVar[tuple[str, ...]] = (
        "title", "value", "muted", "faint", "good", "warning", "bad", "accent", "bar", "track", "key",
    )  # fmt: skip
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"rows--{name}" for name in STYLES}

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._rows: list[Row] = []
        self._styles_by_name: dict[str, Style] = {}

    @property
    def text(self) -> str:
        """What is shown, without styles."""
        return "\n".join("".join(text for text, _ in row) for row in self._rows)

    def show(self, rows: Sequence[Row]) -> None:
        """Replace the rows."""
        # Titles and file names are other people's text.
        new: list[Row] = [[(printable(text), style) for text, style in row] for row in rows]
        old, self._rows = self._rows, new
        for y in range(max(len(old), len(self._rows))):
            if y >= len(old) or y >= len(self._rows) or old[y] != self._rows[y]:
                self.refresh(Region(0, y, self.size.width, 1))

    def notify_style_update(self) -> None:
        """Forget styles when the theme changes."""
        super().notify_style_update()
        self._styles_by_name.clear()

    def render_line(self, y: int) -> Strip:
        """One row, as wide as the widget."""
        base = self._style("")
        if y >= len(self._rows):
            return Strip.blank(self.size.width, base)
        segments = [Segment(text, self._style(name)) for text, name in self._rows[y] if text]
        return Strip(segments).adjust_cell_length(self.size.width, base)

    def _style(self, name: str) -> Style:
        style = self._styles_by_name.get(name)
        if style is None:
            style = self.rich_style
            if name:
                style += self.get_component_rich_style(f"rows--{name}", partial=True)
            self._styles_by_name[name] = style
        return style
