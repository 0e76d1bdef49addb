"""The settings: seen with where each comes from, changed, and given up."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar

from rich.text import Text
from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from localspec.config_file import Value
from localspec.config_keys import KEYMAP
from localspec.config_values import variable_of
from localspec.errors import LocalspecError
from localspec.text import printable
from tui.choices import Choice
from tui.keymap import KEYS
from tui.keys import Owner, bindings
from tui.screens.choice import ChoiceScreen
from tui.settings_rows import SettingRow, as_text, in_words, read_rows, write

LOW = 26
"""Rows of the window below which the list needs all of them."""

PAGE = 10

UNSET = "not set"
"""Id of the choice that gives a setting up."""


class SettingsScreen(ModalScreen[None]):
    """A list of all settings, which typing narrows."""

    @dataclass
    class Changed(Message):
        """A setting that counts at once was written; `value` is what it is now."""

        key: str
        value: Value

    CSS_PATH = "settings.tcss"
    owner: ClassVar[Owner] = "settings"
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings("settings"),
        Binding("down", "move(1)", show=False, priority=True, id="settings.down"),
        Binding("up", "move(-1)", show=False, priority=True, id="settings.up"),
        Binding("pagedown", f"move({PAGE})", show=False, priority=True, id="settings.page_down"),
        Binding("pageup", f"move(-{PAGE})", show=False, priority=True, id="settings.page_up"),
    ]
    AUTO_FOCUS = "#settings-filter"

    def __init__(self) -> None:
        super().__init__()
        self._rows: dict[str, SettingRow] = {}
        self._editing: SettingRow | None = None

    def compose(self) -> ComposeResult:
        """A filter above the list, what is known of the marked one, what happened, and the keys."""
        with Vertical(id="settings"):
            yield Static("Settings", id="settings-title")
            yield Input(placeholder="type to narrow the list", id="settings-filter", compact=True)
            yield Input(id="settings-value", compact=True)
            rows = OptionList(id="settings-list")
            # The filter keeps the cursor.
            rows.can_focus = False
            yield rows
            yield Static(id="settings-details")
            yield Static(id="settings-said")
            yield Static(id="settings-hint")

    def on_mount(self) -> None:
        """Read them."""
        self._read()

    def on_resize(self, event: events.Resize) -> None:
        """Columns follow the width."""
        self.set_class(event.size.height <= LOW, "-low")
        self.call_after_refresh(self._fill)

    @property
    def listed(self) -> tuple[str, ...]:
        """Keys of the settings in the list, from the top."""
        return tuple(option.id for option in self._list.options if option.id is not None)

    # --- keys ---------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Keys that edit a text do so while there is something to edit."""
        if action in ("move", "default") and self._editing is not None:
            return False
        return action != "default" or self._filter.cursor_position >= len(self._filter.value)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the list."""
        if event.input is self._filter:
            self._fill(keep=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Change what is marked, or take over what was written."""
        if self._editing is None:
            self._change()
            return
        text = event.value.strip()
        # Nothing is what a setting is that nobody has set.
        self._write(self._editing, text or None)

    def on_option_list_option_highlighted(self) -> None:
        """Tell what the marked one means."""
        self._show_marked()

    def on_option_list_option_selected(self) -> None:
        """Change what was clicked."""
        if self._editing is None:
            self._change()

    def action_back(self) -> None:
        """Leave the setting as it is; else go back to the chat."""
        if self._editing is not None:
            self._end_editing()
            self._say("")
        else:
            self.dismiss(None)

    def action_move(self, step: int) -> None:
        """Move the mark, past headings, while the filter keeps the cursor."""
        rows = self._list
        places = [place for place, option in enumerate(rows.options) if not option.disabled]
        if not places:
            return
        now = places.index(rows.highlighted) if rows.highlighted in places else 0
        target = min(max(now + step, 0), len(places) - 1)
        rows.highlighted = places[target]
        if target == 0:
            # Its heading, too.
            rows.scroll_home(animate=False)

    def action_default(self) -> None:
        """Take the marked setting out of the file."""
        row = self._marked
        if row is not None and row.origin == "default":
            self._say(f"{row.key} is not set.")
        elif row is not None:
            self._write(row, None)

    # --- inner steps --------------------------------------------------------------------------------

    @property
    def _list(self) -> OptionList:
        return self.query_one("#settings-list", OptionList)

    @property
    def _filter(self) -> Input:
        return self.query_one("#settings-filter", Input)

    @property
    def _marked(self) -> SettingRow | None:
        option = self._list.highlighted_option
        return self._rows.get(option.id or "") if option is not None else None

    def _say(self, sentence: str) -> None:
        self.query_one("#settings-said", Static).update(Text(printable(sentence)))

    def _read(self) -> None:
        try:
            rows = read_rows(tuple(sorted(self.app.available_themes)))
        except LocalspecError as error:
            rows = []
            self._say(str(error))
        self._rows = {row.key: row for row in rows}
        self._fill()

    def _fill(self, *, keep: bool = True) -> None:
        """Show what the filter leaves, with the mark on the same setting or, unless `keep`, on the first."""
        words = self._filter.value.casefold().split()
        marked = self._marked if keep else None
        rows, group = self._list, "-"
        # Two columns for the scrollbar, where there is one.
        width = max(rows.size.width - 2, 20)
        options: list[Option] = []
        for row in self._rows.values():
            text = f"{row.key} {row.name} {row.description} {row.shown}".casefold()
            if not all(word in text for word in words):
                continue
            if row.group != group:
                group = row.group
                options.append(Option(Text(group or "general", "bold"), disabled=True))
            options.append(Option(_label(row, width), id=row.key))
        rows.clear_options()
        rows.add_options(options)
        places = {option.id: place for place, option in enumerate(options) if option.id is not None}
        if places:
            rows.highlighted = places.get(marked.key if marked else "", min(places.values()))
        self._show_marked()

    def _show_marked(self) -> None:
        row, details = self._marked, Text()
        if row is not None:
            details.append(row.key if row.group != KEYMAP else f'[keymap] "{row.description}"', "bold")
            details.append(f"  {row.name if row.group == KEYMAP else row.description}")
            details.append(f"\nmay be: {row.allowed}", "dim")
            details.append(f"\n{_when(row)}", "dim")
        self.query_one("#settings-details", Static).update(details)
        back, default = KEYS["settings.back"], KEYS["settings.default"]
        if self._editing is not None:
            hint = f"enter writes it · {back} leaves it as it was"
        else:
            hint = f"enter changes · {default} gives up · {back} back"
        self.query_one("#settings-hint", Static).update(Text(hint))

    def _change(self) -> None:
        row = self._marked
        if row is None:
            return
        if row.toggles:
            self._write(row, as_text(row.next_option))
        elif row.options:
            choices = [
                Choice(in_words(option), in_words(option), "", current=option == row.value)
                for option in row.options
            ]

            def chosen(option: str | None) -> None:
                if option is not None:
                    self._write(row, None if option == UNSET else option)

            self.app.push_screen(ChoiceScreen(row.key, lambda: choices), chosen)
        else:
            self._edit(row)

    def _edit(self, row: SettingRow) -> None:
        self._editing = row
        self.set_class(True, "-editing")
        editor = self.query_one("#settings-value", Input)
        editor.placeholder = row.allowed
        editor.value = as_text(row.value) or ""
        editor.focus()
        self._show_marked()
        self._say("")

    def _end_editing(self) -> None:
        self._editing = None
        self.set_class(False, "-editing")
        self._filter.focus()
        self._show_marked()

    @work(exclusive=True)
    async def _write(self, row: SettingRow, text: str | None) -> None:
        try:
            # A model is looked for on the disk.
            value = await asyncio.to_thread(write, row.key, text)
        except (LocalspecError, OSError) as error:
            self._say(f"Not written: {error}")
            return
        self._end_editing()
        variable = variable_of(row.key)
        if row.at_once and variable is None:
            self.post_message(self.Changed(row.key, value))
        self._read()
        now = self._rows.get(row.key, row).shown
        done = f"{row.key} is {now}" if text is not None else f"{row.key} is given up: {now}"
        if variable is not None:
            self._say(f"Written; but {variable} in your environment beats it.")
        else:
            self._say(f"{done}, {row.counts}.")


def _when(row: SettingRow) -> str:
    return f"from: {row.origin} · a change counts {row.counts}"


def _label(row: SettingRow, width: int) -> Text:
    """Name, value, and where it comes from unless that is nowhere."""
    origin = "" if row.origin == "default" else row.origin
    aside = min(len(origin) + 2 if origin else 0, width // 3)
    name, value = Text(f"  {row.name}"), Text(printable(row.shown).replace("\n", " "))
    # What actions do takes more words than what settings are called.
    left = width * 3 // 5 if row.group == KEYMAP else max(width * 2 // 5, 16)
    name.truncate(left - 1, overflow="ellipsis", pad=True)
    value.truncate(max(width - left - aside, 4), overflow="ellipsis", pad=True)
    value.stylize("bold" if origin else "dim")
    where = Text(f"  {origin}" if origin else "", "dim")
    where.truncate(aside, overflow="ellipsis")
    return Text.assemble(name, " ", value, where)
