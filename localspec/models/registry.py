"""The models known by name: the shipped `models.toml`, extended by the user's own."""

from __future__ import annotations

import difflib
import functools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from localspec import paths
from localspec.errors import NotFoundError, UsageError
from localspec.models import store
from localspec.models.entries import HEADS, ModelEntry, parse_source
from localspec.models.families import Catalogue, Family, merged
from localspec.models.tables import read_tables
from localspec.text import printable

DEFAULT_MODEL = "smollm2"

_REPO = re.compile(r"\w[\w-]*/[\w.-]+(?<!\.gguf)(?::[\w.-]+)?")
_ADDRESS = re.compile(
    r"https?://[^/]+/([\w.-]+/[\w.-]+)(?:/(?:blob|resolve|tree)/([\w.+-]+)(?:/([^?#]+\.gguf))?)?/?(?:[?#].*)?"
)
"""A page of the hub, as it is copied from a browser: repository, revision and file."""
_LONGEST_SHOWN = 100


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


def catalogue() -> Catalogue:
    """All models and families, the user's replacing shipped ones of the same name.

    Raises:
        UsageError: a file is not valid TOML or an entry is not valid; names the file and the line.
    """
    file = shipped_file()
    known = _unchanging(file, file.stat().st_mtime_ns) if file.is_file() else load(file)
    own = user_file()
    return merged(known, load(own)) if _exists(own) else known


def entries() -> dict[str, ModelEntry]:
    """Every exact model by name: single ones, and the default file of every size of every family.

    Raises:
        UsageError: as for `catalogue`.
    """
    return dict(catalogue().models)


def load(file: Path) -> Catalogue:
    """Read one registry file; raises `UsageError` naming the file and the line."""
    return read_tables(file)


@functools.lru_cache(maxsize=1)
def _unchanging(file: Path, _written_ns: int) -> Catalogue:
    """The shipped file is read often, and changes with an update only."""
    return read_tables(file)


def resolve(name_or_path: str) -> Resolved:
    """Find out what a name, a path or a source (`hf:...`, `pypi:...`) stands for.

    A known name wins, also as `NAME:QUANTIZATION`; `./name` is always a file. Nothing is fetched.

    Raises:
        NotFoundError: no such name (the nearest ones are offered) or no such file.
        UsageError: an unusable `models.toml` or source, or the name of a family, of which
            `localspec.model_choice.resolve` takes the size that fits this machine.
    """
    text = name_or_path.strip()
    known = catalogue()
    entry = _known(text, known)
    if entry is not None:
        return Resolved(name=entry.name, path=store.fetched(entry), entry=entry)
    path = _expanded(text)
    if text and _exists(path):
        return Resolved(name=path.stem, path=path, entry=None)
    if text.startswith(("https://", "http://")):
        raise NotFoundError(f"{_shown(text)} is an address{_hub_hint(text) or '; give a name or a file'}.")
    if _looks_like_a_path(text):
        hint = _hub_hint(text)
        raise NotFoundError(
            f"There is no file {_shown(str(path))}: check the path, or see `localspec models list`{hint}."
        )
    raise _unknown(text, known, ", or give the path of a .gguf file")


def find_entry(name: str) -> ModelEntry:
    """The entry of a name or source.

    Raises:
        NotFoundError: no such name; the nearest ones are offered.
        UsageError: as for `resolve`.
    """
    known = catalogue()
    entry = _known(name, known)
    if entry is None:
        raise _unknown(name, known)
    return entry


def heads_for(target: Resolved) -> tuple[str, ...]:
    """Heads made for a model, as `--draft` takes them: "KIND:NAME" or "KIND:SOURCE", the user's newest first.

    Raises:
        UsageError: as for `catalogue`.
    """
    entry = target.entry
    names = {target.name} | ({entry.name, f"{entry.name}:{entry.quantization}"} if entry else set())
    own = [
        f"{one.head}:{one.name}"
        for one in catalogue().models.values()
        if one.head and (one.target in names or _is_at(one.target, target.path))
    ]
    listed = entry.drafts if entry else ()
    return (*reversed(own), *(draft for draft in listed if draft.partition(":")[0] in HEADS))


def _is_at(place: str, path: Path | None) -> bool:
    return path is not None and Path(place) == path.absolute()


def _known(text: str, known: Catalogue) -> ModelEntry | None:
    """The entry of a name or a source; None for anything else, such as a path."""
    entry = known.find(text)
    if entry is not None:
        return entry
    family = known.family(text)
    if family is not None:
        names = ", ".join(one.name for one in family.sizes)
        raise UsageError(f'"{family.name}" is a family of models; name one of them: {names}.')
    if text.startswith(("hf:", "pypi:")):
        return _adhoc(text)
    return None


def _unknown(text: str, known: Catalogue, otherwise: str = "") -> NotFoundError:
    base, _, wanted = text.rpartition(":")
    files = [one.quantization for one in known.files_of(base) if one.quantization]
    if files:
        return NotFoundError(f'There is no "{_shown(wanted)}" of {base}; there is {", ".join(files)}.')
    family = known.family(base)
    if family is not None:
        return NotFoundError(_size_needed(family, _shown(wanted)))
    near = _nearest(text, [*known.families, *known.models])
    return NotFoundError(f'No model is named "{_shown(text)}"{near}; see `localspec models list`{otherwise}.')


def _hub_hint(text: str) -> str:
    """How a file of the hub is written, where `text` seems to mean one; "" elsewhere."""
    address = _ADDRESS.fullmatch(text)
    if address and address[3]:
        revision = "" if address[2] == "main" else f"@{address[2]}"
        return f"; a file of the hub is written hf:{address[1]}{revision}/{address[3]}"
    if address:
        return f"; a file of the hub is written hf:{address[1]}/file.gguf"
    return "; a file of the hub is written hf:OWNER/REPO/file.gguf" if _REPO.fullmatch(text) else ""


def _shown(text: str) -> str:
    """What a user typed, fit for a sentence."""
    text = printable(" ".join(text.split()))
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def _size_needed(family: Family, wanted: str) -> str:
    """What to write instead of `FAMILY:WANTED`: the size alone, or one with the quantization."""
    sized = f"{family.name}-{wanted.lower()}"
    if sized in family.files:
        return f'A size is written with a dash: use "{sized}".'
    names = ", ".join(entry.name for entry in family.sizes)
    return f'"{family.name}" is a family; name a size of it before the colon, one of: {names}.'


def _nearest(text: str, known: Iterable[str]) -> str:
    wanted, known = text.lower()[:_LONGEST_SHOWN], list(known)
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
    except (OSError, ValueError):
        # Too long for a file name, with a null byte, or in a folder that may not be searched.
        return False


def _adhoc(text: str) -> ModelEntry:
    try:
        source = parse_source(text, Path.cwd())
    except ValueError as error:
        raise UsageError(f"Cannot use this model source: {error}.") from error
    scheme, _, rest = str(source).partition(":")
    return ModelEntry(name=re.sub(r"[^A-Za-z0-9._-]+", "--", f"{scheme}-{rest}"), sources=(source,))
