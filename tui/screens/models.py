"""The models: what is installed and what could be, fetched and removed without leaving."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.errors import LocalspecError
from localspec.models import store
from localspec.models.choose import Capacity
from localspec.models.disk import readable_size
from localspec.models.entries import ModelEntry
from localspec.text import printable
from tui.background import in_background
from tui.keys import Owner, bindings
from tui.library import Library
from tui.model_rows import ModelRow, Shelf, narrowed, read_shelf, typed_row
from tui.model_words import columns, details, keys_of, label, title

TICK_S = 0.25

LOW = 20
"""Rows of the window below which there is less room for details."""

PAGE = 8

LOOKING = "looking at what is installed…"


class ModelsScreen(Screen[str | None]):
    """A list of models, which typing narrows. Returns the name of the one to use, or None.

    Args:
        library: knows what is used and what is fetched.
    """

    CSS_PATH = "models.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("models"),
        Binding("down", "move(1)", show=False, priority=True, id="models.down"),
        Binding("up", "move(-1)", show=False, priority=True, id="models.up"),
        Binding("pagedown", f"move({PAGE})", show=False, priority=True, id="models.page_down"),
        Binding("pageup", f"move(-{PAGE})", show=False, priority=True, id="models.page_up"),
    ]
    AUTO_FOCUS = "#models-filter"
    owner: ClassVar[Owner] = "models"

    def __init__(self, library: Library) -> None:
        super().__init__()
        self._library = library
        self._shelf = Shelf()
        self._capacity: Capacity | None = library.known_capacity
        self._rows: dict[str, ModelRow] = {}
        self._family_of: dict[str, str] = {}
        self._unfolded: set[str] = set()
        self._drawn: set[str] = set()
        self._looking = True
        # The row and the key that does something if it is pressed again; what was said of which row.
        self._asked: tuple[str, str] = ("", "")
        self._said: tuple[str, str] = ("", "")

    def compose(self) -> ComposeResult:
        """A filter, the list under its columns, and what is known of the marked row."""
        yield Static(id="models-title")
        yield Input(
            placeholder="type to narrow the list, or hf:OWNER/REPO/FILE.gguf",
            id="models-filter",
            compact=True,
        )
        yield Static(id="models-columns")
        rows = OptionList(id="models-list")
        # The filter keeps the cursor.
        rows.can_focus = False
        yield rows
        yield Static(id="models-details")
        yield Static("esc back", id="models-keys")

    def on_mount(self) -> None:
        """Look for the rows; the screen is there at once."""
        self.read()
        self.set_interval(TICK_S, self._follow)

    def on_resize(self, event: events.Resize) -> None:
        """Columns follow the width."""
        self.set_class(event.size.height < LOW, "-low")
        self.call_after_refresh(self._fill)

    @property
    def listed(self) -> tuple[str, ...]:
        """Ids of the rows, from the top."""
        return tuple(self._rows)

    # --- reading ------------------------------------------------------------------------------------

    @work(exclusive=True, group="shelf")
    async def read(self) -> None:
        """Read what there is anew; what cannot be read is said, and the rows stay as they are."""
        try:
            await self._read()
            if self._capacity is None:
                self._capacity = await in_background(self._library.capacity)
                await self._read()
        except (LocalspecError, OSError) as error:
            self._looking = False
            self._fill()
            self._say("", str(error))

    async def _read(self) -> None:
        self._shelf = await asyncio.to_thread(read_shelf, self._library.file, self._capacity)
        self._looking = False
        self._fill()

    def _follow(self) -> None:
        """Draw what is on its way, and what no longer is."""
        coming = {row_id for row_id, row in self._rows.items() if self._library.coming_of(row) is not None}
        for row_id in coming | self._drawn:
            self._draw(row_id)
        if coming or self._drawn:
            self._show_marked()
        if self._drawn - coming:
            self.read()
        self._drawn = coming

    # --- keys ---------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Keys that edit the filter do so while there is something to edit."""
        text = self.query_one("#models-filter", Input)
        if action in ("fold", "unfold"):
            return not text.value
        return action != "remove" or text.cursor_position >= len(text.value)

    def on_input_changed(self) -> None:
        """Narrow the list."""
        self._asked = self._said = ("", "")
        self._fill()

    def on_input_submitted(self) -> None:
        """Use what is marked."""
        row = self._marked
        if row is not None:
            self._use(row)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click folds a family, and uses what is installed; nothing is fetched by a click."""
        row = self._rows.get(event.option.id or "")
        if row is not None and row.sizes:
            self._fold(row.id, fold=row.id in self._unfolded)
        elif row is not None and row.path is not None:
            self._use(row)

    def on_option_list_option_highlighted(self) -> None:
        """Tell about what is marked."""
        row = self._marked
        if row is None or row.id != self._asked[0]:
            self._asked = ("", "")
        self._show_marked()

    def action_back(self) -> None:
        """Take a question for no; else go back to the chat. What is fetched goes on."""
        if self._asked[0]:
            self._say(self._asked[0], "")
        else:
            self.dismiss(None)

    def action_move(self, step: int) -> None:
        """Move the mark, past the headings; it stays at the ends."""
        rows = self._list
        places = [place for place, one in enumerate(rows.options) if not one.disabled]
        if places:
            self._said = ("", "")
            now = places.index(rows.highlighted) if rows.highlighted in places else -1
            rows.highlighted = places[min(max(now + step, 0), len(places) - 1)]
            if rows.highlighted == places[0]:
                rows.scroll_home(animate=False)

    def action_unfold(self) -> None:
        """Show the sizes of a family."""
        row = self._marked
        if row is not None and row.sizes:
            self._fold(row.id, fold=False)

    def action_fold(self) -> None:
        """Hide the sizes of a family."""
        row = self._marked
        family = row.id if row is not None and row.sizes else self._family_of.get(row.id if row else "", "")
        if family:
            self._fold(family, fold=True)

    def action_fetch(self) -> None:
        """Fetch what is marked, to be used later; pressed again, stop."""
        row = self._marked
        if row is None or row.entry is None:
            return
        coming = self._library.coming_of(row)
        if coming is not None and not coming.error:
            stopped = self._library.stop(row.entry)
            words = "Stopped; what is here already stays for the next time."
            self._say(row.id, words if stopped else "It is not stopped: the chat has no other model yet.")
            self.read()
        elif row.sizes:
            self._fetch_size(row, row.entry)
        elif row.path is not None:
            self._say(row.id, "It is here already; enter uses it.")
        elif self._sure(row, "f8"):
            self._said = ("", "")
            self._library.fetch(row.entry)
        self._follow()

    def _fetch_size(self, family: ModelRow, entry: ModelEntry) -> None:
        """Fetch the size of a family that suits this machine, in its own row."""
        size = next((one for one in family.sizes if one.entry == entry), None)
        if size is None:
            self._say(family.id, f"{entry.name} is here already; enter uses it.")
        elif self._sure(family, "f8"):
            self._library.fetch(entry)
            self._unfolded.add(family.id)
            self._fill(mark=size.id)

    @work
    async def action_keep(self) -> None:
        """Start with what is marked from now on."""
        row = self._marked
        if row is None:
            return
        name = str(row.path) if row.entry is None else row.entry.name if row.sizes else row.name
        try:
            said = await self._library.keep(name)
        except LocalspecError as error:
            said = str(error)
        self._say(row.id, said)

    def action_remove(self) -> None:
        """Remove a file, asked for twice."""
        row = self._marked
        if row is None or row.entry is None or row.sizes:
            return
        coming = self._library.coming_of(row)
        if coming is not None and not coming.error:
            self._say(row.id, "It is on its way; f8 stops that first.")
        elif row.path is None and not row.part:
            self._say(row.id, "There is nothing of it here to remove.")
        elif row.path is not None and self._library.in_use(row.path):
            self._say(row.id, "It is in use now; choose another model or drafter first.")
        elif row.entry.is_local:
            self._say(
                row.id,
                "This file was not fetched by localspec, which leaves it alone; "
                f"`localspec models rm {row.name}` takes it off the list.",
            )
        elif self._asked != (row.id, "del"):
            freed = readable_size(store.size_on_disk(row.entry))
            shared = store.shared_file(row.entry)
            kept = " The file itself stays in the cache of huggingface_hub." if shared else ""
            self._say(row.id, f"Remove {row.name} and free {freed}? del again: yes, esc: no.{kept}")
            self._asked = (row.id, "del")
        else:
            self._remove(row, row.entry)

    @work
    async def _remove(self, row: ModelRow, entry: ModelEntry) -> None:
        self._say(row.id, "Removing…")
        try:
            freed = await asyncio.to_thread(store.remove, entry)
        except (LocalspecError, OSError) as error:
            self._say(row.id, str(error))
        else:
            self._said = ("", f"{row.name} is gone; {readable_size(freed)} are free again.")
        self.read()

    def _use(self, row: ModelRow) -> None:
        if self.app.screen is not self:
            # Left already by the key before: once more would take the screen below away.
            return
        if self._library.coming_of(row) is None and row.path is not None and not row.path.is_file():
            self._say(row.id, f"The file is gone from {row.path.parent}.")
            self.read()
        elif row.path is None and not self._sure(row, "enter"):
            return
        elif row.entry is not None and row.sizes:
            self.dismiss(row.entry.name)
        else:
            self.dismiss(str(row.path) if row.entry is None else row.name)

    def _sure(self, row: ModelRow, key: str) -> bool:
        """Whether a model is to be fetched: one that there is no room for only if it is asked for twice."""
        if row.fit is None or row.fit.fits or self._asked == (row.id, key):
            return True
        self._say(row.id, f"{row.fit.reason} {key} again: fetch it all the same, esc: no.")
        self._asked = (row.id, key)
        return False

    def _fold(self, family: str, *, fold: bool) -> None:
        (self._unfolded.discard if fold else self._unfolded.add)(family)
        self._fill(mark=family)

    # --- drawing ------------------------------------------------------------------------------------

    @property
    def _list(self) -> OptionList:
        return self.query_one("#models-list", OptionList)

    @property
    def _marked(self) -> ModelRow | None:
        place = self._list.highlighted
        if place is None or place >= self._list.option_count:
            return None
        return self._rows.get(self._list.get_option_at_index(place).id or "")

    @property
    def _width(self) -> int:
        return max(self._list.scrollable_content_region.width, 30)

    def _fill(self, *, mark: str = "") -> None:
        """Put the rows into the list that the filter lets through; the mark stays where it was."""
        marked = self._marked
        mark = mark or (marked.id if marked is not None else "")
        text = self.query_one("#models-filter", Input).value
        sections = [
            ("Installed", list(narrowed(self._shelf.installed, text, self._unfolded))),
            ("To be fetched", list(narrowed(self._shelf.available, text, self._unfolded))),
        ]
        if not any(rows for _, rows in sections) and ":" in text:
            typed = typed_row(text, self._capacity)
            sections = [("As typed", [(typed, "", True)] if typed is not None else [])]
        self._rows, self._family_of = {}, {}
        options: list[Option] = []
        found: list[str] = []
        exact = text.strip().casefold()
        for heading, rows in sections:
            if rows:
                options.append(Option(heading, disabled=True))
            for row, family, meant in rows:
                self._rows[row.id], self._family_of[row.id] = row, family
                options.append(Option(self._label(row), id=row.id))
                if row.name.casefold() == exact:
                    found.insert(0, row.id)
                elif meant:
                    found.append(row.id)
        self._list.clear_options()
        self._list.add_options(options)
        mark = mark if mark in self._rows else next(iter(found), "")
        self._list.highlighted = [option.id for option in options].index(mark) if mark else None
        self.query_one("#models-columns", Static).update(columns(self._width))
        head = title(self._shelf, max(self.size.width - 5, 20))
        self.query_one("#models-title", Static).update(head)
        self._show_marked()

    def _label(self, row: ModelRow) -> Text:
        text = self.query_one("#models-filter", Input).value
        return label(
            row,
            self._width,
            self._library.coming_of(row),
            unfolded=bool(text) or row.id in self._unfolded,
            inner=bool(self._family_of.get(row.id)),
        )

    def _draw(self, row_id: str) -> None:
        """Draw one row anew."""
        if row_id in self._rows:
            self._list.replace_option_prompt(row_id, self._label(self._rows[row_id]))

    def _say(self, row_id: str, sentence: str) -> None:
        """Say something of a row, or of all: "" for none; it stays until another row is marked."""
        self._asked = ("", "")
        self._said = (row_id, sentence)
        self._show_marked()

    def _show_marked(self) -> None:
        """What is known of the marked row, and what the keys do with it."""
        row = self._marked
        coming = self._library.coming_of(row) if row is not None else None
        of_row, sentence = self._said
        if of_row and (row is None or of_row != row.id):
            sentence = ""
        panel = self.query_one("#models-details", Static)
        size = panel.content_size
        if row is not None:
            panel.update(details(row, coming, sentence, max(size.width, 20), max(size.height, 3)))
        else:
            empty = LOOKING if self._looking else "no model of that name"
            panel.update(Text(printable(sentence or empty)))
        text = self.query_one("#models-filter", Input).value
        keys = keys_of(
            row,
            coming,
            inner=row is not None and bool(self._family_of.get(row.id)) and not text,
            unfolded=None if row is None or text else row.id in self._unfolded,
        )
        self.query_one("#models-keys", Static).update(Text(keys, no_wrap=True, overflow="ellipsis"))
