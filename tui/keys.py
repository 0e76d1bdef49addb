"""Every action of the chat, in one table: keys, command palette and help are read from it.

Ids are stable, so that a user's keymap survives new versions.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from textual.binding import Binding

Group = Literal[
    "Reply", "Conversation", "View", "Application", "A/B", "Tokens", "Models", "Earlier chats", "Settings"
]  # fmt: skip
Owner = Literal["chat", "app", "compare", "tokens", "models", "history", "settings"]


@dataclass(frozen=True, slots=True)
class Action:
    """Something a user can do.

    Attributes:
        id: stable name of the binding.
        key: Textual's name of the key.
        name: the method `action_<name>` of the owner.
        title: what it does, as the command palette and the help screen show it.
        group: heading in the help screen.
        owner: the chat screen, the app, or one of the other screens.
        shown: how the key is written.
        hint: its word in the key bar.
        slash: its name as a command in the prompt, such as "new" for /new; "" where it is none.
        argument: what follows that name, as it is shown; "" where nothing may.
    """

    id: str
    key: str
    name: str
    title: str
    group: Group
    owner: Owner
    shown: str
    hint: str = ""
    slash: str = ""
    argument: str = ""

    @property
    def written(self) -> str:
        """How it is written in the prompt, with what follows."""
        return f"/{self.slash} {self.argument}".strip() if self.slash else ""


def _command(name: str, argument: str, title: str, group: Group) -> Action:
    """An action that needs words, and so has no key: from the palette it gets into the prompt."""
    shown = f"/{name} {argument}"
    return Action(
        f"command.{name}", "", f"begin_command('{name}')", title, group, "chat", shown, "", name, argument
    )


ACTIONS: tuple[Action, ...] = (
    Action("chat.stop", "escape", "stop", "Stop the reply", "Reply", "chat", "esc", "stop"),
    Action(
        "chat.speculation", "f2", "toggle_speculation", "Switch speculation on or off",
        "Reply", "chat", "f2", "speculation", "spec", "on|off",
    ),
    Action(
        "chat.compare", "f3", "compare", "Compare two ways side by side (A/B)",
        "Reply", "chat", "f3", "A/B", "compare",
    ),
    Action("chat.tokens", "f4", "tokens", "The reply as tokens", "Reply", "chat", "f4", "tokens", "tokens"),
    Action(
        "chat.drafter", "f6", "choose_drafter", "Choose the drafter", "Reply", "chat", "f6", "drafter",
        "draft", "NAME",
    ),
    Action(
        "chat.model", "f7", "choose_model", "Models: choose, fetch, remove", "Reply", "chat", "f7", "model",
        "model", "NAME",
    ),
    Action(
        "chat.better_model", "f8", "better_model", "Get a better model than the demo",
        "Reply", "chat", "f8", "better model",
    ),
    Action(
        "chat.keep_model", "f9", "keep_model", "Keep the demo model", "Reply", "chat", "f9", "no, thanks",
    ),
    Action(
        "chat.copy_reply", "ctrl+y", "copy_reply", "Copy the selected message, or the last reply",
        "Reply", "chat", "ctrl+y",
    ),
    Action(
        "chat.copy_code", "ctrl+b", "copy_code",
        "Copy the last code block; of the selected message one after the other", "Reply", "chat", "ctrl+b",
    ),
    Action(
        "chat.regenerate", "ctrl+r", "regenerate", "Make the reply again; both are kept",
        "Conversation", "chat", "ctrl+r", "again", "again",
    ),
    Action(
        "chat.edit", "ctrl+t", "edit_message", "Edit the message and ask anew; both are kept",
        "Conversation", "chat", "ctrl+t", "edit", "edit",
    ),
    Action(
        "chat.version_before", "alt+left", "switch_version(-1)", "The version before of a message",
        "Conversation", "chat", "alt+left",
    ),
    Action(
        "chat.version_after", "alt+right", "switch_version(1)", "The version after of a message",
        "Conversation", "chat", "alt+right",
    ),
    Action("chat.new", "ctrl+n", "new_chat", "New chat", "Conversation", "chat", "ctrl+n", "new", "new"),
    Action(
        "chat.open", "ctrl+o", "open_chat", "Open an earlier chat",
        "Conversation", "chat", "ctrl+o", "open", "open",
    ),
    Action(
        "chat.editor", "ctrl+g", "open_editor", "Write the message in your own editor ($EDITOR)",
        "Conversation", "chat", "ctrl+g", "", "editor",
    ),
    _command("temp", "0.7", "Temperature of this chat", "Conversation"),
    _command("seed", "7", "Seed of this chat: the same seed, the same reply", "Conversation"),
    _command("system", "TEXT", "What the model is told before this chat", "Conversation"),
    _command("think", "on|off", "Whether the model reasons first in this chat", "Conversation"),
    _command("export", "md|json", "Write this chat to a file in the current folder", "Conversation"),
    Action(
        "view.panel", "f5", "toggle_panel", "Live figures: panel, line, off", "View", "chat", "f5", "panel",
        "panel",
    ),
    Action(
        "view.reasoning", "alt+t", "toggle_reasoning", "Show or fold reasoning, or a long message, in view",
        "View", "chat", "alt+t",
    ),
    Action(
        "view.all_reasoning", "alt+a", "toggle_all_reasoning", "Show or fold all reasoning",
        "View", "chat", "alt+a",
    ),
    Action(
        "view.previous_message", "alt+up", "previous_message", "Select the message before",
        "View", "chat", "alt+up",
    ),
    Action(
        "view.next_message", "alt+down", "next_message", "Select the message after",
        "View", "chat", "alt+down",
    ),
    Action("view.page_up", "pageup", "page_up", "Scroll up", "View", "chat", "page up"),
    Action("view.page_down", "pagedown", "page_down", "Scroll down", "View", "chat", "page down"),
    Action("view.top", "ctrl+home", "scroll_top", "Go to the beginning", "View", "chat", "ctrl+home"),
    Action("view.end", "ctrl+end", "scroll_end", "Go to the end", "View", "chat", "ctrl+end"),
    Action(
        "chat.settings", "alt+s", "settings", "Settings, and keys of your own",
        "Application", "chat", "alt+s", "", "settings",
    ),
    Action("app.theme", "f10", "change_theme", "Change the colours", "View", "app", "f10"),
    Action("app.help", "f1", "help", "Help", "Application", "app", "f1", "help", "help"),
    Action(
        "app.commands", "ctrl+p", "command_palette", "Search all commands",
        "Application", "app", "ctrl+p", "commands",
    ),
    Action("app.quit", "ctrl+q", "quit", "Quit", "Application", "app", "ctrl+q", "quit", "quit"),
)  # fmt: skip

COMPARE_ACTIONS: tuple[Action, ...] = (
    Action("compare.stop", "escape", "stop", "Stop the comparison", "A/B", "compare", "esc", "stop"),
    Action("compare.back", "escape", "back", "Back to the chat", "A/B", "compare", "esc, f3", "back"),
    Action(
        "compare.other", "f4", "other_side", "Show the other side, where there is room for one only",
        "A/B", "compare", "f4", "other side",
    ),
    Action("compare.choose_a", "f6", "choose_a", "Choose how A answers", "A/B", "compare", "f6", "choose A"),
    Action("compare.choose_b", "f7", "choose_b", "Choose how B answers", "A/B", "compare", "f7", "choose B"),
    Action(
        "compare.again", "ctrl+r", "again", "One more round, in the other order",
        "A/B", "compare", "ctrl+r", "round",
    ),
    Action("compare.past", "ctrl+o", "past", "Earlier comparisons", "A/B", "compare", "ctrl+o", "earlier"),
)  # fmt: skip
"""What can be done on the screen that compares, beside the app's own actions."""

TOKEN_ACTIONS: tuple[Action, ...] = (
    Action("tokens.back", "escape,f4", "back", "Back to the chat", "Tokens", "tokens", "esc, f4", "back"),
    Action(
        "tokens.ghosts", "g", "ghosts", "Show or hide rejected draft tokens",
        "Tokens", "tokens", "g", "rejected",
    ),
    Action(
        "tokens.next_correction", "n", "next_correction", "Next correction",
        "Tokens", "tokens", "n", "next correction",
    ),
    Action(
        "tokens.previous_correction", "p", "previous_correction", "Previous correction",
        "Tokens", "tokens", "p",
    ),
    Action("tokens.next_draft", "d", "next_draft", "Next draft", "Tokens", "tokens", "d", "next draft"),
    Action("tokens.previous_draft", "D", "previous_draft", "Previous draft", "Tokens", "tokens", "shift+d"),
    Action(
        "tokens.score", "s", "score", "Compute log-probabilities, which the newest reply has by itself",
        "Tokens", "tokens", "s", "log-probabilities",
    ),
    Action(
        "tokens.earlier", "left_square_bracket,comma", "earlier", "The reply before",
        "Tokens", "tokens", "[ or ,", "reply before",
    ),
    Action(
        "tokens.later", "right_square_bracket,full_stop", "later", "The reply after",
        "Tokens", "tokens", "] or .", "reply after",
    ),
)  # fmt: skip
"""What can be done in the token view."""

MODEL_ACTIONS: tuple[Action, ...] = (
    Action("models.back", "escape", "back", "Back to the chat", "Models", "models", "esc"),
    Action("models.unfold", "right", "unfold", "Show the sizes of a family", "Models", "models", "right"),
    Action("models.fold", "left", "fold", "Hide the sizes of a family", "Models", "models", "left"),
    Action("models.fetch", "f8", "fetch", "Fetch a model, or stop fetching it", "Models", "models", "f8"),
    Action("models.keep", "f9", "keep", "Start with this model from now on", "Models", "models", "f9"),
    Action("models.remove", "delete", "remove", "Remove a model's file", "Models", "models", "del"),
)  # fmt: skip
"""What can be done on the screen of the models."""

HISTORY_ACTIONS: tuple[Action, ...] = (
    Action("history.back", "escape", "back", "Back to the chat", "Earlier chats", "history", "esc"),
    Action("history.rename", "f2", "rename", "Give a chat another title", "Earlier chats", "history", "f2"),
    Action("history.delete", "delete", "delete", "Delete a chat", "Earlier chats", "history", "del"),
    Action(
        "history.undo", "ctrl+z", "undo", "Bring back what was deleted last",
        "Earlier chats", "history", "ctrl+z",
    ),
    Action(
        "history.markdown", "f3", "export('md')", "Write a chat to a file, as Markdown",
        "Earlier chats", "history", "f3",
    ),
    Action(
        "history.json", "f4", "export('json')", "Write a chat to a file, as JSON",
        "Earlier chats", "history", "f4",
    ),
)  # fmt: skip
"""What can be done in the list of earlier chats."""

SETTING_ACTIONS: tuple[Action, ...] = (
    Action("settings.back", "escape", "back", "Back to the chat", "Settings", "settings", "esc"),
    Action(
        "settings.default", "delete", "default", "Give a setting up, so that its default counts",
        "Settings", "settings", "del",
    ),
)  # fmt: skip
"""What can be done on the screen of the settings."""

ALL_ACTIONS = (
    *ACTIONS,
    *COMPARE_ACTIONS,
    *TOKEN_ACTIONS,
    *MODEL_ACTIONS,
    *HISTORY_ACTIONS,
    *SETTING_ACTIONS,
)
"""What can be done on any screen."""

_BY_ID = {action.id: action for action in ACTIONS}

SLASH_COMMANDS = {action.slash: action for action in ACTIONS if action.slash}
"""What can be written in the prompt, by name."""

KEY_BAR = tuple(
    _BY_ID[name]
    for name in (
        "chat.stop", "chat.better_model", "chat.speculation", "chat.compare", "chat.tokens", "chat.new",
        "chat.open", "app.help", "app.commands", "app.quit", "chat.keep_model", "view.panel", "chat.drafter",
        "chat.model", "chat.regenerate", "chat.edit",
    )
)  # fmt: skip
"""The key bar, the dispensable last."""

COMPARE_BAR = (
    *COMPARE_ACTIONS,
    *(_BY_ID[name] for name in ("app.help", "app.commands", "app.quit")),
)
"""The key bar of the screen that compares."""

TOKEN_BAR = (
    *(action for action in TOKEN_ACTIONS if action.hint),
    *(_BY_ID[name] for name in ("app.help", "app.commands", "app.quit")),
)
"""The key bar of the token view."""

TOKEN_KEYS: tuple[tuple[str, str], ...] = (
    ("arrows, mouse", "Go to a token; below stands where it came from"),
    ("page up, page down", "Go on by a screenful"),
    ("home, end", "The first token, the last one"),
)
"""Keys of the token view itself, for the help screen."""

WRITING_KEYS: tuple[tuple[str, str], ...] = (
    ("ctrl+j, shift+enter", "New line"),
    ("up, down", "Earlier messages, from the first or the last line"),
    ("a long paste", "Stands as a chip and is sent in full; backspace removes it"),
    ("ctrl+z, ctrl+shift+z", "Undo, redo"),
    ("ctrl+c", "Copy the selection"),
)
"""Keys of every prompt, for the help screen."""

PROMPT_KEYS: tuple[tuple[str, str], ...] = (
    ("enter", "Send the message"),
    ("@path", "Send a text file with the message; tab completes the path"),
    ("/", "Commands; tab completes the name"),
    *WRITING_KEYS,
)
"""Keys of the chat's prompt, for the help screen."""

COMPARE_KEYS: tuple[tuple[str, str], ...] = (
    ("enter", "Answer the message both ways"),
    ("page up, page down", "Scroll both replies"),
)
"""Keys of the screen that compares, beside its actions, for the help screen."""


def bindings(owner: Owner) -> list[Binding]:
    """Bindings of the actions that belong to `owner`."""
    return [
        Binding(action.key, action.name, action.title, id=action.id, show=False, priority=True)
        for action in ALL_ACTIONS
        if action.owner == owner and action.key
    ]


def by_group(actions: Iterable[Action] = ACTIONS) -> dict[Group, list[Action]]:
    """Actions under their headings, in the table's order."""
    groups: dict[Group, list[Action]] = {}
    for action in actions:
        groups.setdefault(action.group, []).append(action)
    return groups
