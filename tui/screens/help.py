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
    ACTIONS,
    COMPARE_ACTIONS,
    COMPARE_KEYS,
    HISTORY_ACTIONS,
    MODEL_ACTIONS,
    PROMPT_KEYS,
    SETTING_ACTIONS,
    SLASH_COMMANDS,
    TOKEN_ACTIONS,
    TOKEN_KEYS,
    WRITING_KEYS,
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
        """One scrollable text: what can be done on the screen that asks, and what figures mean."""
        with VerticalScroll(id="help"):
            for heading, pairs in help_sections(self._owner):
                yield Static(heading, classes="heading")
                yield Static(_columns(pairs), classes="section")
            yield Static("Select text with the mouse, ctrl+c copies it. esc closes this.", classes="last")


def help_sections(owner: Owner = "chat") -> list[tuple[str, Pairs]]:
    """Headings with what stands under them, from the table of actions.

    Args:
        owner: the screen that asks. Any but the chat gets its own keys and those of the whole app: the chat's
            do nothing there, and some of them have another meaning.
    """
    own = _screens()
    figures: tuple[str, Pairs] = ("Figures", FIGURES)
    if owner in own:
        general = by_group(action for action in ACTIONS if action.owner == "app").items()
        everywhere = [(group, _pairs(actions)) for group, actions in general]
        writing = [("Prompt", WRITING_KEYS)] if owner == "compare" else []
        return [own[owner], *writing, *everywhere, figures]
    groups = [(group, _pairs(one for one in actions if one.key)) for group, actions in by_group().items()]
    commands = tuple((action.written, action.title) for action in SLASH_COMMANDS.values())
    said = ("Commands, written in the prompt", commands)
    return [*groups, ("Prompt", PROMPT_KEYS), said, *own.values(), figures]


def _screens() -> dict[Owner, tuple[str, Pairs]]:
    """What can be done on the screens other than the chat, each with its heading."""
    using = ("enter", "Use a model, which is fetched first where needed")
    return {
        "compare": (f"A/B ({KEYS['chat.compare']})", (*COMPARE_KEYS, *_pairs(COMPARE_ACTIONS))),
        "tokens": (f"Tokens ({KEYS['chat.tokens']})", (*TOKEN_KEYS, *_pairs(TOKEN_ACTIONS))),
        "models": (f"Models ({KEYS['chat.model']})", (using, *_pairs(MODEL_ACTIONS))),
        "history": (
            f"Earlier chats ({KEYS['chat.open']})",
            (("enter", "Open a chat"), *_pairs(HISTORY_ACTIONS)),
        ),
        "settings": (
            f"Settings ({KEYS['chat.settings']})",
            (("enter", "Change a setting"), *_pairs(SETTING_ACTIONS)),
        ),
    }


def _pairs(actions: Iterable[Action]) -> Pairs:
    return tuple((KEYS.shown(action), action.title) for action in actions)


def _columns(pairs: Pairs) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(width=KEY_COLUMN, no_wrap=True)
    table.add_column(ratio=1)
    for left, right in pairs:
        table.add_row(left, right)
    return table
