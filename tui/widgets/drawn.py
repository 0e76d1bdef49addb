"""Entries of a transcript, of which only those around the view are drawn as rows. No widget here."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from tui.markdown import Line
from tui.widgets.entries import Entry, EntryStyles

SHOWN = 60
"""Entries that are drawn at first, and at a time when the view reaches an end of what is drawn."""

MOST = 180
"""Entries that are drawn at most; beyond, those at the far end are let go."""


class Drawn:
    """A run of neighbouring entries as rows.

    Indices are those of `entries`, rows those of `lines`.

    Attributes:
        entries: all of them, oldest first.
        first, end: the run that is drawn.
        lines: its rows.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.first = self.end = 0
        self.lines: list[Line] = []
        self._starts: list[int] = []

    @property
    def whole_end(self) -> bool:
        """Whether the last entry is drawn."""
        return self.end == len(self.entries)

    def reset(self, entries: Sequence[Entry]) -> None:
        """Take other entries; nothing is drawn yet, and the last ones will be."""
        self.entries = list(entries)
        self.at_end()

    def at_start(self) -> None:
        """Let the first entries be the ones that are drawn, by the next `draw`."""
        self._clear()
        self.first, self.end = 0, min(SHOWN, len(self.entries))

    def at_end(self) -> None:
        """Let the last entries be the ones that are drawn, by the next `draw`."""
        self._clear()
        self.first, self.end = max(len(self.entries) - SHOWN, 0), len(self.entries)

    def draw(self, styles: EntryStyles, width: int) -> None:
        """Make all rows anew."""
        self.lines, self._starts = [], []
        for entry in self.entries[self.first : self.end]:
            self._starts.append(len(self.lines))
            self.lines += entry.render(styles, width)

    def add(self, entry: Entry, index: int | None = None) -> None:
        """Add an entry, before `index` or at the end; its rows are made by `redraw_from`."""
        at = len(self.entries) if index is None else index
        whole = self.whole_end
        self.entries.insert(at, entry)
        if at < self.first:
            self.first, self.end = self.first + 1, self.end + 1
        elif whole or at < self.end:
            self.end += 1

    def redraw_from(self, index: int, styles: EntryStyles, width: int) -> int:
        """Make rows of the drawn entries from `index` on; returns the first of these rows."""
        keep = max(index - self.first, 0)
        start = self._starts[keep] if keep < len(self._starts) else len(self.lines)
        del self.lines[start:], self._starts[keep:]
        for entry in self.entries[self.first + keep : self.end]:
            self._starts.append(len(self.lines))
            self.lines += entry.render(styles, width)
        return start

    def put(self, index: int, changed: int, lines: Sequence[Line]) -> int:
        """Replace an entry's rows from its row `changed` on; returns how many rows were added in all."""
        start, stop = self.rows_of(index)
        more = changed + len(lines) - (stop - start)
        self.lines[start + changed : stop] = lines
        for number in range(index - self.first + 1, len(self._starts)):
            self._starts[number] += more
        return more

    def earlier(self, styles: EntryStyles, width: int) -> int:
        """Draw entries before the first; returns how many rows come before the old ones."""
        first = max(self.first - SHOWN, 0)
        lines: list[Line] = []
        starts: list[int] = []
        for entry in self.entries[first : self.first]:
            starts.append(len(lines))
            lines += entry.render(styles, width)
        self._starts = [*starts, *(start + len(lines) for start in self._starts)]
        self.lines = lines + self.lines
        self.first = first
        for _ in range(self.end - self.first - MOST):
            self.end -= 1
            del self.lines[self._starts.pop() :]
            self.entries[self.end].forget()
        return len(lines)

    def later(self, styles: EntryStyles, width: int) -> int:
        """Draw entries behind the last; returns how many rows have gone before the old ones."""
        end = min(self.end + SHOWN, len(self.entries))
        for entry in self.entries[self.end : end]:
            self._starts.append(len(self.lines))
            self.lines += entry.render(styles, width)
        self.end = end
        return self.shorten()

    def shorten(self) -> int:
        """Let go of the first entries where too many are drawn; returns how many rows have gone."""
        count = self.end - self.first - MOST
        if count <= 0:
            return 0
        for entry in self.entries[self.first : self.first + count]:
            entry.forget()
        gone = self._starts[count]
        del self.lines[:gone]
        self._starts = [start - gone for start in self._starts[count:]]
        self.first += count
        return gone

    # --- places

    def rows_of(self, index: int) -> tuple[int, int]:
        """The first row of a drawn entry, and the one behind its last."""
        number = index - self.first
        last = number + 1 >= len(self._starts)
        return self._starts[number], len(self.lines) if last else self._starts[number + 1]

    def place_of(self, row: int) -> tuple[int, int]:
        """Index of the entry that has a row, and the row within it."""
        number = max(bisect_right(self._starts, row) - 1, 0)
        return self.first + number, row - (self._starts[number] if self._starts else 0)

    def row_of(self, place: tuple[int, int]) -> int:
        """The row at a place; the nearest one where it is gone."""
        index, offset = place
        if not self.first <= index < self.first + len(self._starts):
            return 0
        start, stop = self.rows_of(index)
        return min(start + offset, max(stop - 1, start))

    def _clear(self) -> None:
        for entry in self.entries[self.first : self.end]:
            entry.forget()
        self.lines, self._starts = [], []
