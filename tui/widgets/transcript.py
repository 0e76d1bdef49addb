"""The transcript of a chat: questions, replies and notes."""

from __future__ import annotations

from collections.abc import Sequence

from textual import events

from tui.conversation import Message
from tui.reasoning import Thoughts
from tui.widgets.entries import Answer, Entry, Greeting, Notice, Question, version_mark
from tui.widgets.entry_view import EntryView


class Transcript(EntryView):
    """A conversation, of which one message may be selected.

    A growing reply replaces its last rows. Of a long conversation only the entries around the view have rows.
    """

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._unfolded = False

    # --- content ------------------------------------------------------------------------------------

    def reset(self, messages: Sequence[Message], model_name: str) -> None:
        """Show a conversation, at its end."""
        self._marked = None
        entries: list[Entry] = [
            Question(message.text, version_mark(message))
            if message.role == "user"
            else Answer(message, unfolded=self._unfolded)
            for message in messages
        ]
        self._drawn.reset(entries or [Greeting(model_name)])
        self._draw_all()
        self.to_end()

    def ask(self, text: str, reply: Message) -> None:
        """Add a question and the reply that is about to grow; the end comes into view."""
        self._marked = None
        entries = self._drawn.entries
        if isinstance(entries[0], Greeting):
            # Notes may have come after it; they stay.
            self._drawn.reset(entries[1:])
            self._draw_all()
        self._drawn.add(Question(text))
        self._drawn.add(Answer(reply, unfolded=self._unfolded))
        if self._drawn.whole_end:
            self._redraw_from(len(self._drawn.entries) - 2)
            self._drawn.shorten()
            self._moved()
        self.to_end()

    def grow(self, thoughts: Thoughts) -> None:
        """The last reply has grown; `thoughts` has its text."""
        answer = self._drawn.entries[-1]
        if isinstance(answer, Answer) and answer.growing:
            changed, lines = answer.grow(thoughts, self._styles)
            self._put(len(self._drawn.entries) - 1, changed, lines)

    def end(self, reply: Message) -> None:
        """Draw the last reply as a whole, with its figures."""
        answer = self._drawn.entries[-1]
        if isinstance(answer, Answer):
            answer.end(reply)
            self._redraw(answer)

    def note(self, text: str, *, error: bool) -> None:
        """Add a sentence from the app; while a reply grows, before it."""
        notice, entries = Notice(text, error=error), self._drawn.entries
        last = entries[-1] if entries else None
        before = len(entries) - 1 if isinstance(last, Answer) and last.growing else None
        self._drawn.add(notice, before)
        if self._drawn.whole_end:
            self._redraw_from(entries.index(notice))

    # --- folding ------------------------------------------------------------------------------------

    def toggle_fold(self) -> bool:
        """Show or fold the selected message, or the last one in view that can be folded; False for none.

        Of a reply that is its reasoning. A selected question that is short is not meant.
        """
        marked = self._marked
        meant = marked if marked is not None and (marked.headings or isinstance(marked, Answer)) else None
        entry = meant or self._foldable_in_view()
        if entry is None or not entry.headings:
            return False
        self._fold(entry, entry.headings[0])
        return True

    def toggle_all_reasoning(self) -> bool:
        """Show or hide all reasoning, that of later replies too; returns whether it is shown now."""
        self._unfolded = not self._unfolded
        place = self._drawn.place_of(self.scroll_offset.y)
        for entry in self._drawn.entries:
            if isinstance(entry, Answer):
                entry.unfolded = self._unfolded
        following = self._following
        self._draw_all()
        self._scroll(self._drawn.row_of(place))
        if following:
            self.to_end()
        return self._unfolded

    def _foldable_in_view(self) -> Entry | None:
        top, drawn = self.scroll_offset.y, self._drawn
        if not drawn.lines:
            return None
        last, _ = drawn.place_of(min(top + self.size.height, len(drawn.lines)) - 1)
        first, _ = drawn.place_of(top)
        for index in range(last, first - 1, -1):
            entry = drawn.entries[index]
            if entry.headings:
                return entry
        return None

    def _fold(self, entry: Entry, heading: int) -> None:
        """Fold or unfold; the row `heading` stays where it is in the view, or comes into it."""
        index = self._drawn.entries.index(entry)
        row = self._drawn.rows_of(index)[0] + heading
        top = self.scroll_offset.y
        below = min(max(row - top, 0), max(self.size.height - 1, 0))
        entry.unfolded = not entry.unfolded
        growing = isinstance(entry, Answer) and entry.growing
        if not growing:
            self._following = False
        self._redraw(entry)
        if not growing:
            self._scroll(row - below)
            self._following = self.at_end

    def on_click(self, event: events.Click) -> None:
        """The first row of what is folded shows or hides it."""
        row = event.get_content_offset(self)
        if row is None or not self._drawn.lines:
            return
        index, offset = self._drawn.place_of(self.scroll_offset.y + row.y)
        entry = self._drawn.entries[index]
        if offset in entry.headings and not self.text_selection:
            self._fold(entry, offset)

    # --- the selected message -----------------------------------------------------------------------

    @property
    def selected(self) -> int | None:
        """Which message of the conversation is selected, counted from 0; None for none."""
        return None if self._marked is None else self._messages().index(self._marked)

    def select(self, direction: int) -> int | None:
        """Select the message after (1) or before (-1) the selected one, and bring it into view.

        With none selected it is the last one in view, or the first one below it. Behind the last message
        none is selected, and the end is in view.

        Returns:
            Which message is selected now.
        """
        messages = self._messages()
        if self._marked is not None:
            number = messages.index(self._marked) + direction
        else:
            top = self.scroll_offset.y
            edge = top + self.size.height - 1 if direction < 0 else top
            index, row = self._drawn.place_of(min(max(edge, 0), max(len(self._drawn.lines) - 1, 0)))
            entries = self._drawn.entries
            number = sum(isinstance(entry, Question | Answer) for entry in entries[: index + 1])
            if direction < 0 or row == 0:
                number -= 1
            elif self.at_end:
                number = len(messages)
        if not messages or number >= len(messages):
            self.deselect()
            self.to_end()
            return None
        self._marked = messages[max(number, 0)]
        self._reveal(self._drawn.entries.index(self._marked))
        self._moved()
        return max(number, 0)

    def deselect(self) -> None:
        """Select no message."""
        self._marked = None
        self._moved()

    def _messages(self) -> list[Entry]:
        return [entry for entry in self._drawn.entries if isinstance(entry, Question | Answer)]

    def _reveal(self, index: int) -> None:
        """Bring an entry into view, its beginning where it is higher than the view."""
        while index < self._drawn.first:
            self._more()
        while index >= self._drawn.end:
            self._later()
        start, stop = self._drawn.rows_of(index)
        top = self.scroll_offset.y
        if start < top or stop > top + self.size.height:
            self._scroll(start)
