"""The prompt: several lines, history, long pastes as chips; Enter sends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from tui.attachments import Attachments, is_long
from tui.completion import suggestions_for
from tui.widgets.suggestions import Suggestions


class Prompt(TextArea):
    """Where the user writes; `Sent` is posted on Enter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+j,shift+enter,alt+enter", "new_line", "New line", show=False, id="prompt.new_line"),
        Binding("ctrl+shift+z", "redo", "Redo", show=False, id="prompt.redo"),
    ]

    @dataclass
    class Sent(Message):
        """The user pressed Enter on a prompt that is not blank.

        Attributes:
            text: the message, with what its chips stand for.
            written: the same as it stood in the prompt.
        """

        text: str
        written: str

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id, show_line_numbers=False, soft_wrap=True, tab_behavior="focus", compact=True)
        # A blinking cursor is two more frames a second, all through every reply.
        self.cursor_blink = False
        self.highlight_cursor_line = False
        self._history: list[str] = []
        self._recalled: int | None = None
        self._draft = ""
        self._aside: str | None = None
        self._attachments = Attachments()
        self._suggestions: Suggestions | None = None
        self._typed = False

    # --- its text -----------------------------------------------------------------------------------

    @property
    def whole(self) -> str:
        """The text with what its chips stand for."""
        return self.whole_of(self.text)

    def whole_of(self, text: str) -> str:
        """A text that was written here, with what its chips stand for."""
        return self._attachments.expanded(text)

    def sent_as(self, written: str, whole: str) -> None:
        """What was written here went out as `whole`, and comes back as it was written."""
        self._attachments.remember(whole, written)

    def set_history(self, texts: Sequence[str]) -> None:
        """What the up key brings back, oldest first."""
        self._history = list(texts)
        self._recalled = None

    def remember(self, text: str) -> None:
        """Let the up key bring back one more text."""
        if not self._history or self._history[-1] != text:
            self._history.append(text)
        self._recalled = None

    def take(self, written: str) -> None:
        """Empty the prompt of what was `written`; what was typed behind it since stays."""
        rest = self.text.removeprefix(written)
        self.clear()
        self._recalled = None
        if rest:
            self.insert(rest)

    def give_back(self, text: str) -> None:
        """Put a message before what is written, with the cursor at its end."""
        text = self._attachments.collapsed(text)
        self.text = f"{text}\n{self.text}" if self.text else text
        self.move_cursor(self.document.end)

    def write(self, text: str) -> None:
        """Let a message stand here in the place of what is written."""
        self._replace_all(self._attachments.collapsed(text))

    def begin_editing(self, text: str) -> None:
        """Let a message be edited; what is written now comes back at the end."""
        if self._aside is None:
            self._aside = self.text
        self.write(text)

    def end_editing(self) -> None:
        """Put back what was written before something else was edited, if it was."""
        if self._aside is not None:
            text, self._aside = self._aside, None
            self._replace_all(text)

    def _replace_all(self, text: str) -> None:
        self._recalled = None
        self.text = text
        self.move_cursor(self.document.end)

    # --- keys ---------------------------------------------------------------------------------------

    def action_new_line(self) -> None:
        """Begin a new line."""
        self.insert("\n")

    async def _on_key(self, event: events.Key) -> None:
        if self._suggest_key(event.key):
            event.stop()
            event.prevent_default()
            return
        self._typed = event.is_printable or event.key == "backspace"
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            if self.text.strip():
                self.post_message(self.Sent(self.whole, self.text))
            return
        await super()._on_key(event)

    # --- suggestions --------------------------------------------------------------------------------

    def suggest_in(self, suggestions: Suggestions) -> None:
        """Show there what a command or a path could go on as."""
        self._suggestions = suggestions

    def on_text_area_changed(self) -> None:
        """Suggest after a key; what comes into the prompt in another way is no beginning of a word."""
        if self._suggestions is None:
            return
        row, column = self.cursor_location
        line = self.document[row][:column]
        self._suggestions.offer(suggestions_for(line, first=row == 0) if self._typed else ())
        self._typed = False

    def _suggest_key(self, key: str) -> bool:
        """Whether a key was the suggestions'."""
        suggestions = self._suggestions
        chosen = suggestions.chosen if suggestions is not None else None
        if suggestions is None or chosen is None:
            return False
        match key:
            case "up" | "down":
                suggestions.move(-1 if key == "up" else 1)
            case "escape":
                suggestions.offer(())
            case "tab":
                self._complete(chosen.start, chosen.text)
            case "enter" if suggestions.moved:
                self._complete(chosen.start, chosen.text)
            case _:
                return False
        return True

    def _complete(self, start: int, text: str) -> None:
        row, column = self.cursor_location
        # A folder is gone on with.
        self._typed = text.endswith("/")
        self.replace(text, (row, start), (row, column), maintain_selection_offset=False)

    async def _on_paste(self, event: events.Paste) -> None:
        event.prevent_default()
        event.stop()
        self._paste(event.text)

    def action_paste(self) -> None:
        """Insert what was copied in the app."""
        self._paste(self.app.clipboard)

    def _paste(self, text: str) -> None:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        if is_long(text):
            text = self._attachments.hold(text)
        self.replace(text, *self.selection, maintain_selection_offset=False)

    def action_delete_left(self) -> None:
        """Delete the character before the cursor, or the chip that ends there."""
        if not self._delete_chip(end=True):
            super().action_delete_left()

    def action_delete_right(self) -> None:
        """Delete the character after the cursor, or the chip that begins there."""
        if not self._delete_chip(end=False):
            super().action_delete_right()

    def _delete_chip(self, *, end: bool) -> bool:
        row, column = self.cursor_location
        if not self.selection.is_empty:
            return False
        for start, stop in self._attachments.chips_in(self.document[row]):
            if column == (stop if end else start):
                self.delete((row, start), (row, stop), maintain_selection_offset=False)
                return True
        return False

    def action_cursor_up(self, select: bool = False) -> None:
        """Move up; from the first line, to an earlier message."""
        if not select and self.cursor_location[0] == 0 and self._at_edge(-1):
            self._recall(-1)
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        """Move down; from the last line, to a later message."""
        if not select and self.cursor_location[0] == self.document.line_count - 1 and self._at_edge(1):
            self._recall(1)
        else:
            super().action_cursor_down(select)

    def _at_edge(self, direction: int) -> bool:
        """Whether the cursor's wrapped row is the first (or last) one."""
        row = self.wrapped_document.location_to_offset(self.cursor_location).y
        return row == (0 if direction < 0 else self.wrapped_document.height - 1)

    def _recall(self, step: int) -> None:
        if not self._history:
            return
        if self._recalled is None:
            if step > 0:
                return
            self._draft = self.text
            index = len(self._history) - 1
        else:
            index = self._recalled + step
        if index < 0:
            return
        if index >= len(self._history):
            self._recalled, text = None, self._draft
        else:
            self._recalled, text = index, self._attachments.collapsed(self._history[index])
        self.text = text
        self.move_cursor(self.document.end)
