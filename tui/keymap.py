"""The keys of the actions: the table's, or the user's own (`[keymap]` of config.toml), checked."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from itertools import combinations

from textual.binding import Binding
from textual.keys import key_to_character

from localspec.errors import UsageError
from localspec.text import printable
from tui.keys import ALL_ACTIONS, Action, Owner

NAMED = frozenset(
    {
        *(f"f{number}" for number in range(1, 25)),
        *("backspace", "delete", "down", "end", "enter", "escape", "home", "insert", "left"),
        *("pagedown", "pageup", "right", "space", "tab", "up"),
    }
)
"""Keys that are no characters, by Textual's names."""

SHORT = {
    "bksp": "backspace",
    "del": "delete",
    "esc": "escape",
    "ins": "insert",
    "page down": "pagedown",
    "page up": "pageup",
    "page_down": "pagedown",
    "page_up": "pageup",
    "pgdn": "pagedown",
    "pgup": "pageup",
    "return": "enter",
}
"""Other names that people know them by."""

WRITTEN = {"escape": "esc", "delete": "del", "pageup": "page up", "pagedown": "page down"}
"""How keys are shown where that is not their name."""

MODIFIERS = frozenset({"alt", "ctrl", "shift", "super", "hyper", "meta"})

RESERVED = {
    **dict.fromkeys(("enter", "ctrl+m"), "sends and chooses"),
    **dict.fromkeys(("tab", "ctrl+i", "shift+tab"), "completes and moves on"),
    **dict.fromkeys(("escape", "ctrl+left_square_bracket"), "stops and leads back"),
    **dict.fromkeys(("ctrl+j", "shift+enter", "alt+enter"), "makes a new line"),
    **dict.fromkeys(("backspace", "ctrl+h", "delete"), "deletes what is written"),
    **dict.fromkeys(("up", "down", "left", "right", "home", "end"), "moves the cursor"),
    **dict.fromkeys(("ctrl+v", "ctrl+x"), "pastes and cuts"),
    **dict.fromkeys(("ctrl+z", "ctrl+shift+z"), "undoes and redoes"),
    "ctrl+c": "copies",
}
"""Keys that writing needs, or that older terminals cannot tell from those."""

FIXED: Mapping[Owner, frozenset[str]] = {
    "compare": frozenset({"f3", "pageup", "pagedown"}),
    "tokens": frozenset({"pageup", "pagedown"}),
    "models": frozenset({"pageup", "pagedown"}),
    "history": frozenset({"pageup", "pagedown"}),
    "settings": frozenset({"pageup", "pagedown"}),
}
"""Further keys of screens themselves."""

WITH_LETTERS: frozenset[Owner] = frozenset({"tokens"})
"""Screens on which nothing is written, so that letters can be keys."""

_DEFAULTS = {action.id: tuple(action.key.split(",")) for action in ALL_ACTIONS if action.key}
_ACTIONS = {action.id: action for action in ALL_ACTIONS}


class Keymap:
    """Which keys do what in this app; there is one, as there is one app in a process."""

    def __init__(self) -> None:
        self._own: dict[str, str] = {}

    def use(self, chosen: Mapping[str, str]) -> dict[str, str]:
        """Take keys into use: `chosen` by action id, the table's for all other actions.

        Returns:
            Keys by id for Textual; where there are own ones, of every action, for it takes a key from all
            that share it when one moves.

        Raises:
            UsageError: see `checked`; the keys are then as they were.
        """
        self._own = checked(chosen)
        if not self._own:
            return {}
        return {name: ",".join(keys) for name, keys in _DEFAULTS.items()} | self._own

    def shown(self, action: Action) -> str:
        """How the keys of an action are written."""
        own = self._own.get(action.id)
        return action.shown if own is None else ", ".join(written(key) for key in own.split(","))

    def __getitem__(self, action_id: str) -> str:
        """How the first key of an action is written, for a sentence."""
        return self.shown(_ACTIONS[action_id]).partition(",")[0]


KEYS = Keymap()
"""The keys of this process's app."""


def listed() -> list[Action]:
    """Every action that can have a key."""
    return [action for action in ALL_ACTIONS if action.key]


def known(action_id: str) -> Action:
    """The action of that name; raises `UsageError` where there is none that can have a key."""
    action = _ACTIONS.get(action_id)
    if action is not None and action.key:
        return action
    shown = printable(action_id)
    if action is not None:
        raise UsageError(f"keymap: {shown} is written in the prompt ({action.written}) and has no key.")
    near = difflib.get_close_matches(action_id, _DEFAULTS, n=1)
    instead = f"did you mean {near[0]}?" if near else "`localspec config keys` lists all."
    raise UsageError(f"keymap: there is no action {shown}; {instead}")


def checked(chosen: Mapping[str, str]) -> dict[str, str]:
    """The user's keys by action id, with Textual's names.

    Args:
        chosen: keys by action id; commas between several.

    Raises:
        UsageError: an action or a key that does not exist, a key that is needed otherwise, or one that would
            do two things on one screen.
    """
    own = {name: tuple(_keys(known(name), keys)) for name, keys in chosen.items()}
    _check_clashes({**_DEFAULTS, **own}, own)
    return {name: ",".join(keys) for name, keys in own.items()}


def written(key: str) -> str:
    """A key as people write it."""
    *modifiers, name = key.split("+")
    character = None if name in NAMED else key_to_character(name)
    if character is not None and character.isupper():
        modifiers, character = [*modifiers, "shift"], character.lower()
    return "+".join([*modifiers, WRITTEN.get(name, character or name)])


def _keys(action: Action, text: str) -> Iterator[str]:
    for part in text.split(","):
        key = _normal(part.strip())
        if key is None:
            raise UsageError(
                f"keymap.{action.id} cannot be '{printable(text)}': write keys like f12, ctrl+s or alt+x, "
                "with commas between several."
            )
        default = key in _DEFAULTS[action.id]
        if key in RESERVED and not default:
            raise UsageError(f"keymap.{action.id} cannot be {written(key)}, which {RESERVED[key]}.")
        if "+" not in key and key not in NAMED and action.owner not in WITH_LETTERS:
            raise UsageError(
                f"keymap.{action.id} cannot be {written(key)}, which is written there; add ctrl or alt, or "
                "take a function key."
            )
        yield key


def _normal(text: str) -> str | None:
    """Textual's name of a key; None where there is no such key."""
    *modifiers, name = [text] if len(text) == 1 else text.split("+")
    modifiers = sorted({modifier.strip().lower() for modifier in modifiers})
    name = SHORT.get(name.lower(), name)
    if not set(modifiers) <= MODIFIERS:
        return None
    if name.lower() in NAMED:
        return "+".join([*modifiers, name.lower()])
    character = key_to_character(name) if name else None
    if character is None or not character.isprintable():
        return None
    if character.isalpha() and modifiers:
        # Terminals send a letter with shift as a capital.
        capital = modifiers == ["shift"]
        return character.upper() if capital else "+".join([*modifiers, character.lower()])
    return "+".join([*modifiers, _name_of(character)])


def _name_of(character: str) -> str:
    """Textual's name of a character, such as "question_mark"; letters and digits are their own."""
    if character == ",":
        return "comma"
    return next(iter(Binding.make_bindings([Binding(character, "none")]))).key


def _check_clashes(keys: Mapping[str, tuple[str, ...]], own: Mapping[str, object]) -> None:
    for action_id in own:
        action = _ACTIONS[action_id]
        for owner, fixed in FIXED.items():
            taken = fixed & set(keys[action_id]) - set(_DEFAULTS[action_id])
            if action.owner in (owner, "app") and taken:
                key = written(min(taken))
                raise UsageError(f"keymap.{action_id} cannot be {key}, which has its use on another screen.")
    for one, other in combinations(keys, 2):
        if one not in own and other not in own:
            continue
        first, second = _ACTIONS[one], _ACTIONS[other]
        together = set(keys[one]) & set(keys[other])
        # Some share a key by design: one is there when the other is not.
        together -= set(_DEFAULTS[one]) & set(_DEFAULTS[other])
        if together and (first.owner == second.owner or "app" in (first.owner, second.owner)):
            mine, holder = (first, second) if one in own else (second, first)
            raise UsageError(
                f"keymap.{mine.id} cannot be {written(min(together))}, the key of {holder.id} "
                f"({holder.title}); give one of them another key."
            )
