"""Help: every key, and what the figures mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from rich.table import Table
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from tui.keymap import KEYS
from tui.keys import (
    COMPARE_ACTIONS,
    HISTORY_ACTIONS,
    MODEL_ACTIONS,
    PROMPT_KEYS,
    SETTING_ACTIONS,
    SLASH_COMMANDS,
    TOKEN_ACTIONS,
    TOKEN_KEYS,
    Action,
    Owner,
    by_group,
)

Pairs = tuple[tuple[str, str], ...]

FIGURES: Pairs = (
    ("tok/s", "tokens per second over the last second, by the engine's clock"),
    ("without drafts", "tokens per second of this reply's steps that had no draft, once there are 8 of them"),
    ("gain", "the whole reply's speed over that without drafts"),
    ("accepted", "share of the drafted tokens that the model agreed with"),
    ("tokens per pass", "tokens gained from each run of the model, its own included; 1 without drafts"),
    ("NAME  CPU, CUDA …", "a draft model, and the device that its layers are on; 12/24: so many of them"),
    ("1, 2, 3 …", "how often the first, second, third … drafted token was accepted"),
    ("draft, verify", "time spent guessing and time spent checking, per token"),
    ("confidence", "the drafter's estimate that a token, and all before it in its draft, is accepted"),
    ("context", "tokens that the model remembers now, of those that it can"),
    ("–", "not measured"),
)

FIRST = {
    "compare": "A/B",
    "tokens": "Tokens",
    "models": "Models",
    "history": "Earlier",
    "settings": "Settings",
}
"""What the first heading begins with when a screen other than the chat asks for help."""

KEY_COLUMN = 22


class HelpScreen(ModalScreen[None]):
    """Read and close."""

    CSS_PATH = "help.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "dismiss", "Back", id="help.back"),
    ]

    def __init__(self, owner: Owner = "chat") -> None:
        super().__init__()
        self._owner = owner

    def compose(self) -> ComposeResult:
        """One scrollable text; what belongs to the screen that it was called from comes first."""
        with VerticalScroll(id="help"):
            sections = help_sections()
            first = FIRST.get(self._owner, "")
            sections.sort(key=lambda section: not section[0].startswith(first))
            for heading, pairs in sections:
                yield Static(heading, classes="heading")
                yield Static(_columns(pairs), classes="section")
            yield Static("Select text with the mouse, ctrl+c copies it. esc closes this.", classes="last")


def help_sections() -> list[tuple[str, Pairs]]:
    """Headings with what stands under them, from the table of actions."""
    sections: list[tuple[str, Pairs]] = [
        (group, _pairs(action for action in actions if action.key)) for group, actions in by_group().items()
    ]
    compare, tokens = KEYS["chat.compare"], KEYS["chat.tokens"]
    comparing = (
        f"A/B ({compare})",
        (("enter", "Answer the message both ways"), *_pairs(COMPARE_ACTIONS)),
    )
    reading = (f"Tokens ({tokens})", (*TOKEN_KEYS, *_pairs(TOKEN_ACTIONS)))
    choosing = (
        f"Models ({KEYS['chat.model']})",
        (("enter", "Use a model, which is fetched first where needed"), *_pairs(MODEL_ACTIONS)),
    )
    finding = (f"Earlier chats ({KEYS['chat.open']})", (("enter", "Open a chat"), *_pairs(HISTORY_ACTIONS)))
    setting = (
        f"Settings ({KEYS['chat.settings']})",
        (("enter", "Change a setting"), *_pairs(SETTING_ACTIONS)),
    )
    commands = tuple((action.written, action.title) for action in SLASH_COMMANDS.values())
    said = ("Commands, written in the prompt", commands)
    screens = (comparing, reading, choosing, finding, setting)
    return [*sections, ("Prompt", PROMPT_KEYS), said, *screens, ("Figures", FIGURES)]


def _pairs(actions: Iterable[Action]) -> Pairs:
    return tuple((KEYS.shown(action), action.title) for action in actions)


def _columns(pairs: Pairs) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(width=KEY_COLUMN, no_wrap=True)
    table.add_column(ratio=1)
    for left, right in pairs:
        table.add_row(left, right)
    return table
