"""Rows of entries that can be scrolled and selected, of which only those in view are drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollTo
from textual.selection import Selection
from textual.strip import Strip
from textual.theme import Theme

from tui.markdown import Line
from tui.widgets.drawn import Drawn
from tui.widgets.entries import Entry, EntryStyles
from tui.widgets.transcript_styles import NAMES, entry_styles

CACHED = 1000
"""Drawn rows that are kept for scrolling back and forth."""

MARK = "┃"
"""Stands before the rows of the marked entry."""


class EntryView(ScrollView, can_focus=False):
    """Entries as rows, following the end while the user is there.

    What changes is drawn again, and nothing is laid out: that keeps the app's share of the CPU small while a
    model runs on the same cores.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"transcript--{name}" for name in NAMES}

    # Without layout=True: the widget's own size never depends on its text.
    virtual_size = Reactive(Size(0, 0))

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._drawn = Drawn()
        self._cache: dict[int, Strip] = {}
        self._entry_styles: EntryStyles | None = None
        self._rendered_width = 0
        self._following = True
        self._marked: Entry | None = None

    @property
    def text(self) -> str:
        """All rows that are drawn, as text."""
        return "\n".join(line.text.rstrip() for line in self._drawn.lines)

    # --- scrolling ----------------------------------------------------------------------------------

    @property
    def at_end(self) -> bool:
        """Whether the last row is in view."""
        return self._drawn.whole_end and self.scroll_offset.y >= self.max_scroll_y

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling away from the end stops following it, coming back resumes."""
        super().watch_scroll_y(old_value, new_value)
        self._following = self.at_end

    def to_end(self) -> None:
        """Bring the last row into view, and keep it there."""
        if not self._drawn.whole_end:
            self._drawn.at_end()
            self._draw_all()
        self._following = True
        self._scroll(self.max_scroll_y)

    def page(self, direction: int) -> None:
        """Scroll by a screenful less two rows; at an end of what is drawn, further entries are drawn."""
        step = max(self.size.height - 2, 1)
        if direction < 0 and self.scroll_offset.y == 0:
            self._more()
        elif direction > 0 and self.scroll_offset.y >= self.max_scroll_y:
            self._later()
        self._scroll(self.scroll_offset.y + direction * step)

    def to_start(self) -> None:
        """Bring the very first row into view."""
        self._following = False
        if self._drawn.first:
            self._drawn.at_start()
            self._draw_all()
        self._scroll(0)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Draw earlier entries when the wheel reaches the top."""
        if self.scroll_offset.y == 0 and self._drawn.first:
            event.prevent_default()
            self._more()

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Draw later entries when the wheel reaches the end of those that are drawn."""
        if self.scroll_offset.y >= self.max_scroll_y and not self._drawn.whole_end:
            event.prevent_default()
            self._later()

    def on_scroll_to(self, event: ScrollTo) -> None:
        """The same for the scrollbar."""
        if event.y is not None and event.y <= 0:
            self.call_after_refresh(self._more)
        elif event.y is not None and event.y >= self.max_scroll_y:
            self.call_after_refresh(self._later)

    def _more(self) -> None:
        if self._drawn.first:
            top = self.scroll_offset.y
            added = self._drawn.earlier(self._styles, self._width)
            self._moved()
            self._scroll(top + added)

    def _later(self) -> None:
        if not self._drawn.whole_end:
            top = self.scroll_offset.y
            gone = self._drawn.later(self._styles, self._width)
            self._moved()
            self._scroll(top - gone)

    def _scroll(self, y: float) -> None:
        self.scroll_to(y=y, animate=False, immediate=True)

    # --- rows ---------------------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def _styles(self) -> EntryStyles:
        if self._entry_styles is None:
            self._entry_styles = entry_styles(self._style)
        return self._entry_styles

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style(f"transcript--{name}", partial=True)

    def _draw_all(self) -> None:
        self._rendered_width = self._width
        self._drawn.draw(self._styles, self._width)
        self._moved()

    def _moved(self) -> None:
        """Any row may be another one now."""
        self._changed(0, shorter=True)

    def _redraw_from(self, index: int) -> None:
        """Draw entries from `index` on; those before it stay as they are."""
        before = len(self._drawn.lines)
        start = self._drawn.redraw_from(index, self._styles, self._width)
        self._changed(start, shorter=len(self._drawn.lines) < before)

    def _redraw(self, entry: Entry) -> None:
        """Draw one entry anew, where it is drawn."""
        self._put(self._drawn.entries.index(entry), 0, entry.render(self._styles, self._width))

    def _put(self, index: int, changed: int, lines: Sequence[Line]) -> None:
        if not self._drawn.first <= index < self._drawn.end:
            self._drawn.entries[index].forget()
            return
        more = self._drawn.put(index, changed, lines)
        self._changed(self._drawn.rows_of(index)[0] + changed, shorter=more < 0)

    def _changed(self, start: int, *, shorter: bool) -> None:
        """Show what has changed from row `start` on."""
        following = self._following
        for y in [y for y in self._cache if y >= start]:
            del self._cache[y]
        self.virtual_size = Size(self._width, len(self._drawn.lines))
        self._scroll_update(self.virtual_size)
        if following and self._drawn.whole_end:
            self.to_end()
        top = start - self.scroll_offset.y
        height = self.size.height
        if shorter or top <= 0:
            self.refresh()
        elif top < height:
            self.refresh(Region(0, top, self.size.width, height - top))

    def on_resize(self) -> None:
        """Wrap everything anew when the width has changed, and stay at the same place."""
        if not self._width:
            return
        following = self._following
        if self._width != self._rendered_width:
            self._anew()
        if following:
            self.to_end()

    def _anew(self) -> None:
        place = self._drawn.place_of(self.scroll_offset.y)
        self._draw_all()
        self._scroll(self._drawn.row_of(place))

    def _entry_at(self, row: int) -> Entry | None:
        """The entry that has a row."""
        if not self._drawn.lines:
            return None
        return self._drawn.entries[self._drawn.place_of(row)[0]]

    # --- drawing ------------------------------------------------------------------------------------

    def notify_style_update(self) -> None:
        """Forget drawn rows: what lies under them has changed."""
        super().notify_style_update()
        self._cache.clear()

    def on_mount(self) -> None:
        """Follow the theme."""
        self.app.theme_changed_signal.subscribe(self, self._theme_changed)

    def _theme_changed(self, _theme: Theme) -> None:
        self._entry_styles = None
        if self._drawn.entries:
            self._anew()

    def render_line(self, y: int) -> Strip:
        """One row of the view."""
        index = self.scroll_offset.y + y
        strip = self._cache.get(index)
        if strip is None:
            if len(self._cache) >= CACHED:
                self._cache.clear()
            strip = self._cache[index] = self._draw(index)
        return strip

    def _draw(self, index: int) -> Strip:
        base = self.rich_style
        width = self._width
        if index >= len(self._drawn.lines):
            return Strip.blank(width, base)
        strip = self._drawn.lines[index].strip
        if self._marked is not None and self._marked is self._entry_at(index):
            strip = Strip.join([Strip([Segment(MARK, self._style("selected"))]), strip.crop(1)])
        strip = strip.apply_style(base)
        selection = self.text_selection
        span = selection.get_span(index) if selection is not None else None
        if span is not None:
            strip = _select(strip, span, self.screen.get_component_rich_style("screen--selection"))
        # Offsets tell the screen which text is under the mouse, for selecting.
        return strip.adjust_cell_length(width, base).apply_offsets(0, index)

    def selection_updated(self, selection: Selection | None) -> None:  # noqa: ARG002 - Textual's shape
        """Draw the selection."""
        self._cache.clear()
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Selected text, without decoration, and with wrapped lines joined."""
        pieces: list[str] = []
        for index, line in enumerate(self._drawn.lines):
            span = selection.get_span(index)
            if span is None:
                continue
            start, end = span
            text = line.text[: None if end == -1 else end][max(start, line.lead) :]
            pieces += [text.rstrip() if line.glue == "\n" else text, line.glue]
        return "".join(pieces).rstrip("\n"), "\n"


def _select(strip: Strip, span: tuple[int, int], style: Style) -> Strip:
    """The strip with the characters of `span` marked; -1 as its end is the end of the row."""
    start, end = span
    text = strip.text
    if not text:
        return strip
    first = strip.index_to_cell_position(min(start, len(text)))
    last = strip.index_to_cell_position(min(end, len(text))) if end != -1 else strip.cell_length
    if first >= last:
        return strip
    before, middle, after = strip.crop(0, first), strip.crop(first, last), strip.crop(last)
    return Strip.join([before, _restyle(middle, style), after])


def _restyle(strip: Strip, style: Style) -> Strip:
    return Strip([Segment(text, (own or Style()) + style) for text, own, _ in strip], strip.cell_length)
