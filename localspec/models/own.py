"""Adding to the user's own `models.toml`, which may have been written by hand: nothing in it is changed."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from localspec import paths
from localspec.errors import StorageError, UsageError
from localspec.models import registry
from localspec.models.entries import FileSource, ModelEntry


def entry_of(name: str) -> ModelEntry | None:
    """What is known under `name`; raises `UsageError` where a registry cannot be read."""
    return registry.entries().get(name)


def is_file_of(entry: ModelEntry, path: Path) -> bool:
    """Whether an entry stands for the very file `path`."""
    source = entry.sources[0]
    return isinstance(source, FileSource) and source.path.absolute() == path.absolute()


def add_entry(name: str, values: Mapping[str, Any], comment: str) -> None:
    """Append the model `name` to the user's registry.

    Args:
        name: of the model; there is none of that name in the file.
        values: fields of the entry: texts, numbers, and the table "sampling".
        comment: a line above it.

    Raises:
        UsageError: the file is no valid registry, before or after it.
        StorageError: it cannot be written.
    """
    file = registry.user_file()
    paths.ensure(file.parent)
    # A link stays a link: what it points to is written.
    file = file.resolve()
    text = ""
    if file.exists():
        registry.load(file)
        text = file.read_text(encoding="utf-8")
    block = "\n".join(
        [
            f"# {comment}",
            f"[models.{_toml(name)}]",
            *(f"{key} = {_toml(value)}" for key, value in values.items() if value not in (None, "", {})),
        ]
    )
    whole = f"{text.rstrip()}\n\n{block}\n" if text.strip() else f"{text}{block}\n"
    try:
        tomllib.loads(whole)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"The model {name} cannot be added to {file} ({error}); add a table [models.{_toml(name)}] with "
            f"source = {_toml(values.get('source', ''))} by hand."
        ) from error
    partial = file.with_name(f"{file.name}.partial")
    try:
        partial.write_text(whole, encoding="utf-8")
        if file.exists():
            partial.chmod(file.stat().st_mode)
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageError(f"Cannot write {file} ({error.strerror or error}); make it writable.") from error


def _toml(value: Any) -> str:
    """A text, a number or a table of numbers as TOML."""
    if isinstance(value, str):
        # JSON's escapes are TOML's; only DEL may stand as it is in the one and not in the other.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return repr(value)
