"""Reading a `models.toml`: every mistake is an error that names the file and the line."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from datetime import date, datetime
from pathlib import Path
from typing import Any

from localspec.errors import UsageError
from localspec.models.entries import (
    HEADS,
    ModelEntry,
    PypiSource,
    RecommendedSampling,
    Shape,
    Source,
    parse_source,
)
from localspec.models.families import Catalogue, Family
from localspec.text import printable

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DRAFT = re.compile(r"(?:[a-z0-9]+:)?((?:hf|pypi):.+)|[A-Za-z0-9][A-Za-z0-9._-]*(?::[A-Za-z0-9._-]+)?")
_LONGEST_NAME = 100
_LARGEST_FILE = 10_000_000
_THINKING = ("", "switch", "always")
_SAMPLING = {item.name for item in fields(RecommendedSampling)}
_SHARES = ("top_p", "min_p")

_TEXTS = frozenset({"description", "license", "thinking"})
_COUNTS = frozenset({"weights", "active", "cache_bytes"})
_FILE = frozenset({"source", "size", "sha256"})
_MODEL = (
    _FILE
    | _TEXTS
    | _COUNTS
    | {"family", "parameters", "quantization", "context", "sampling", "checked", "drafts", "head", "target"}
)
_FAMILY = _TEXTS | {"context", "sampling", "checked", "recommended", "sizes"}
_SIZE = _TEXTS | _COUNTS | {"parameters", "context", "sampling", "checked", "drafts", "files"}

_LARGEST = {"size": 10**14, "weights": 10**14, "active": 10**14, "cache_bytes": 10**9, "context": 2**31 - 1}
"""Numbers beyond these are mistakes, and would make sums of them useless."""

_Path = tuple[str, ...]


def read_tables(file: Path) -> Catalogue:
    """What one registry file says.

    Raises:
        UsageError: the file cannot be read, is no TOML, or says what cannot be; names file and line.
    """
    text = _read(file)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = _toml_problem(error, text)
        raise UsageError(f"{file}, line {line}: {message}; correct it or remove the file.") from error
    except (ValueError, RecursionError) as error:
        # Numbers of thousands of digits and deep nesting fail in Python itself.
        raise UsageError(f"{file} is not valid TOML: {error}; correct it or remove the file.") from error
    return _Reader(file, text).catalogue(data)


def _read(file: Path) -> str:
    try:
        # A pipe would be waited for, and some devices never end.
        usable = file.is_file() and file.stat().st_size <= _LARGEST_FILE
        text = file.read_text(encoding="utf-8") if usable else None
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror}; make it readable or remove it.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text; save it as UTF-8.") from error
    if text is None:
        raise UsageError(f"{file} is a folder, a device or far too large for a list of models; move it away.")
    return text


class _Reader:
    """Turns tables into entries; `at` is always the path of the table at work, for errors."""

    def __init__(self, file: Path, text: str) -> None:
        self._file = file
        self._text = text

    def catalogue(self, data: Mapping[str, Any]) -> Catalogue:
        self._known((), data, {"models", "families"}, "use [models.NAME] or [families.NAME]")
        models = {}
        for name, table in self._tables((), data, "models"):
            self._name(("models", name))
            models[name] = self._model(("models", name), table)
        families = {}
        for name, table in self._tables((), data, "families"):
            at = ("families", name)
            self._name(at)
            if name in models:
                raise self._error(at, f'"{name}" is a model already; a family needs another name')
            families[name] = self._family(at, table)
        for name, family in families.items():
            for entry in family.sizes:
                where = ("families", name, "sizes", entry.name.removeprefix(f"{name}-"))
                if entry.name in models or entry.name in families:
                    raise self._error(where, f'"{entry.name}" is the name of another model already')
                models[entry.name] = entry
        return Catalogue(models, families)

    # --- the three kinds of tables

    def _model(self, at: _Path, table: Mapping[str, Any]) -> ModelEntry:
        self._known(at, table, _MODEL)
        common = self._common(at, table)
        return ModelEntry(
            name=at[1],
            **common,
            **self._file_of(at, table, many=True),
            family=self._text_of(at, table, "family"),
            parameters=self._text_of(at, table, "parameters"),
            quantization=(quantization := self._text_of(at, table, "quantization")),
            quantizations=(quantization,) if quantization else (),
            shape=self._shape(at, table) if "weights" in table else None,
            drafts=self._drafts(at, table),
            head=self._head(at, table),
            target=self._text_of(at, table, "target"),
            origin=self._file,
        )

    def _head(self, at: _Path, table: Mapping[str, Any]) -> str:
        head = self._text_of(at, table, "head")
        if head and head not in HEADS:
            raise self._error((*at, "head"), f'"head" must be one of: {", ".join(HEADS)}')
        if bool(head) != bool(table.get("target")):
            raise self._error(at, f'"{at[1]}" needs both "head" and "target", the model that it was made for')
        return head

    def _family(self, at: _Path, table: Mapping[str, Any]) -> Family:
        self._known(at, table, _FAMILY)
        common = self._common(at, table)
        recommended = table.get("recommended", False)
        if not isinstance(recommended, bool):
            raise self._error((*at, "recommended"), '"recommended" must be true or false')
        files: dict[str, tuple[ModelEntry, ...]] = {}
        for size, values in self._tables(at, table, "sizes"):
            here = (*at, "sizes", size)
            self._name(here)
            known = {name.lower() for name in files}
            if f"{at[1]}-{size}".lower() in known:
                raise self._error(here, f'there is a size "{size}" already, in other letters')
            files[f"{at[1]}-{size}"] = self._size(here, values, common)
        if not files:
            raise self._error(at, f'"{at[1]}" needs sizes: [families.{at[1]}.sizes.NAME]')
        sizes = sorted((each[0] for each in files.values()), key=lambda one: -_weights(one))
        return Family(name=at[1], **common, recommended=recommended, sizes=tuple(sizes), files=files)

    def _size(self, at: _Path, table: Mapping[str, Any], family: Mapping[str, Any]) -> tuple[ModelEntry, ...]:
        """Every file of a size, the first one first."""
        self._known(at, table, _SIZE)
        given = {key: value for key, value in self._common(at, table).items() if key in table}
        name = f"{at[1]}-{at[3]}"
        for key in ("weights", "cache_bytes"):
            if key not in table:
                raise self._error(at, f'"{name}" needs "{key}"')
        values: dict[str, Any] = {
            **family,
            **given,
            "family": at[1],
            "parameters": self._text_of(at, table, "parameters"),
            "shape": self._shape(at, table),
            "drafts": self._drafts(at, table),
            "origin": self._file,
        }
        tables = list(self._tables(at, table, "files"))
        if not tables:
            raise self._error(at, f'"{name}" needs files: [families.{at[1]}.sizes."{at[3]}".files]')
        values["quantizations"] = tuple(quantization for quantization, _ in tables)
        files: list[ModelEntry] = []
        for quantization, each in tables:
            here = (*at, "files", quantization)
            self._name(here)
            if quantization.lower() in {one.quantization.lower() for one in files}:
                raise self._error(here, f'there is a file "{quantization}" already, in other letters')
            self._known(here, each, _FILE)
            files.append(
                ModelEntry(
                    name=f"{name}:{quantization}" if files else name,
                    quantization=quantization,
                    **self._file_of(here, each, many=False),
                    **values,
                )
            )
        return tuple(files)

    # --- their parts

    def _common(self, at: _Path, table: Mapping[str, Any]) -> dict[str, Any]:
        """What all three kinds can say."""
        values: dict[str, Any] = {key: self._text_of(at, table, key) for key in sorted(_TEXTS)}
        if values["thinking"] not in _THINKING:
            raise self._error((*at, "thinking"), '"thinking" must be "switch", "always" or ""')
        values["context"] = self._count(at, table, "context")
        values["sampling"] = self._sampling(at, table)
        checked = table.get("checked")
        if checked is not None and (not isinstance(checked, date) or isinstance(checked, datetime)):
            raise self._error((*at, "checked"), '"checked" must be a date such as 2026-01-31, without quotes')
        values["checked"] = checked
        return values

    def _file_of(self, at: _Path, table: Mapping[str, Any], *, many: bool) -> dict[str, Any]:
        """Where a file comes from, and how it is recognised."""
        sha256 = table.get("sha256")
        if sha256 is not None and not (isinstance(sha256, str) and re.fullmatch(r"[0-9a-fA-F]{64}", sha256)):
            raise self._error((*at, "sha256"), '"sha256" must be 64 hexadecimal digits')
        return {
            "sources": self._sources(at, table, many=many),
            "sha256": sha256.lower() if sha256 else None,
            "size": self._count(at, table, "size"),
        }

    def _sources(self, at: _Path, table: Mapping[str, Any], *, many: bool) -> tuple[Source, ...]:
        given = table.get("source")
        texts: list[Any] = given if isinstance(given, list) and many else [given]
        where = (*at, "source") if "source" in table else at
        if not texts or not all(isinstance(text, str) for text in texts):
            what = "text, or a list of texts" if many else "text"
            raise self._error(where, f'"{at[-1]}" needs a "source": {what}')
        try:
            sources = tuple(parse_source(text, self._file.parent) for text in texts)
        except ValueError as error:
            raise self._error(where, str(error)) from error
        if len(sources) > 1 and not all(isinstance(source, PypiSource) for source in sources):
            raise self._error(where, "only pypi sources can be joined")
        return sources

    def _shape(self, at: _Path, table: Mapping[str, Any]) -> Shape:
        weights = self._count(at, table, "weights") or 1
        active = self._count(at, table, "active") or weights
        if active > weights:
            raise self._error((*at, "active"), '"active" cannot be more than "weights"')
        cache = self._count(at, table, "cache_bytes", least=0)
        return Shape(weights, active, cache or 0)

    def _drafts(self, at: _Path, table: Mapping[str, Any]) -> tuple[str, ...]:
        given = table.get("drafts", [])
        if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
            raise self._error((*at, "drafts"), '"drafts" must be a list of names or sources')
        for one in given:
            match = _DRAFT.fullmatch(one)
            try:
                if match is None:
                    raise ValueError(f'"{one}" is no name and no source')  # noqa: TRY301
                if match[1]:
                    parse_source(match[1], self._file.parent)
            except ValueError as error:
                raise self._error((*at, "drafts"), f'in "drafts", {error}') from error
        return tuple(given)

    def _sampling(self, at: _Path, table: Mapping[str, Any]) -> RecommendedSampling:
        values, at = table.get("sampling", {}), (*at, "sampling")
        if not isinstance(values, dict):
            raise self._error(at, '"sampling" must be a table such as { temperature = 0.6 }')
        for key, value in values.items():
            if key not in _SAMPLING:
                offered = ", ".join(sorted(_SAMPLING))
                raise self._error((*at, key), f'"{key}" is not known in "sampling"; use one of: {offered}')
            kinds = int if key == "top_k" else (int, float)
            number = isinstance(value, kinds) and not isinstance(value, bool)
            kind = "a whole number" if key == "top_k" else "a number"
            if not number or not 0 <= value < _LARGEST["context"]:
                raise self._error((*at, key), f'"{key}" in "sampling" must be {kind} of at least 0')
            if key in _SHARES and (value > 1 or (key == "top_p" and value == 0)):
                least = "above 0" if key == "top_p" else "of at least 0"
                raise self._error((*at, key), f'"{key}" in "sampling" must be {kind} {least} and at most 1')
        return RecommendedSampling(**values)

    # --- values

    def _text_of(self, at: _Path, table: Mapping[str, Any], key: str) -> str:
        value = table.get(key, "")
        if not isinstance(value, str):
            raise self._error((*at, key), f'"{key}" must be text in quotes')
        return value

    def _count(self, at: _Path, table: Mapping[str, Any], key: str, *, least: int = 1) -> int | None:
        value = table.get(key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            above = "above 0" if least else "of at least 0"
            raise self._error((*at, key), f'"{key}" must be a whole number {above}')
        if value > _LARGEST[key]:
            raise self._error((*at, key), f'"{key}" is far too large')
        return value

    def _tables(self, at: _Path, table: Mapping[str, Any], key: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The tables inside the table `key`, by name."""
        inner = table.get(key, {})
        if not isinstance(inner, dict):
            name = ".".join([*at, key, "NAME"])
            raise self._error((*at, key), f'"{key}" must be a table; use [{name}]')
        for name, value in inner.items():
            if not isinstance(value, dict):
                form = "{ source = ... }" if key == "files" else f"[{'.'.join([*at, key, name])}]"
                raise self._error((*at, key, name), f'"{name}" must be a table; use {form}')
            yield name, value

    def _known(
        self, at: _Path, table: Mapping[str, Any], keys: frozenset[str] | set[str], instead: str = ""
    ) -> None:
        unknown = sorted(set(table) - keys)
        if unknown:
            instead = instead or f"use one of: {', '.join(sorted(keys))}"
            raise self._error((*at, unknown[0]), f'"{unknown[0]}" is not known here; {instead}')

    def _name(self, at: _Path) -> None:
        if not _NAME.fullmatch(at[-1]) or len(at[-1]) > _LONGEST_NAME:
            what = f'"{at[-1][:_LONGEST_NAME]}" is not a usable name; use letters, digits, ".", "_" and "-"'
            raise self._error(at, what)

    def _error(self, at: _Path, what: str) -> UsageError:
        # Keys may hold anything, line ends and escape sequences too.
        what = printable(" ".join(what.split()))
        return UsageError(f"{self._file}, line {line_of(self._text, at)}: {what}.")


def _weights(entry: ModelEntry) -> int:
    return entry.shape.weights if entry.shape else 0


def _toml_problem(error: tomllib.TOMLDecodeError, text: str) -> tuple[str, int]:
    # Its names of tables are Python's: ('models', 'a').
    message = re.sub(r"\(('[^()]*'),?\)", lambda keys: ".".join(re.findall("'([^']*)'", keys[1])), str(error))
    match = re.search(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$", message)
    if match is None:
        return message, 1
    line = int(match[1]) if match[1] else text.count("\n") + 1
    return message[: match.start()], line


_KEY = r"""(?:[A-Za-z0-9_-]+|"(?:[^"\\]|\\.)*"|'[^']*')"""
_KEYS = re.compile(rf"\s*({_KEY}(?:\s*\.\s*{_KEY})*)\s*=")


def line_of(text: str, path: _Path) -> int:
    """The line, from 1, of valid TOML in which the value at `path` is, or the innermost table around it."""
    table: _Path = ()
    best, longest = 1, 0
    for number, line in enumerate(text.split("\n"), 1):
        here = table
        if line.lstrip().startswith("["):
            header = _path_in(line)
            if header is None:
                continue
            here = table = header
        elif keys := _KEYS.match(line):
            here = (*table, *(_path_in(f"{keys[1]} = 0") or ()))
        else:
            continue
        same = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(here, path, strict=False))
        length = sum(1 for _ in same)
        if length > longest:
            best, longest = number, length
    return best


def _path_in(line: str) -> _Path | None:
    """The keys that a line of TOML names; None for one that is a part of something longer."""
    try:
        value = tomllib.loads(line)
    except (ValueError, RecursionError):
        return None
    keys: list[str] = []
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        keys.append(key)
        if isinstance(value, list) and value:
            value = value[0]
    return tuple(keys)
