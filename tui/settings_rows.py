"""The settings as rows: what each is, what it may be, and when a change of it counts. No widgets here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from localspec.config_file import Value, write_settings
from localspec.config_keys import KEYMAP, action_of
from localspec.config_values import all_values, parsed, value_of
from localspec.models.ggml_types import KV_TYPES
from localspec.settings import Settings, config_file, from_file
from localspec.verify import VERIFIERS
from tui.keymap import Keymap, checked, listed

AT_ONCE = frozenset({"ui.theme", "ui.panel"})
"""Settings whose change counts at once, beside the keymap's."""

WORDS: Mapping[str, str] = {
    "model": "a known model, a family, hf:OWNER/REPO/FILE.gguf, or the path of a GGUF file",
    "draft.spec": "auto, suffix, ngram, none, a model, or several of them such as suffix+NAME",
    "draft.policy": "cost, fixed:N, ema, throughput, adaspec, turbospec, heuristic or off",
    "chat.system_prompt": "any text",
}
"""What settings may be, where that is neither a number nor one of a few words."""

KEY_WORDS = "keys such as f12, ctrl+s or alt+x; commas between several"

LARGEST = 2**20
"""Limits above this are only there to keep nonsense away, and are not told."""


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One setting.

    Attributes:
        key: such as "engine.threads".
        group: the heading that it stands under.
        name: what it is called there.
        value: None where nothing is set.
        shown: the value as people read it.
        origin: the variable that says so, "config.toml", or "default".
        description: what it means.
        allowed: what it may be, in words.
        options: the few values that it may be; () where there are many. None means: not set.
    """

    key: str
    group: str
    name: str
    value: Value
    shown: str
    origin: str
    description: str
    allowed: str
    options: tuple[Value, ...] = ()

    @property
    def at_once(self) -> bool:
        """Whether a change counts in the app that is running."""
        return self.key in AT_ONCE or self.group in (KEYMAP, "sampling")

    @property
    def counts(self) -> str:
        """From when on a change counts, in words."""
        if self.group == "sampling":
            return "from the next reply on"
        return "at once" if self.at_once else "from the next start on"

    @property
    def toggles(self) -> bool:
        """Whether it is switched on and off."""
        return bool in (type(option) for option in self.options)

    @property
    def next_option(self) -> Value:
        """What follows its value where it is switched."""
        place = self.options.index(self.value) if self.value in self.options else -1
        return self.options[(place + 1) % len(self.options)]


def read_rows(themes: tuple[str, ...]) -> list[SettingRow]:
    """Every setting, then the keys of every action of the app.

    Args:
        themes: names of the themes that there are.

    Raises:
        UsageError: the settings cannot be read, or keys in them cannot be used.
    """
    rows, own = [], {}
    for one in all_values():
        bound = action_of(one.key)
        if bound is not None:
            own[bound] = one
            continue
        group, _, name = one.key.rpartition(".")
        options = _options(one.key, themes)
        allowed = WORDS.get(one.key) or _allowed(_field(one.key), options)
        shown = in_words(one.value)
        rows.append(
            SettingRow(
                one.key,
                group,
                name or one.key,
                one.value,
                shown,
                one.origin,
                one.description,
                allowed,
                options,
            )
        )
    keymap = Keymap()
    keymap.use({name: str(one.value) for name, one in own.items()})
    for action in listed():
        mine = own.get(action.id)
        rows.append(
            SettingRow(
                f"{KEYMAP}.{action.id}",
                KEYMAP,
                action.title,
                mine.value if mine else None,
                keymap.shown(action),
                mine.origin if mine else "default",
                action.id,
                KEY_WORDS,
            )
        )
    return rows


def write(key: str, text: str | None) -> Value:
    """Put a setting into the file; its comments stay.

    Args:
        key: the setting.
        text: its new value, as in the environment; None gives it up.

    Returns:
        What the file says now; of one that was given up, its default.

    Raises:
        LocalspecError: it cannot be that, or cannot be written; then the file is as it was.
    """
    action = action_of(key)
    if action is not None:
        # Without a key of its own an action has its first one again, which may be another's by now.
        own = {name: keys for name, keys in from_file().keymap.items() if name != action}
        checked(own if text is None else {**own, action: text})
    if text is None:
        write_settings(config_file(), {key: None})
        return value_of(from_file(), key)
    value = parsed(key, text)
    write_settings(config_file(), {key: value})
    return value


def in_words(value: Value) -> str:
    """A value as people read it."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def as_text(value: Value) -> str | None:
    """A value as `write` takes it."""
    return None if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _field(key: str) -> FieldInfo:
    *above, name = key.split(".")
    group: type[BaseModel] = type(getattr(Settings(), above[0])) if above else Settings
    return group.model_fields[name]


def _options(key: str, themes: tuple[str, ...]) -> tuple[Value, ...]:
    match key:
        case "ui.theme":
            return (None, *themes)
        case "verify":
            return tuple(VERIFIERS)
        case "engine.kv_type":
            return tuple(KV_TYPES)
    kind = _field(key).annotation
    kinds = get_args(kind) or (kind,)
    if get_origin(kind) is Literal:
        return kinds
    if bool in kinds:
        return (True, False, None) if type(None) in kinds else (True, False)
    return ()


def _allowed(field: FieldInfo, options: tuple[Value, ...]) -> str:
    if options:
        return ", ".join(in_words(option) for option in options)
    kinds: tuple[Any, ...] = get_args(field.annotation) or (field.annotation,)
    limits = {
        name: getattr(limit, name)
        for limit in field.metadata
        for name in ("ge", "gt", "le", "lt")
        if getattr(limit, name, None) is not None
    }
    words = "a number" if float in kinds else "a whole number"
    if "ge" in limits:
        words += f" from {limits['ge']}"
    elif "gt" in limits:
        words += f" above {limits['gt']}"
    if limits.get("le", LARGEST + 1) <= LARGEST:
        words += f" to {limits['le']}" if "ge" in limits else f", at most {limits['le']}"
    return words
