"""Settings into the user's config.toml; its comments and all that it says otherwise stay as they are."""

from __future__ import annotations

import contextlib
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit
from pydantic import ValidationError
from tomlkit.exceptions import TOMLKitError

from localspec.bench.report.disk import write_whole
from localspec.config_keys import path_of
from localspec.errors import StorageError, UsageError
from localspec.paths import ensure
from localspec.settings import Settings

Value = bool | int | float | str | None
"""Of a setting; None: not set."""


def write_settings(file: Path, changes: Mapping[str, Value]) -> None:
    """Change settings in the file, which need not be there; written whole or not at all.

    Args:
        file: the user's config.toml.
        changes: values by key, such as "engine.threads"; None takes a key out.

    Raises:
        UsageError: the file cannot be read as settings, or cannot be changed so; it is as it was.
        StorageError: it cannot be written.
    """
    text = _read(file)
    try:
        before = tomllib.loads(text)
        changed = edited(text, changes)
        after = tomllib.loads(changed)
        Settings.model_validate(_long_form(after), strict=True)
    except (TOMLKitError, ValidationError, ValueError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{file} could not be changed ({_first_line(error)}); it is as it was. Put the lines in yourself."
        ) from error
    if _flat(_long_form(after)) != _wanted(_flat(_long_form(before)), changes):
        raise UsageError(
            f"{file} is written in a way that cannot be changed safely; it is as it was. Put the lines in "
            "yourself."
        )
    ensure(file.parent)
    mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else None
    write_whole(file, changed.encode())
    if mode is not None:
        # The new file stands in for the old one in this too.
        with contextlib.suppress(OSError):
            file.chmod(mode)


def edited(text: str, changes: Mapping[str, Value]) -> str:
    """The text of a config file with some settings changed; raises `TOMLKitError` where it is no TOML."""
    document = tomlkit.parse(text)
    for key, value in changes.items():
        *above, name = path_of(key)
        _put(document, ".".join(above), name, value)
    return tomlkit.dumps(document)


def _put(document: tomlkit.TOMLDocument, group: str, name: str, value: Value) -> None:
    table: Any = document
    if group:
        held = document.get(group)
        if isinstance(held, str):
            # `draft = "suffix"` is short for its first key.
            if name == "spec" and value is not None:
                document[group] = value
                return
            inline = tomlkit.inline_table()
            inline["spec"] = str(held)
            document[group] = inline
        elif held is None:
            if value is None:
                return
            document[group] = tomlkit.table()
        table = document[group]
    if value is not None:
        table[name] = value
    elif name in table:
        del table[name]


def _read(file: Path) -> str:
    try:
        # Line ends as they are: a file that was written elsewhere keeps them.
        return file.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise StorageError(f"Cannot read {file} ({error.strerror}); nothing was written.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text; save it as UTF-8.") from error


def _long_form(data: dict[str, Any]) -> dict[str, Any]:
    draft = data.get("draft")
    return {**data, "draft": {"spec": draft}} if isinstance(draft, str) else data


def _flat(data: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{above}{name}.")
        else:
            found[f"{above}{name}"] = value
    return found


def _wanted(before: dict[str, Any], changes: Mapping[str, Value]) -> dict[str, Any]:
    together = {**before, **changes}
    return {key: value for key, value in together.items() if value is not None}


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or ["nested too deeply"])[0].rstrip(".")
