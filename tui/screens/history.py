"""Choosing an earlier conversation."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.chat.store import ConversationRow
from localspec.text import printable


class HistoryScreen(ModalScreen[int | None]):
    """A list of conversations, newest first; typing narrows it. Returns the chosen id, or None."""

    CSS_PATH = "history.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back", id="history.back"),
        Binding("down", "move(1)", show=False, priority=True, id="history.down"),
        Binding("up", "move(-1)", show=False, priority=True, id="history.up"),
        Binding("pagedown", "move(10)", show=False, priority=True, id="history.page_down"),
        Binding("pageup", "move(-10)", show=False, priority=True, id="history.page_up"),
    ]
    AUTO_FOCUS = "#filter"

    def __init__(self, conversations: Sequence[ConversationRow], current: int | None) -> None:
        super().__init__()
        self._conversations, self._current = conversations, current

    def compose(self) -> ComposeResult:
        """A filter above the list."""
        with Vertical(id="history"):
            yield Static("Earlier chats", id="history-title")
            yield Input(placeholder="type to narrow the list", id="filter", compact=True)
            yield OptionList(id="conversations")
            yield Static("enter opens · esc goes back", id="history-hint")

    def on_mount(self) -> None:
        """Show all of them."""
        self._fill("")

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list."""
        self._fill(event.value)

    def on_input_submitted(self) -> None:
        """Open what is marked."""
        marked = self._list.highlighted
        if marked is not None and self._list.option_count:
            self._choose(self._list.get_option_at_index(marked).id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open what was clicked."""
        self._choose(event.option.id)

    def action_move(self, step: int) -> None:
        """Move the mark while the filter keeps the cursor."""
        count = self._list.option_count
        if count:
            self._list.highlighted = min(max((self._list.highlighted or 0) + step, 0), count - 1)

    @property
    def _list(self) -> OptionList:
        return self.query_one("#conversations", OptionList)

    def _choose(self, option_id: str | None) -> None:
        self.dismiss(int(option_id) if option_id and option_id.isdigit() else None)

    def _fill(self, text: str) -> None:
        words = text.casefold().split()
        found = [row for row in self._conversations if all(word in row.title.casefold() for word in words)]
        options = self._list
        options.clear_options()
        options.add_options([Option(self._label(row), id=str(row.id)) for row in found])
        if found:
            options.highlighted = 0
        hint = "enter opens · esc goes back" if found else "nothing found · esc goes back"
        self.query_one("#history-hint", Static).update(hint)

    def _label(self, row: ConversationRow) -> Text:
        label = Text(no_wrap=True, overflow="ellipsis")
        label.append("• " if row.id == self._current else "  ")
        label.append(printable(row.title) or "(no title)")
        facts = (str(row.id), age(row.updated), f"{row.message_count} messages", printable(row.model))
        label.append("\n  " + " · ".join(facts), "dim")
        return label


def age(moment: float, now: float | None = None) -> str:
    """How long ago a Unix time was, in words."""
    seconds = (time.time() if now is None else now) - moment
    if seconds < 60:
        return "just now"
    for limit, size, word in ((3600, 60, "minute"), (86400, 3600, "hour"), (86400 * 14, 86400, "day")):
        if seconds < limit:
            number = int(seconds // size)
            return f"{number} {word}{'s' if number != 1 else ''} ago"
    return time.strftime("%d %b %Y", time.localtime(moment))
