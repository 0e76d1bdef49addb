"""The user's own `models.toml`, which may have been written by hand: all else in it stays as it is."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localspec import paths
from localspec.errors import StorageError, UsageError
from localspec.models import registry, store
from localspec.models.entries import HEADS, FileSource, ModelEntry
from localspec.models.gguf import GGUFHeader, read_header

_COMMENT = "by `localspec "
"""What is in every comment that is written here."""
_MOST_PROPOSALS = 10
_LOCK_S = 10.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class NewEntry:
    """A model that is to be added.

    Attributes:
        name: of the model; there is none of that name in the file.
        values: fields of the entry: texts, numbers, lists of texts, and the table "sampling".
        comment: a line above it.
    """

    name: str
    values: Mapping[str, Any]
    comment: str


def entry_of(name: str) -> ModelEntry | None:
    """What is known under `name`; raises `UsageError` where a registry cannot be read."""
    return registry.entries().get(name)


def taken_names() -> frozenset[str]:
    """Names of models and of families, which no other model can get."""
    known = registry.catalogue()
    return frozenset(known.models) | frozenset(known.families)


def is_file_of(entry: ModelEntry, path: Path) -> bool:
    """Whether an entry stands for the very file `path`."""
    source = entry.sources[0]
    return isinstance(source, FileSource) and source.path.absolute() == path.absolute()


def plain_name(text: str) -> str:
    """A name that the registry takes, in small letters; files may be called anything."""
    plain = re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")
    return plain or "model"


def check_free(name: str) -> None:
    """Raise `UsageError` unless a model can get this name."""
    if not _NAME.fullmatch(name):
        raise UsageError(f'"{name}" is not a usable name; use letters, digits, ".", "_" and "-".')
    taken = next((one for one in taken_names() if one.lower() == name.lower()), None)
    if taken is not None:
        entry = entry_of(taken)
        mine = entry is not None and entry.is_local
        forget = f", or `localspec models rm {taken}` first" if mine else ""
        raise UsageError(f"There is a model named {taken} already; give another --name{forget}.")


def entry_values(
    path: Path, header: GGUFHeader | None, *, size: int, description: str = ""
) -> dict[str, Any]:
    """Fields of the entry of a file on this machine."""
    values: dict[str, Any] = {"source": str(path.absolute()), "size": size, "description": description}
    if header is not None:
        values |= {
            "parameters": header.size_label,
            "quantization": header.file_type,
            "context": header.context_length or None,
        }
    return values


def known_values(entry: ModelEntry) -> dict[str, Any]:
    """What is known of a model that holds for its file wherever that lies."""
    return {
        "description": entry.description,
        "license": entry.license,
        "family": entry.family,
        "parameters": entry.parameters,
        "quantization": entry.quantization,
        "context": entry.context,
        "thinking": entry.thinking,
        "drafts": list(entry.drafts),
        "sampling": entry.sampling.given(),
    }


def add_entry(name: str, values: Mapping[str, Any], comment: str) -> None:
    """Append a model to the user's registry; see `NewEntry` and `add_entries`."""
    add_entries([NewEntry(name, values, comment)])


def add_entries(new: Sequence[NewEntry]) -> None:
    """Append models to the user's registry, all of them or none.

    Raises:
        UsageError: the file is no valid registry, before or after it.
        StorageError: it cannot be written.
    """
    with _changing() as file:
        _add(file, new)


def _add(file: Path, new: Sequence[NewEntry]) -> None:
    text = _text(file)
    blocks = "\n\n".join(_block(one) for one in new)
    whole = f"{text.rstrip()}\n\n{blocks}\n" if text.strip() else f"{text}{blocks}\n"
    try:
        tomllib.loads(whole)
    except tomllib.TOMLDecodeError as error:
        names = ", ".join(one.name for one in new)
        raise UsageError(
            f"{names} cannot be added to {file} ({error}); add a table {_header(new[0].name)} with "
            f"source = {_toml(new[0].values.get('source', ''))} by hand."
        ) from error
    _write(file, whole)


def register_head(path: Path, *, kind: str, target: registry.Resolved, name: str | None = None) -> str:
    """Make a head of the user's known, so that `--draft KIND` finds it for its target; returns its name.

    One that was registered for the same target under the same name is replaced.

    Args:
        path: its file.
        kind: a key of `HEADS`.
        target: the model that it was made for.
        name: made of the target's name and the kind where it is left out.

    Raises:
        UsageError: another model has that name, or the user's registry is not valid.
        StorageError: the user's registry cannot be written.
        ModelFileError, NotFoundError: the file is none.
    """
    name = name or head_name(kind, target)
    made_for = _made_for(target)
    if not _is_head(name, kind, made_for):
        check_free(name)
    else:
        remove_entry(name)
    header = read_header(path)
    values = entry_values(
        path,
        header,
        size=header.file_bytes,
        description=f"{HEADS[kind]} head for {target.name}.",
    )
    add_entry(name, values | {"head": kind, "target": made_for}, "Made by `localspec train`.")
    return name


def head_name(kind: str, target: registry.Resolved) -> str:
    """The name that a head for `target` gets of itself."""
    return plain_name(f"{target.name}-{kind}")


def check_head_name(kind: str, target: registry.Resolved) -> None:
    """Raise `UsageError` where a head for `target` could not be registered: another model has its name."""
    name = head_name(kind, target)
    if not _is_head(name, kind, _made_for(target)):
        check_free(name)


def _is_head(name: str, kind: str, made_for: str) -> bool:
    there = entry_of(name)
    return there is not None and (there.head, there.target) == (kind, made_for) and there.is_local


def _made_for(target: registry.Resolved) -> str:
    return str(target.path.absolute()) if target.entry is None and target.path else target.name


def remove_entry(name: str) -> None:
    """Take a model out of the user's registry, with the comment that was written above it here.

    Raises:
        UsageError: there is no such entry in that file, or it is written in a way that cannot be taken out.
        StorageError: it cannot be written.
    """
    with _changing() as file:
        _remove(file, name)


def _remove(file: Path, name: str) -> None:
    text = _text(file)
    before = tomllib.loads(text)
    wanted = {key: value for key, value in before.get("models", {}).items() if key != name}
    if len(wanted) == len(before.get("models", {})):
        raise UsageError(f"There is no [models.{name}] in {file}.")
    for edited in (*_without_lines(text, name), _without_table(text, name)):
        try:
            after = tomllib.loads(edited)
        except tomllib.TOMLDecodeError:
            continue
        if {**after, "models": after.get("models", {})} == {**before, "models": wanted}:
            _write(file, edited)
            return
    raise UsageError(f"{name} cannot be taken out of {file} safely; remove its lines by hand.")


def _without_lines(text: str, name: str) -> Iterator[str]:
    """The text without the lines of an entry: its tables, and nothing that belongs to what follows.

    A line inside of a text of several lines may look like a table, so there is more than one proposal.
    """
    lines = text.splitlines(keepends=True)
    quoted = f"(?:{re.escape(name)}|\"{re.escape(name)}\"|'{re.escape(name)}')"
    mine = re.compile(rf"\s*\[\s*models\s*\.\s*{quoted}\s*[\].]")
    tables = [at for at, line in enumerate(lines) if mine.match(line)]
    for skipped in range(min(len(tables), _MOST_PROPOSALS)):
        kept: list[str] = []
        done = 0
        for start in tables[skipped:]:
            between = lines[done:start]
            if not done or any(line.strip() and not line.startswith("#") for line in between):
                kept += between
            if kept and kept[-1].startswith("#") and _COMMENT in kept[-1]:
                kept.pop()
            done = _end_of_table(lines, start)
            while kept and not kept[-1].strip() and not "".join(lines[done : done + 1]).strip():
                kept.pop()
        yield "".join(kept + lines[done:])


def _end_of_table(lines: Sequence[str], start: int) -> int:
    """Where what follows a table begins: comments and empty lines before the next one are that one's."""
    end = start + 1
    while end < len(lines) and not lines[end].lstrip().startswith("["):
        end += 1
    while end > start + 1 and lines[end - 1].lstrip()[:1] in ("#", ""):
        end -= 1
    return end


def _without_table(text: str, name: str) -> str:
    """The same for entries that are not tables of their own, such as `own.source = ""` in [models]."""
    import tomlkit
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        models: Any = document["models"]
        del models[name]
        return tomlkit.dumps(document)
    except (TOMLKitError, KeyError, TypeError, AttributeError, ValueError):
        return text


@contextlib.contextmanager
def _changing() -> Iterator[Path]:
    """The user's registry, which no other process changes meanwhile.

    A link stays a link: what it points to is written.
    """
    from filelock import FileLock, Timeout

    file = registry.user_file()
    paths.ensure(file.parent)
    # No model is named so; and a folder of settings, which people look into, holds settings alone.
    lock = FileLock(paths.ensure(store.models_dir() / ".locks") / ".models.toml")
    try:
        lock.acquire(timeout=_LOCK_S)
    except Timeout as error:
        raise StorageError(f"Another process is changing {file}; try again when it is done.") from error
    except OSError as error:
        raise StorageError(f"Cannot write {file} ({error.strerror or error}); make it writable.") from error
    try:
        yield file.resolve()
    finally:
        lock.release()


def _text(file: Path) -> str:
    """What is in it; raises `UsageError` where that is no valid registry."""
    if not file.exists():
        return ""
    registry.load(file)
    return file.read_text(encoding="utf-8")


def _write(file: Path, text: str) -> None:
    partial = file.with_name(f"{file.name}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        if file.exists():
            partial.chmod(file.stat().st_mode)
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise StorageError(f"Cannot write {file} ({error.strerror or error}); make it writable.") from error


def _block(new: NewEntry) -> str:
    given = {key: value for key, value in new.values.items() if value not in (None, "", {}, [])}
    lines = (f"{key} = {_toml(value)}" for key, value in given.items())
    return "\n".join([f"# {new.comment}", _header(new.name), *lines])


def _header(name: str) -> str:
    return f"[models.{_toml(name)}]"


def _toml(value: Any) -> str:
    """A text, a number, a list of texts or a table of numbers as TOML."""
    if isinstance(value, str):
        # JSON's escapes are TOML's; only DEL may stand as it is in the one and not in the other.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)
