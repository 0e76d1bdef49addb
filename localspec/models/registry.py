"""The models known by name: the shipped `models.toml`, extended by the user's own."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from localspec import paths
from localspec.errors import NotFoundError, UsageError
from localspec.models import store
from localspec.models.entries import ModelEntry, PypiSource, RecommendedSampling, parse_source

DEFAULT_MODEL = "smollm2"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_REPO = re.compile(r"\w[\w-]*/[\w.-]+(?<!\.gguf)")
_TEXT_FIELDS = ("description", "license", "family", "parameters", "quantization")
_INTEGER_FIELDS = ("size", "context")
_ENTRY_FIELDS = {"source", "sha256", "sampling", *_TEXT_FIELDS, *_INTEGER_FIELDS}
_SAMPLING_FIELDS = {item.name for item in fields(RecommendedSampling)}


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a `--model` value stands for.

    Attributes:
        name: short name for people.
        path: the file, None when the model is known but not fetched yet.
        entry: the registry's entry, None for a plain file.
    """

    name: str
    path: Path | None
    entry: ModelEntry | None


def shipped_file() -> Path:
    """The registry that came with localspec: beside this module when installed, at the top of a checkout."""
    packaged = Path(__file__).with_name("models.toml")
    return packaged if packaged.is_file() else Path(__file__).parents[2] / "models.toml"


def user_file() -> Path:
    """The user's own registry; it need not exist."""
    return paths.config_dir() / "models.toml"


def entries() -> dict[str, ModelEntry]:
    """Every known model by name, the user's entries replacing shipped ones.

    Raises:
        UsageError: a file is not valid TOML or an entry is not valid; names the file and the line.
    """
    known = load(shipped_file())
    own = user_file()
    if _exists(own):
        known.update(load(own))
    return known


def load(file: Path) -> dict[str, ModelEntry]:
    """Read one registry file; raises `UsageError` naming the file and the line."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"Cannot read {file}: {error.strerror}; make it readable or remove it.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text; save it as UTF-8.") from error
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, line = _toml_problem(error, text)
        raise UsageError(f"{file}, line {line}: {message}; correct it or remove the file.") from error
    except (ValueError, RecursionError) as error:
        # Numbers of thousands of digits and deep nesting fail in Python itself.
        raise UsageError(f"{file} is not valid TOML: {error}; correct it or remove the file.") from error
    problem = _Problem(file, text)
    unknown = sorted(set(data) - {"models"})
    if unknown:
        raise problem.error(None, unknown[0], f'"{unknown[0]}" is not known here; use [models.NAME]')
    models = data.get("models", {})
    if not isinstance(models, dict):
        raise problem.error(None, "models", '"models" must be a table; use [models.NAME]')
    return {name: _entry(name, table, file, problem) for name, table in models.items()}


def resolve(name_or_path: str) -> Resolved:
    """Find out what a name, a path or a source (`hf:...`, `pypi:...`) stands for.

    A known name wins; `./name` is always a file. Nothing is fetched.

    Raises:
        NotFoundError: no such name (the nearest ones are offered) or no such file.
        UsageError: an unusable `models.toml` or source.
    """
    text = name_or_path.strip()
    known = entries()
    if text in known:
        entry = known[text]
        return Resolved(name=text, path=store.fetched(entry), entry=entry)
    if text.startswith(("hf:", "pypi:")):
        entry = _adhoc(text)
        return Resolved(name=entry.name, path=store.fetched(entry), entry=entry)
    path = _expanded(text)
    if text and _exists(path):
        return Resolved(name=path.stem, path=path, entry=None)
    if _looks_like_a_path(text):
        hint = "; a file of the hub is written hf:OWNER/REPO/file.gguf" if _REPO.fullmatch(text) else ""
        raise NotFoundError(f"There is no file {path}: check the path, or see `localspec models list`{hint}.")
    raise NotFoundError(
        f'No model is named "{text}"{_nearest(text, known)}; see `localspec models list`, or give the path '
        "of a .gguf file."
    )


def find_entry(name: str) -> ModelEntry:
    """The entry of a name or source; raises `NotFoundError` (nearest names offered) for anything else."""
    known = entries()
    if name in known:
        return known[name]
    if name.startswith(("hf:", "pypi:")):
        return _adhoc(name)
    raise NotFoundError(f'No model is named "{name}"{_nearest(name, known)}; see `localspec models list`.')


def _nearest(text: str, known: Mapping[str, ModelEntry]) -> str:
    wanted = text.lower()
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    near += [name for name in known if wanted and name.startswith(wanted) and name not in near]
    if not near:
        return ""
    return f" (nearest: {', '.join(near[:3])})"


def _looks_like_a_path(text: str) -> bool:
    separators = tuple(separator for separator in (os.sep, os.altsep) if separator)
    return text.lower().endswith(".gguf") or text.startswith(("~", ".")) or any(s in text for s in separators)


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:
        # `~name` of nobody: then there is no such file either.
        return Path(text)


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        # Too long for a file name, or in a folder that may not be searched.
        return False


def _adhoc(text: str) -> ModelEntry:
    try:
        source = parse_source(text, Path.cwd())
    except ValueError as error:
        raise UsageError(f"Cannot use this model source: {error}.") from error
    scheme, _, rest = str(source).partition(":")
    return ModelEntry(name=re.sub(r"[^A-Za-z0-9._-]+", "--", f"{scheme}-{rest}"), sources=(source,))


@dataclass(frozen=True, slots=True)
class _Problem:
    """Turns a mistake in a registry file into an error that names the line."""

    file: Path
    text: str

    def error(self, model: str | None, key: str | None, what: str) -> UsageError:
        line = self._line(model, key)
        return UsageError(f"{self.file}, line {line}: {what}.")

    def _line(self, model: str | None, key: str | None) -> int:
        lines = self.text.splitlines()
        start = 0
        if model is not None:
            header = re.compile(rf"\s*\[\s*models\s*\.\s*[\"']?{re.escape(model)}[\"']?\s*[\].]")
            start = next((i for i, line in enumerate(lines) if header.match(line)), 0)
        if key is None:
            return start + 1
        wanted = re.compile(rf"\s*\[?\s*[\"']?{re.escape(key)}\b")
        return next((i for i in range(start, len(lines)) if wanted.match(lines[i])), start) + 1


def _toml_problem(error: tomllib.TOMLDecodeError, text: str) -> tuple[str, int]:
    message = str(error)
    match = re.search(r"\s*\(at (?:line (\d+), column \d+|end of document)\)$", message)
    if match is None:
        return message, 1
    line = int(match[1]) if match[1] else text.count("\n") + 1
    return message[: match.start()], line


def _entry(name: str, table: Any, file: Path, problem: _Problem) -> ModelEntry:
    if not _NAME.fullmatch(name):
        raise problem.error(
            name, None, f'"{name}" is not a usable name; use letters, digits, ".", "_" and "-"'
        )
    if not isinstance(table, dict):
        raise problem.error(None, name, f'"{name}" must be a table; use [models.{name}]')
    unknown = sorted(set(table) - _ENTRY_FIELDS)
    if unknown:
        offered = ", ".join(sorted(_ENTRY_FIELDS))
        raise problem.error(name, unknown[0], f'"{unknown[0]}" is not known here; use one of: {offered}')
    for key in _TEXT_FIELDS:
        if not isinstance(table.get(key, ""), str):
            raise problem.error(name, key, f'"{key}" must be text in quotes')
    for key in _INTEGER_FIELDS:
        value = table.get(key, 1)
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise problem.error(name, key, f'"{key}" must be a whole number above 0')
    sha256 = table.get("sha256")
    if sha256 is not None and not (isinstance(sha256, str) and re.fullmatch(r"[0-9a-fA-F]{64}", sha256)):
        raise problem.error(name, "sha256", '"sha256" must be 64 hexadecimal digits')
    given = table.get("source")
    sources: list[Any] = given if isinstance(given, list) else [given]
    if not sources or not all(isinstance(source, str) for source in sources):
        raise problem.error(name, "source", f'"{name}" needs a "source": text, or a list of texts')
    try:
        parsed = tuple(parse_source(source, file.parent) for source in sources)
    except ValueError as error:
        raise problem.error(name, "source", str(error)) from error
    if len(parsed) > 1 and not all(isinstance(source, PypiSource) for source in parsed):
        raise problem.error(name, "source", "only pypi sources can be joined")
    return ModelEntry(
        name=name,
        sources=parsed,
        sha256=sha256.lower() if sha256 else None,
        size=table.get("size"),
        context=table.get("context"),
        sampling=_sampling(name, table.get("sampling", {}), problem),
        origin=file,
        **{key: table.get(key, "") for key in _TEXT_FIELDS},
    )


def _sampling(name: str, table: Any, problem: _Problem) -> RecommendedSampling:
    if not isinstance(table, dict):
        raise problem.error(name, "sampling", '"sampling" must be a table such as { temperature = 0.6 }')
    for key, value in table.items():
        if key not in _SAMPLING_FIELDS:
            offered = ", ".join(sorted(_SAMPLING_FIELDS))
            raise problem.error(
                name, "sampling", f'"{key}" is not known in "sampling"; use one of: {offered}'
            )
        number = isinstance(value, int if key == "top_k" else (int, float)) and not isinstance(value, bool)
        if not number or value < 0:
            kind = "a whole number" if key == "top_k" else "a number"
            raise problem.error(name, "sampling", f'"{key}" in "sampling" must be {kind} of at least 0')
    return RecommendedSampling(**table)
