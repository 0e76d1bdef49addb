"""Choosing one of a list whose rows take a moment to find out."""

from __future__ import annotations

import asyncio
import textwrap
from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.errors import LocalspecError
from localspec.text import printable
from tui.choices import Choice

LOOKING = "looking at what is installed…"


class ChoiceScreen(ModalScreen[str | None]):
    """A list, which typing narrows. Returns the id of what was chosen, or None.

    Args:
        title: what is chosen.
        find: finds the rows; called in a thread. A `LocalspecError` is shown in their place.
    """

    CSS_PATH = "choice.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", "Back", id="choice.back"),
        Binding("down", "move(1)", show=False, priority=True, id="choice.down"),
        Binding("up", "move(-1)", show=False, priority=True, id="choice.up"),
    ]
    AUTO_FOCUS = "#narrow"

    def __init__(self, title: str, find: Callable[[], Sequence[Choice]]) -> None:
        super().__init__()
        self._title, self._find = title, find
        self._choices: Sequence[Choice] = ()
        self._problem = ""
        self._looking = True
        self._last_usable: int | None = None

    def compose(self) -> ComposeResult:
        """A filter above the list."""
        with Vertical(id="choice"):
            yield Static(self._title, id="choice-title")
            yield Input(placeholder="type to narrow the list", id="narrow", compact=True)
            yield OptionList(id="choices")
            yield Static(LOOKING, id="choice-hint")

    def on_mount(self) -> None:
        """Look for the rows; the screen is there at once."""
        self._look()

    @work
    async def _look(self) -> None:
        try:
            self._choices = await asyncio.to_thread(self._find)
        except (LocalspecError, OSError) as error:
            self._problem = str(error)
        self._looking = False
        self._fill(self.query_one("#narrow", Input).value)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list."""
        self._fill(event.value)

    def on_input_submitted(self) -> None:
        """Choose what is marked."""
        marked = self._list.highlighted
        if marked is not None and self._list.option_count:
            option = self._list.get_option_at_index(marked)
            if not option.disabled:
                self._choose(option.id)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Choose what was clicked."""
        self._choose(event.option.id)

    def action_move(self, step: int) -> None:
        """Move the mark, past what cannot be chosen, while the filter keeps the cursor."""
        rows = self._list
        if step < 0:
            rows.action_cursor_up()
        elif rows.highlighted == self._last_usable and rows.scroll_offset.y < rows.max_scroll_y:
            # What comes after it can only be read.
            rows.scroll_end(animate=False)
        else:
            rows.action_cursor_down()

    @property
    def _list(self) -> OptionList:
        return self.query_one("#choices", OptionList)

    def _choose(self, option_id: str | None) -> None:
        # A second key may come before the screen is gone: once more would take the one below away.
        if self.app.screen is self:
            self.dismiss(option_id)

    def _fill(self, text: str) -> None:
        if self._looking:
            return
        words = text.casefold().split()
        found = [
            choice
            for choice in self._choices
            if all(word in f"{choice.title} {choice.facts}".casefold() for word in words)
        ]
        rows = self._list
        rows.clear_options()
        rows.add_options(
            [Option(label(one, rows.size.width), id=one.id, disabled=bool(one.refusal)) for one in found],
        )
        usable = [place for place, one in enumerate(found) if not one.refusal]
        current = [place for place in usable if found[place].current]
        self._last_usable = usable[-1] if usable else None
        if usable:
            rows.highlighted = (current or usable)[0]
        hint = "enter chooses · esc goes back" if usable else "nothing to choose · esc goes back"
        self.query_one("#choice-hint", Static).update(Text(printable(self._problem) or hint))


def label(choice: Choice, width: int) -> Text:
    """Name and facts, or why it cannot be chosen, which is told in full."""
    text = Text()
    text.append("• " if choice.current else "  ")
    text.append(printable(choice.title))
    if choice.refusal:
        reason = textwrap.wrap(printable(choice.refusal), max(width - 3, 20))
        text.append("".join(f"\n  {line}" for line in reason))
    elif choice.facts:
        text.append(f"\n  {printable(choice.facts)}", "dim")
    return text
