"""The list above the prompt: what the word before the cursor could go on as."""

from __future__ import annotations

from collections.abc import Sequence

from tui.completion import Suggestion
from tui.widgets.rows import Row, Rows, cut

MOST_ROWS = 6
LOW = 20
"""Rows of the window below which fewer suggestions are shown."""

FEW_ROWS = 2
TEXT_COLUMNS = 20


class Suggestions(Rows):
    """A few rows, hidden where there is nothing to suggest.

    Attributes:
        moved: whether the user has gone to one.
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._all: list[Suggestion] = []
        self._at = 0
        self.moved = False
        self.display = False

    @property
    def chosen(self) -> Suggestion | None:
        """The one that is marked."""
        return self._all[self._at] if self._all else None

    def offer(self, found: Sequence[Suggestion]) -> None:
        """Show these from the first on; none hides the list."""
        self._all, self._at, self.moved = list(found), 0, False
        self.display = bool(found)
        self._draw()

    def move(self, step: int) -> None:
        """Mark the next one or the one before, around the ends."""
        self._at = (self._at + step) % len(self._all)
        self.moved = True
        self._draw()

    def on_resize(self) -> None:
        """Fit the rows into the width."""
        self._draw()

    def _draw(self) -> None:
        if not self._all:
            return
        room = FEW_ROWS if self.app.size.height < LOW else MOST_ROWS
        count = min(room, len(self._all))
        first = min(max(self._at - count + 1, 0), len(self._all) - count)
        self.styles.height = count
        width = self.size.width or self.app.size.width
        self.show([cut(self._row(place), width) for place in range(first, first + count)])

    def _row(self, place: int) -> Row:
        one = self._all[place]
        marked = place == self._at
        row: list[tuple[str, str]] = [("› " if marked else "  ", "accent")]
        row.append((one.shown.ljust(TEXT_COLUMNS), "value" if marked else "muted"))
        if one.about:
            row.append((f" {one.about}", "muted"))
        if marked:
            row.append(("   tab", "key"))
            if len(self._all) > 1:
                row.append((f"  {place + 1} of {len(self._all)}", "muted"))
        return row
