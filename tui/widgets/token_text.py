"""A reply as flowing tokens, one of which is under the cursor; only rows in view are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from localspec.text import printable
from tui.token_flow import MARKS, Piece, TokenFlow
from tui.token_words import flowed
from tui.tokens import Item, Record, TokenBook
from tui.widgets.rows import Rows

KINDS = tuple(MARKS)


class TokenRows(Rows):
    """Rows that can also be set in the styles of tokens."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"rows--{kind}" for kind in KINDS}


class TokenText(ScrollView, can_focus=False):
    """The tokens of one reply.

    The cursor stands on a token; while it stands on the last one it follows the reply.

    Attributes:
        cursor: number of the token under the cursor among all of the reply's, rejected ones included.
        pointed: the same of the mouse, None where it is elsewhere.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        *(f"tokens--{kind}" for kind in KINDS),
        "tokens--blank",
        "tokens--pointed",
        "tokens--sentence",
    }

    class Moved(Message):
        """Another token is under the cursor or the mouse."""

    def __init__(self, book: TokenBook, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._book = book
        self._record: Record | None = None
        self._flow = TokenFlow(80, ghosts=True)
        self._passes = self._place = 0
        self._sentence = ""
        self._following = True
        self._styles_by_name: dict[str, Style] = {}
        self.cursor = 0
        self.pointed: int | None = None

    # --- what is shown

    @property
    def text(self) -> str:
        """All rows, without styles."""
        if self._sentence:
            return "\n".join("".join(text for text, _ in row) for row in self._sentence_rows())
        return "\n".join("".join(piece.text for piece in row) for row in self._flow.rows)

    @property
    def ghosts(self) -> bool:
        """Whether rejected tokens are shown."""
        return self._flow.ghosts

    @property
    def item(self) -> Item | None:
        """The token under the mouse, or else under the cursor."""
        number = self.cursor if self.pointed is None else self.pointed
        items = self._flow.items
        return items[number] if 0 <= number < len(items) and self._flow.shown(number) else None

    def show(self, record: Record | None, sentence: str) -> None:
        """Show a reply as it is now, or a sentence where it has no tokens yet."""
        if record is not self._record:
            self._record, self._following = record, True
            self._set_anew()
            self._following = record is None or not record.ended
            if not self._following:
                self.cursor = self._next_shown(-1, 1)
                self.scroll_to(y=0, animate=False, immediate=True)
        self._grow()
        sentence = "" if self._flow.items else sentence
        if sentence != self._sentence:
            self._sentence = sentence
            self.refresh()

    def toggle_ghosts(self) -> None:
        """Show or hide the rejected tokens."""
        self._flow.ghosts = not self._flow.ghosts
        self._set_anew()

    # --- the cursor

    def step(self, direction: int) -> None:
        """To the next (1) or the last (-1) token."""
        self._go(self._next_shown(self.cursor, direction))

    def line(self, direction: int) -> None:
        """To the row below (1) or above (-1), or several of them, at the same place."""
        flow = self._flow
        row, cell = flow.row_of(self.cursor), flow.start_of(self.cursor)
        way = 1 if direction > 0 else -1
        wanted = min(max(row + direction, 0), len(flow.rows) - 1)
        while wanted != row:
            found = flow.at(wanted, cell)
            if found is not None and found != self.cursor:
                self._go(found)
                return
            if wanted in (0, len(flow.rows) - 1):
                break
            wanted += way
        self.end(way)

    def page(self, direction: int) -> None:
        """A screenful down (1) or up (-1)."""
        self.line(direction * max(self.size.height - 2, 1))

    def end(self, direction: int) -> None:
        """To the first (-1) or the last (1) token."""
        self._go(self._next_shown(len(self._flow.items) if direction > 0 else -1, -direction))

    def correction(self, direction: int) -> bool:
        """To the next (1) or the last (-1) correction; False where there is none."""
        return self._seek(direction, lambda item, _: item.kind == "correction")

    def draft(self, direction: int) -> bool:
        """To the beginning of the next (1) or the last (-1) draft; False where there is none."""
        return self._seek(direction, lambda item, _: item.depth == 0)

    def _seek(self, direction: int, wanted: Callable[[Item, int], bool]) -> bool:
        items, number = self._flow.items, self.cursor + direction
        while 0 <= number < len(items):
            if self._flow.shown(number) and wanted(items[number], number):
                self._go(number)
                return True
            number += direction
        return False

    def _next_shown(self, number: int, direction: int) -> int:
        """The first token from `number` on in a direction that is shown; the cursor where there is none."""
        found = number + direction
        while 0 <= found < len(self._flow.items):
            if self._flow.shown(found):
                return found
            found += direction
        return min(self.cursor, max(len(self._flow.items) - 1, 0))

    def _go(self, number: int) -> None:
        self.pointed = None
        self.cursor = number
        self._following = number >= self._next_shown(len(self._flow.items), -1)
        self._reveal()
        self.refresh()
        self.post_message(self.Moved())

    def _reveal(self) -> None:
        """Bring the cursor into view, with a row beside it where there is one."""
        row, top, height = self._flow.row_of(self.cursor), self.scroll_offset.y, self.size.height
        if self._following:
            row = max(row, len(self._flow.rows) - 1)
        if row <= top:
            top = row - 1
        elif row >= top + height - 1:
            top = row - height + 2
        top = min(max(top, 0), self.max_scroll_y)
        if top != self.scroll_offset.y:
            self.scroll_to(y=top, animate=False, immediate=True)

    # --- the mouse

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Tell about the token under the mouse."""
        self._point(self._under(event))

    def on_leave(self) -> None:
        """Tell about the cursor's token again."""
        self._point(None)

    def on_click(self, event: events.Click) -> None:
        """Put the cursor there."""
        found = self._under(event)
        if found is not None:
            self._go(found)

    def _under(self, event: events.MouseEvent) -> int | None:
        offset = event.get_content_offset(self)
        if offset is None or self._sentence:
            return None
        row = offset.y + self.scroll_offset.y
        if not 0 <= row < len(self._flow.rows):
            return None
        pieces = self._flow.rows[row]
        return next((one.item for one in pieces if one.start <= offset.x < one.start + one.width), None)

    def _point(self, number: int | None) -> None:
        if number != self.pointed:
            self.pointed = number
            self.refresh()
            self.post_message(self.Moved())

    # --- rows

    def on_resize(self) -> None:
        """Set everything anew for another width."""
        self._set_anew()

    def _set_anew(self) -> None:
        self._flow = TokenFlow(self.scrollable_content_region.width, ghosts=self._flow.ghosts)
        self._passes = self._place = 0
        self.pointed = None
        self._grow()
        if not self._flow.shown(self.cursor):
            self.cursor = self._next_shown(self.cursor, 1)
        if not self._flow.shown(self.cursor):
            self.cursor = self._next_shown(self.cursor, -1)
        self._reveal()
        self.refresh()
        self.post_message(self.Moved())

    def _grow(self) -> None:
        """Add the passes that are spelled by now."""
        record, flow = self._record, self._flow
        first, before = len(flow.rows) - 1, len(flow.items)
        while record is not None and self._passes < len(record.passes):
            items = list(record.items(self._passes, self._place))
            spelled = [self._book.spelling(record.path, item.id) for item in items]
            known = [one for one in spelled if one is not None]
            if len(known) < len(spelled):
                break
            for place, (item, spelling) in enumerate(zip(items, known, strict=True)):
                more = place + 1 < len(items) and items[place + 1].ghost
                flow.add(item, spelling, last_ghost=item.ghost and not more)
            self._place += len(record.passes[self._passes].tokens)
            self._passes += 1
        if len(flow.items) == before:
            return
        self.virtual_size = Size(self.scrollable_content_region.width, len(flow.rows))
        self._scroll_update(self.virtual_size)
        if self._following:
            self.cursor = self._next_shown(len(flow.items), -1)
            self._reveal()
        top = max(min(first, flow.row_of(self.cursor)) - self.scroll_offset.y - 1, 0)
        self.refresh(Region(0, top, self.size.width, max(self.size.height - top, 1)))

    def _sentence_rows(self) -> list[list[tuple[str, str]]]:
        words = [(word, "") for word in printable(self._sentence).split()]
        return [list(row) for row in flowed(words, min(self.size.width, 72), gap=" ")]

    # --- drawing

    def notify_style_update(self) -> None:
        """Forget styles when the theme changes."""
        super().notify_style_update()
        self._styles_by_name.clear()

    def render_line(self, y: int) -> Strip:
        """One row of the view."""
        base, width = self.rich_style, self.size.width
        row = self.scroll_offset.y + y
        if self._sentence:
            rows = self._sentence_rows()
            style = base + self._style("sentence")
            segments = [Segment(text, style) for text, _ in rows[row]] if row < len(rows) else []
            return Strip(segments).adjust_cell_length(width, base)
        if row >= len(self._flow.rows):
            return Strip.blank(width, base)
        segments = [Segment(one.text, base + self._style_of(one)) for one in self._flow.rows[row]]
        return Strip(segments).adjust_cell_length(width, base)

    def _style_of(self, piece: Piece) -> Style:
        style = self._style(self._flow.items[piece.item].kind)
        if piece.style == "mark":
            style += Style(underline=False, strike=False)
        if piece.item == self.cursor:
            return style + Style(reverse=True, underline=False)
        if piece.style == "blank":
            style += self._style("blank")
        return style + self._style("pointed") if piece.item == self.pointed else style

    def _style(self, name: str) -> Style:
        style = self._styles_by_name.get(name)
        if style is None:
            style = self.get_component_rich_style(f"tokens--{name}", partial=True)
            self._styles_by_name[name] = style
        return style
