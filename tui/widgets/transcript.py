"""The transcript: one widget that keeps rows and draws only those in view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.theme import Theme

from tui.conversation import Message
from tui.markdown import Line, MarkdownStyles
from tui.widgets.entries import Answer, Entry, EntryStyles, Greeting, Notice, Question, version_mark

SHOWN = 60
"""Entries that are drawn at first; earlier ones follow when the user scrolls to the top."""

CACHED = 1000
"""Drawn rows that are kept for scrolling back and forth."""

_CODE_TOKENS = {
    "Token.Comment": "comment",
    "Token.Keyword": "keyword",
    "Token.Literal.Number": "number",
    "Token.Literal.String": "string",
    "Token.Name.Builtin": "builtin",
    "Token.Name.Class": "name",
    "Token.Name.Decorator": "builtin",
    "Token.Name.Function": "name",
    "Token.Name.Tag": "keyword",
    "Token.Name.Attribute": "name",
    "Token.Operator.Word": "keyword",
    "Token.Generic.Deleted": "deleted",
    "Token.Generic.Inserted": "string",
    "Token.Generic.Heading": "keyword",
}
"""Pygments' token types that have a colour, and the component class of it."""


class Transcript(ScrollView):
    """Questions, replies and notes, following the end while the user is there.

    A growing reply replaces its last rows; nothing else is drawn again, and nothing is laid out. That is what
    keeps the app's share of the CPU small while a model runs on the same cores.
    """

    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"transcript--{name}"
        for name in (
            "strong", "emphasis", "strike", "code", "link", "dim", "heading", "subheading", "marker",
            "code-block", "code-label", "question", "question-bar", "footer", "note", "error",
            *_CODE_TOKENS.values(),
        )
    }  # fmt: skip

    # Without layout=True: the widget's own size never depends on its text.
    virtual_size = Reactive(Size(0, 0))

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self.can_focus = False
        self._entries: list[Entry] = []
        self._first = 0
        self._starts: list[int] = []
        self._lines: list[Line] = []
        self._cache: dict[int, Strip] = {}
        self._entry_styles: EntryStyles | None = None
        self._rendered_width = 0
        self._following = True

    # --- content ------------------------------------------------------------------------------------

    def reset(self, messages: Sequence[Message], model_name: str) -> None:
        """Show a conversation, at its end."""
        self._entries = [
            Question(message.text, version_mark(message)) if message.role == "user" else Answer(message)
            for message in messages
        ] or [Greeting(model_name)]
        self._first = max(len(self._entries) - SHOWN, 0)
        self._render_all()
        self.to_end()

    def ask(self, text: str, reply: Message) -> None:
        """Add a question and the reply that is about to grow; the end comes into view."""
        if isinstance(self._entries[0], Greeting):
            # Notes may have come after it; they stay.
            del self._entries[0]
            self._render_all()
        self._add(Question(text))
        self._add(Answer(reply))
        self.to_end()

    def grow(self, text: str) -> None:
        """Add text to the last reply."""
        answer = self._entries[-1]
        if isinstance(answer, Answer):
            changed, lines = answer.grow(text, self._styles)
            self._replace_tail(self._starts[-1] + changed, lines)

    def end(self, reply: Message) -> None:
        """Draw the last reply as a whole, with its figures."""
        answer = self._entries[-1]
        if isinstance(answer, Answer):
            self._replace_tail(self._starts[-1], answer.end(reply, self._styles, self._width))

    def note(self, text: str, *, error: bool) -> None:
        """Add a sentence from the app; while a reply grows, before it."""
        notice = Notice(text, error=error)
        last = self._entries[-1] if self._entries else None
        if isinstance(last, Answer) and last.growing:
            self._entries.insert(len(self._entries) - 1, notice)
            self._render_from(len(self._entries) - 2)
        else:
            self._add(notice)

    @property
    def selected(self) -> int | None:
        """Which message of the conversation is selected; None for none."""
        return None

    @property
    def text(self) -> str:
        """All rows, as text."""
        return "\n".join(line.text.rstrip() for line in self._lines)

    # --- scrolling ----------------------------------------------------------------------------------

    @property
    def at_end(self) -> bool:
        """Whether the last row is in view."""
        return self.scroll_offset.y >= self.max_scroll_y

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Scrolling away from the end stops following it, coming back resumes."""
        super().watch_scroll_y(old_value, new_value)
        self._following = self.at_end

    def to_end(self) -> None:
        """Bring the last row into view, and keep it there."""
        self._following = True
        self.scroll_to(y=self.max_scroll_y, animate=False, immediate=True)

    def page(self, direction: int) -> None:
        """Scroll by a screenful less two rows; at the top, earlier entries are drawn."""
        step = max(self.size.height - 2, 1)
        if direction < 0 and self.scroll_offset.y == 0:
            self._more()
        self.scroll_to(y=self.scroll_offset.y + direction * step, animate=False, immediate=True)

    def to_start(self) -> None:
        """Bring the very first row into view."""
        if self._first:
            self._first = 0
            self._render_all()
        self.scroll_to(y=0, animate=False, immediate=True)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Draw earlier entries when the wheel reaches the top."""
        if self.scroll_offset.y == 0 and self._first:
            event.prevent_default()
            self._more()

    def _more(self) -> None:
        if not self._first:
            return
        height = len(self._lines)
        self._first = max(self._first - SHOWN, 0)
        self._render_all()
        self.scroll_to(y=len(self._lines) - height, animate=False, immediate=True)

    # --- rows ---------------------------------------------------------------------------------------

    @property
    def _width(self) -> int:
        return self.scrollable_content_region.width

    @property
    def _styles(self) -> EntryStyles:
        if self._entry_styles is None:
            self._entry_styles = self._read_styles()
        return self._entry_styles

    def _add(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._render_from(len(self._entries) - 1)

    def _render_all(self) -> None:
        self._rendered_width = self._width
        self._render_from(self._first)

    def _render_from(self, index: int) -> None:
        """Draw entries from `index` on; those before it stay as they are."""
        keep = index - self._first
        start = self._starts[keep] if keep < len(self._starts) else len(self._lines)
        del self._starts[keep:]
        lines: list[Line] = []
        for entry in self._entries[index:]:
            self._starts.append(start + len(lines))
            lines += entry.render(self._styles, self._width)
        self._replace_tail(start, lines)

    def _replace_tail(self, start: int, lines: list[Line]) -> None:
        following = self._following
        shorter = start + len(lines) < len(self._lines)
        self._lines[start:] = lines
        for y in [y for y in self._cache if y >= start]:
            del self._cache[y]
        self.virtual_size = Size(self._width, len(self._lines))
        self._scroll_update(self.virtual_size)
        if following:
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
            place = self._place()
            self._render_all()
            self.scroll_to(y=self._row_of(place), animate=False, immediate=True)
        if following:
            self.to_end()

    def _place(self) -> tuple[int, int]:
        """Entry and row within it at the top of the view."""
        y = self.scroll_offset.y
        entry = max((i for i, start in enumerate(self._starts) if start <= y), default=0)
        return entry, y - (self._starts[entry] if self._starts else 0)

    def _row_of(self, place: tuple[int, int]) -> int:
        entry, offset = place
        if entry >= len(self._starts):
            return 0
        end = self._starts[entry + 1] if entry + 1 < len(self._starts) else len(self._lines)
        return min(self._starts[entry] + offset, max(end - 1, 0))

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
        if self._entries:
            place = self._place()
            self._render_all()
            self.scroll_to(y=self._row_of(place), animate=False, immediate=True)

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
        if index >= len(self._lines):
            return Strip.blank(width, base)
        strip = self._lines[index].strip.apply_style(base)
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
        for index, line in enumerate(self._lines):
            span = selection.get_span(index)
            if span is None:
                continue
            start, end = span
            text = line.text[: None if end == -1 else end][max(start, line.lead) :]
            pieces += [text.rstrip() if line.glue == "\n" else text, line.glue]
        return "".join(pieces).rstrip("\n"), "\n"

    def _read_styles(self) -> EntryStyles:
        def read(name: str) -> Style:
            return self.get_component_rich_style(f"transcript--{name}", partial=True)

        markdown = MarkdownStyles(
            text=Style(),
            strong=read("strong"),
            emphasis=read("emphasis"),
            strike=read("strike"),
            code=read("code"),
            link=read("link"),
            dim=read("dim"),
            heading=read("heading"),
            subheading=read("subheading"),
            marker=read("marker"),
            code_block=read("code-block"),
            code_label=read("code-label"),
            code_tokens={kind: read(name) for kind, name in _CODE_TOKENS.items()},
        )
        return EntryStyles(
            markdown=markdown,
            question=read("question"),
            question_bar=read("question-bar"),
            footer=read("footer"),
            note=read("note"),
            error=read("error"),
        )


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
    from rich.segment import Segment

    return Strip([Segment(text, (own or Style()) + style) for text, own, _ in strip], strip.cell_length)
