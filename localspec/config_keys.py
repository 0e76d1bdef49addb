"""Where settings are in the file: in groups, and in the group of the keymap by the actions of the app."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

KEYMAP = "keymap"
"""The group whose settings are named by actions of the terminal app."""


def path_of(key: str) -> tuple[str, ...]:
    """Where a key such as "engine.threads" is in the file: its group, and its name there."""
    group, _, name = key.partition(".")
    # Actions have dots in their names.
    return (group, name) if group == KEYMAP and name else tuple(key.split("."))


def action_of(key: str) -> str | None:
    """The action of the app whose keys a setting is; None where it is something else."""
    group, _, name = key.partition(".")
    return name if group == KEYMAP and name else None


def keys_by_action(table: Mapping[str, object], above: str = "") -> Iterator[tuple[str, object]]:
    """The keymap as it stands in the file: names with or without quotes; a list is several keys."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from keys_by_action(value, f"{above}{name}.")
        elif isinstance(value, list) and all(isinstance(key, str) for key in value):
            yield f"{above}{name}", ",".join(value)
        else:
            yield f"{above}{name}", value
