"""The earlier conversations: found by their titles and texts, opened, renamed, deleted, exported."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec import conversations
from localspec.chat.rows import ConversationRow, Tree
from localspec.chat.search import Found, Snippet
from localspec.chat.store import Store
from localspec.errors import LocalspecError, StorageError
from localspec.settings import load_settings
from localspec.text import printable
from localspec.types import MEMORY_CAPACITY
from tui.exporting import ExportKind, write_export
from tui.keymap import KEYS
from tui.keys import bindings

SHOWN = 500
"""Conversations in the list at most; a search looks at all of them."""

SEARCH_AFTER_S = 0.1
"""How long the keys have to rest before a search begins."""

LOW = 26
"""Rows of the window below which the list needs all of them."""

HINTS = (
    "enter open · {rename} rename · {delete} delete · {markdown} export Markdown · {json} JSON · {back} back",
    "enter · {rename} rename · {delete} · {markdown} .md · {json} .json · {back}",
    "{rename} rename · {delete} · {markdown} .md · {json} .json",
)
"""The keys at the bottom: the first of these that there is room for."""


@dataclass(slots=True)
class Deleted:
    """A conversation that can still be brought back, with what was remembered of it."""

    tree: Tree
    remembered: conversations.Remembered


class Bin:
    """What was deleted while the app runs, the newest last, and can be brought back until it ends."""

    def __init__(self) -> None:
        self.deleted: list[Deleted] = []
        # One after the other: what is brought back was forgotten before.
        self.memory = ThreadPoolExecutor(max_workers=1, thread_name_prefix="forget")

    def close(self) -> None:
        """Take no more; what is being forgotten is forgotten to its end."""
        self.memory.shutdown(wait=False)


class HistoryScreen(ModalScreen[int | None]):
    """A list of conversations, newest first; typing searches them. Returns the chosen id, or None.

    Args:
        store: where they are.
        current: id of the one on screen.
        replying: whether a reply is being written into that one.
        gone: takes what is deleted; it outlives the screen.
    """

    CSS_PATH = "history.tcss"
    owner: ClassVar[str] = "history"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("history"),
        Binding("down", "move(1)", show=False, priority=True, id="history.down"),
        Binding("up", "move(-1)", show=False, priority=True, id="history.up"),
        Binding("pagedown", "move(10)", show=False, priority=True, id="history.page_down"),
        Binding("pageup", "move(-10)", show=False, priority=True, id="history.page_up"),
    ]
    AUTO_FOCUS = "#filter"

    def __init__(self, store: Store, current: int | None, gone: Bin, *, replying: bool = False) -> None:
        super().__init__()
        self._store, self._current, self._replying = store, current, replying
        self._rows: dict[int, ConversationRow] = {}
        self._gone = gone
        self._renaming: ConversationRow | None = None
        self._waiting: Timer | None = None

    def compose(self) -> ComposeResult:
        """A filter above the list, a line for what happened, and the keys."""
        with Vertical(id="history"):
            yield Static("Earlier chats", id="history-title")
            yield Input(placeholder="type to search titles and texts", id="filter", compact=True)
            yield Input(placeholder="new title", id="rename", compact=True)
            rows = OptionList(id="conversations")
            # The filter keeps the cursor.
            rows.can_focus = False
            yield rows
            yield Static(id="history-said")
            yield Static(id="history-hint")

    def on_mount(self) -> None:
        """Show the newest ones."""
        self._fill()

    def on_resize(self, event: events.Resize) -> None:
        """Fit the keys into the width, and the list into the height."""
        self.set_class(event.size.height <= LOW, "-low")
        self.call_after_refresh(self._show_keys)

    @property
    def listed(self) -> tuple[int, ...]:
        """Ids of the conversations in the list, from the top."""
        return tuple(self._rows)

    # --- keys ---------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Keys that edit a text do so while there is something to edit."""
        if action in ("move", "rename", "delete", "undo", "export") and self._renaming is not None:
            return False
        return action != "delete" or self._filter.cursor_position >= len(self._filter.value)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Search once the keys rest."""
        if event.input is not self._filter:
            return
        self._stop_waiting()
        self._waiting = self.set_timer(SEARCH_AFTER_S, self._fill)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Open what is marked, or take over the new title."""
        if self.app.screen is not self:
            # Left already by the key before: once more would take the screen below away.
            return
        if event.input is self._filter:
            if self._waiting is not None:
                # What is marked is not yet what was searched for.
                self._fill()
            row = self._marked
            if row is not None:
                self.dismiss(row.id)
        elif self._renaming is not None:
            self._rename(self._renaming, " ".join(event.value.split()))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open what was clicked."""
        if self.app.screen is self and event.option.id is not None and self._renaming is None:
            self.dismiss(int(event.option.id))

    def action_back(self) -> None:
        """Leave the title as it is; else go back to the chat."""
        if self._renaming is not None:
            self._end_renaming()
        else:
            self.dismiss(None)

    def action_move(self, step: int) -> None:
        """Move the mark while the filter keeps the cursor."""
        count = self._list.option_count
        if count:
            self._list.highlighted = min(max((self._list.highlighted or 0) + step, 0), count - 1)

    def action_rename(self) -> None:
        """Edit the title of what is marked."""
        row = self._marked
        if row is None:
            return
        self._renaming = row
        self.set_class(True, "-renaming")
        editor = self.query_one("#rename", Input)
        editor.value = printable(row.title)
        editor.focus()
        self._say("enter takes the new title · esc leaves it as it was")

    def action_delete(self) -> None:
        """Delete what is marked; it can be brought back until the app ends."""
        row = self._marked
        if row is None:
            return
        if self._replying and row.id == self._current:
            self._say("A reply is being written there; esc in the chat stops it first.")
            return
        place = self._list.highlighted or 0
        try:
            tree = conversations.delete(self._store, row.id)
        except StorageError as error:
            self._say(str(error))
            return
        self._fill(place=place)
        if tree is None:
            self._say(f"“{_title(row)}” was deleted elsewhere already.")
            return
        deleted = Deleted(tree, conversations.Remembered())
        self._gone.deleted.append(deleted)
        self._say(f"Deleted “{_title(row)}”; {KEYS['history.undo']} brings it back.")
        if not self._store.private:
            self._soon(lambda: _forget(deleted))

    def action_undo(self) -> None:
        """Bring the last deleted conversation back."""
        if not self._gone.deleted:
            self._say("Nothing was deleted that could come back.")
            return
        deleted = self._gone.deleted[-1]
        try:
            row = self._store.restore(deleted.tree)
        except StorageError as error:
            self._say(str(error))
            return
        self._gone.deleted.pop()
        self._fill(mark=row.id)
        self._say(f"“{_title(row)}” is back.")
        if not self._store.private:
            self._soon(lambda: conversations.remember_again(deleted.remembered))

    def action_export(self, kind: ExportKind) -> None:
        """Write what is marked, with all its branches, to a file in the current folder."""
        row = self._marked
        if row is None:
            return
        try:
            tree = self._store.tree(row.id)
            if tree is None:
                self._say(f"“{_title(row)}” was deleted elsewhere.")
                return
            self._say(write_export(tree, kind))
        except (LocalspecError, OSError) as error:
            self._say(str(error))

    # --- inner steps --------------------------------------------------------------------------------

    @property
    def _list(self) -> OptionList:
        return self.query_one("#conversations", OptionList)

    @property
    def _filter(self) -> Input:
        return self.query_one("#filter", Input)

    @property
    def _marked(self) -> ConversationRow | None:
        place = self._list.highlighted
        if place is None or place >= self._list.option_count:
            return None
        return self._rows.get(int(self._list.get_option_at_index(place).id or 0))

    def _show_keys(self) -> None:
        hint = self.query_one("#history-hint", Static)
        room = hint.content_size.width
        names = ("rename", "delete", "markdown", "json", "back")
        keys = {name: KEYS[f"history.{name}"] for name in names}
        hints = [words.format(**keys) for words in HINTS]
        hint.update(Text(next((words for words in hints if len(words) <= room), hints[-1])))

    def _say(self, sentence: str) -> None:
        self.query_one("#history-said", Static).update(Text(sentence))

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.stop()
            self._waiting = None

    def _fill(self, *, mark: int | None = None, place: int = 0) -> None:
        """Read the list anew; marked is the conversation `mark`, else what stands at `place`."""
        self._stop_waiting()
        text = self._filter.value.strip()
        try:
            if text:
                found = self._store.search(text, SHOWN)
            else:
                found = [Found(row) for row in self._store.conversations(SHOWN)]
        except StorageError as error:
            self._say(str(error))
            return
        self._rows = {one.row.id: one.row for one in found}
        options = self._list
        options.clear_options()
        options.add_options([Option(self._label(one), id=str(one.row.id)) for one in found])
        if found:
            ids = list(self._rows)
            options.highlighted = ids.index(mark) if mark in self._rows else min(place, len(ids) - 1)
        nothing = "nothing found" if text else "no earlier chats yet"
        self._say("" if found else nothing)

    def _label(self, found: Found) -> Text:
        row = found.row
        label = Text(no_wrap=True, overflow="ellipsis")
        label.append("• " if row.id == self._current else "  ")
        label.append(_title(row))
        count = f"{row.message_count} message{'' if row.message_count == 1 else 's'}"
        facts = (str(row.id), age(row.updated), count, printable(row.model))
        label.append("\n  " + " · ".join(facts), "dim")
        if found.snippet is not None:
            label.append("\n  ")
            label.append_text(marked_snippet(found.snippet))
            if found.messages > 1:
                label.append(f"  +{found.messages - 1}", "dim")
        return label

    def _rename(self, row: ConversationRow, title: str) -> None:
        if not title:
            self._say("A title needs a character at least; esc leaves it as it was.")
            return
        self._end_renaming()
        try:
            self._store.rename(row.id, title)
        except StorageError as error:
            self._say(str(error))
            return
        self._fill(mark=row.id)
        self._say(f"Renamed to “{printable(title)}”.")

    def _end_renaming(self) -> None:
        self._renaming = None
        self.set_class(False, "-renaming")
        self._filter.focus()
        self._say("")

    def _soon(self, job: Callable[[], str]) -> None:
        """Do something with the memory's files in a thread; what it returns is a trouble to be told."""
        loop = asyncio.get_running_loop()

        def run() -> None:
            trouble = job()
            if trouble:
                # The app may have ended meanwhile.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._complain, trouble)

        self._gone.memory.submit(run)

    def _complain(self, trouble: str) -> None:
        if self.is_attached:
            self._say(f"What drafts remember of it could not be changed: {trouble}")


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


def marked_snippet(snippet: Snippet) -> Text:
    """A piece of a message; what was found stands out without colours too."""
    shown, place = Text(), 0
    for start, end in snippet.marks:
        shown.append(printable(snippet.text[place:start]), "dim")
        shown.append(printable(snippet.text[start:end]), "bold underline")
        place = end
    shown.append(printable(snippet.text[place:]), "dim")
    return shown


def _title(row: ConversationRow) -> str:
    return " ".join(printable(row.title).split()) or "(no title)"


def _forget(deleted: Deleted) -> str:
    """Forget what is remembered of a deleted conversation; returns what went wrong."""
    try:
        capacity = load_settings().memory.capacity
    except LocalspecError:
        # Broken while the app runs.
        capacity = MEMORY_CAPACITY
    deleted.remembered = conversations.forget(deleted.tree.row.memory_name, capacity)
    return deleted.remembered.problem
