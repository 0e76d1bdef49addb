"""Single settings: what each is, where it comes from, and whether a value can be used."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from localspec.config_file import Value
from localspec.config_keys import KEYMAP, action_of
from localspec.errors import UsageError
from localspec.settings import PREFIX, Settings, config_file, from_file, load_settings
from localspec.types import DraftOptions


@dataclass(frozen=True, slots=True)
class SettingValue:
    """One setting as it is now.

    Attributes:
        key: such as "engine.threads".
        value: None where nothing is set.
        origin: the variable that says so, "config.toml", or "default".
        description: what it means, for people.
    """

    key: str
    value: Value
    origin: str
    description: str


def all_values() -> list[SettingValue]:
    """Every setting, in the order of the documentation, then the user's own keys of the app.

    Raises `UsageError` as `load_settings` does.
    """
    settings = load_settings()
    in_file = _keys_in_file()
    found = [
        SettingValue(key, value_of(settings, key), _origin(key, in_file), description)
        for key, description in known_keys()
    ]
    for action, keys in settings.keymap.items():
        key = f"{KEYMAP}.{action}"
        found.append(SettingValue(key, keys, variable_of(key) or "config.toml", "Keys of this action."))
    return found


def known_keys() -> Iterator[tuple[str, str]]:
    """Every key, with its description; the keymap's, one for each action, are the app's business."""
    for name, field in Settings.model_fields.items():
        if name == KEYMAP:
            continue
        group = field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            for inner, of_inner in group.model_fields.items():
                yield f"{name}.{inner}", of_inner.description or ""
        else:
            yield name, field.description or ""


def full_key(key: str) -> str:
    """The key itself; `draft` is short for `draft.spec`. Raises `UsageError` for one that does not exist."""
    key = "draft.spec" if key == "draft" else key
    if action_of(key) is not None:
        return key
    if key not in dict(known_keys()):
        # The settings' own check says what is meant, or which there are.
        from_file({key: ""})
        raise UsageError(f"There is no setting {key}; `localspec config show` lists all of them.")
    return key


def value_of(settings: Settings, key: str) -> Value:
    """The value of one setting."""
    action = action_of(key)
    if action is not None:
        return settings.keymap.get(action)
    found: Any = settings
    for part in key.split("."):
        found = getattr(found, part)
    value: Value = found
    return value


def parsed(key: str, text: str) -> Value:
    """The value that `text` stands for.

    Raises:
        UsageError: it cannot be used for this setting; says what can.
        NotFoundError: a model that is not known, or not there.
    """
    settings = from_file({key: text})
    check_value(key, settings)
    return value_of(settings, key)


def check_value(key: str, settings: Settings) -> None:
    """Check what is more than a number or a text; raises as `parsed` does."""
    value = value_of(settings, key)
    if not isinstance(value, str):
        return
    match key:
        case "model":
            from localspec.model_choice import resolve

            resolve(value)
        case "verify":
            from localspec.verify import check_verify

            check_verify(value)
        case "draft.policy":
            from localspec.control import check_policy

            check_policy(value)
        case "draft.spec":
            from localspec.drafters import check_spec
            from localspec.model_files import resolve_drafts, with_files

            check_spec(with_files(DraftOptions(value), resolve_drafts(value)))
        case "engine.kv_type":
            from localspec.models.ggml_types import KV_TYPES

            if value not in KV_TYPES:
                raise UsageError(f"There is no KV cache type '{value}'; use one of: {', '.join(KV_TYPES)}.")


def check_file() -> None:
    """Raise `UsageError` or `NotFoundError` where a setting of the file cannot be used."""
    settings = from_file()
    for key in _keys_in_file():
        check_value(key, settings)


def variable_of(key: str) -> str | None:
    """The variable of the environment that sets this key now, and so beats the file."""
    names = [PREFIX + key.replace(".", "__").upper()]
    if key == "draft.spec":
        names.append(f"{PREFIX}DRAFT")
    return next((name for name in names if os.environ.get(name)), None)


def _keys_in_file() -> set[str]:
    """The keys that the file sets; it has been read as settings before."""
    file = config_file()
    data = tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if isinstance(data.get("draft"), str):
        data["draft"] = {"spec": data["draft"]}
    known = dict(known_keys())
    inner = {f"{name}.{key}" for name, group in data.items() if isinstance(group, dict) for key in group}
    return {key for key in (*data, *inner) if key in known}


def _origin(key: str, in_file: set[str]) -> str:
    return variable_of(key) or ("config.toml" if key in in_file else "default")
