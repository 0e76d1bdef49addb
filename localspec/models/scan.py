"""Models that are on this machine already: found in folders, told apart, and made known without a copy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from localspec.errors import LocalspecError, ModelFileError
from localspec.models import own, registry, store
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.gguf import GGUFHeader, read_header, read_part
from localspec.models.installed import every_file
from localspec.models.layouts import Candidate, Walk
from localspec.models.lookalikes import purpose
from localspec.models.places import Place

Kind = Literal["model", "other", "broken"]

_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(\.gguf)", re.IGNORECASE)
_PART = re.compile(r"-\d{5}-of-\d{5}$")
_MOST_PARTS = 1000
_BY = "Found by `localspec models scan`"


@dataclass(frozen=True, slots=True)
class Found:
    """A file, or the files of a split model, in some folder.

    Attributes:
        candidate: where it is, and what it is called there.
        kind: a model that chats; another GGUF file; one that cannot be used.
        reason: what another file is; why one cannot be used.
        size: bytes of all its files.
        parts: how many they are.
        header: of the first, None for one that cannot be used.
    """

    candidate: Candidate
    kind: Kind
    reason: str
    size: int
    parts: int
    header: GGUFHeader | None

    @property
    def path(self) -> Path:
        """The file, the first of a split model."""
        return self.candidate.path


@dataclass(frozen=True, slots=True)
class Named:
    """A model with the name that it has, or gets.

    Attributes:
        found: the model.
        name: what it is known as.
        new: whether it is not known yet.
    """

    found: Found
    name: str
    new: bool


@dataclass(frozen=True, slots=True)
class Scan:
    """What was found, models in the order of their folders.

    Attributes:
        models: those that chat, each once.
        others: projectors, adapters, draft heads, encoders and the like.
        broken: files that cannot be used.
        notes: folders and files that were left out, a sentence each.
    """

    models: tuple[Named, ...]
    others: tuple[Found, ...]
    broken: tuple[Found, ...]
    notes: tuple[str, ...]


def scan(places: Iterable[Place], on_file: Callable[[Path], None] | None = None) -> Scan:
    """Look through folders for GGUF files; only their headers are read, and nothing is changed.

    Args:
        places: the folders.
        on_file: called with each file before it is read.

    Raises:
        UsageError: a registry cannot be read.
    """
    known = _Known()
    walk = Walk(notes=known.gone())
    candidates = _unique(one for place in places for one in walk.candidates(place))
    found: list[Found] = []
    for parts in _sets(candidates):
        if on_file is not None:
            on_file(parts[0].path)
        one = _inspect(parts)
        if isinstance(one, str):
            walk.notes.append(one)
        else:
            found.append(one)
    return Scan(
        models=tuple(known.named(one) for one in found if one.kind == "model"),
        others=tuple(one for one in found if one.kind == "other"),
        broken=tuple(one for one in found if one.kind == "broken"),
        notes=tuple(walk.notes),
    )


def register(models: Sequence[Named]) -> list[Named]:
    """Make those that are new known by their names, in the user's registry; returns them.

    Raises:
        UsageError: the user's registry is not valid.
        StorageError: it cannot be written.
    """
    new = [one for one in models if one.new]
    if new:
        own.add_entries([own.NewEntry(one.name, _values(one), f"{_BY}.") for one in new])
    return new


def inspect(path: Path) -> Found:
    """What the file at `path` is; raises what `read_header` raises for one that cannot be read at all."""
    read_header(path)
    split = _SHARD.fullmatch(path.name)
    paths = [path]
    if split:
        count = min(int(split[3]), _MOST_PARTS)
        names = (f"{split[1]}-{number:05}-of-{split[3]}{split[4]}" for number in range(2, count + 1))
        paths += [other for other in map(path.with_name, names) if other.exists()]
    found = _inspect([Candidate(one, "", "", path.stem) for one in paths])
    if isinstance(found, str):
        raise ModelFileError(found)
    return found


# --- each file once, and the parts of a split model together


def _unique(candidates: Iterable[Candidate]) -> list[Candidate]:
    files: set[tuple[int, int]] = set()
    hashes: set[str] = set()
    kept = []
    for one in candidates:
        key = _identity(one.path)
        if (key is not None and key in files) or (one.sha256 and one.sha256 in hashes):
            continue
        if key is not None:
            files.add(key)
            if one.sha256:
                hashes.add(one.sha256)
        kept.append(one)
    return kept


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _sets(candidates: Iterable[Candidate]) -> list[list[Candidate]]:
    """The parts of each model in order; most are of one."""
    sets: dict[object, list[Candidate]] = {}
    for one in candidates:
        split = _SHARD.fullmatch(one.path.name)
        key = (one.path.parent, split[1], split[3]) if split else one.path
        sets.setdefault(key, []).append(one)
    return [sorted(parts, key=lambda part: part.path.name) for parts in sets.values()]


# --- what it is


def _inspect(parts: Sequence[Candidate]) -> Found | str:
    """What a model's files are; a note where they may not be read."""
    first = parts[0]
    try:
        headers = [read_part(part.path) for part in parts]
    except LocalspecError as error:
        if isinstance(error.__cause__, PermissionError):
            return str(error)
        return _broken(parts, _short(error, parts))
    problem = _incomplete(first.path, headers)
    if problem:
        return _broken(parts, problem)
    try:
        header = headers[0] if len(parts) == 1 else read_header(first.path)
    except LocalspecError as error:
        return _broken(parts, _short(error, parts))
    what = purpose(header)
    if not what and not header.tensor_count:
        what = "a vocabulary without weights"
    return Found(first, "other" if what else "model", what, header.file_bytes, len(parts), header)


def _broken(parts: Sequence[Candidate], reason: str) -> Found:
    size = 0
    for part in parts:
        try:
            size += part.path.stat().st_size
        except OSError:
            continue
    return Found(parts[0], "broken", reason, size, len(parts), None)


def _incomplete(first: Path, headers: Sequence[GGUFHeader]) -> str:
    """What is wrong with the set of a model's files, "" for nothing."""
    try:
        str(first.absolute()).encode()
    except UnicodeEncodeError:
        return "its path is not valid UTF-8; rename it"
    split = _SHARD.fullmatch(first.name)
    said = headers[0].split_count
    if split is None:
        return (
            f"one of the {said} parts of a split model, whose names have to end in -00001-of-{said:05}.gguf"
            if said > 1
            else ""
        )
    count = int(split[3])
    have = {int(found[2]) for found in (_SHARD.fullmatch(one.path.name) for one in headers) if found}
    if count > _MOST_PARTS or (said > 1 and said != count):
        return f"its name says {count} parts, the file itself {said}"
    missing = sorted(set(range(1, count + 1)) - have)
    if not missing:
        return ""
    shown = ", ".join(map(str, missing[:5])) + (", ..." if len(missing) > 5 else "")
    return f"{len(missing)} of the {count} parts of a split model are missing ({shown})"


def _short(error: LocalspecError, parts: Sequence[Candidate]) -> str:
    """What is wrong, without the path, which stands beside it."""
    text = str(error)
    for part in parts:
        text = text.replace(f"{part.path} is ", "").replace(str(part.path), part.path.name)
    return text.rstrip(".")


# --- names


def named(found: Found) -> Named:
    """The name of one model, or one that it can get; raises `UsageError` where a registry cannot be read."""
    return _Known().named(found)


class _Known:
    """What is known already, and which names are taken."""

    def __init__(self) -> None:
        catalogue = registry.catalogue()
        self._entries = dict(catalogue.models)
        self._taken = {name.lower() for name in own.taken_names()}
        self._files: dict[tuple[int, int], str] = {}
        self._hashes: dict[str, str] = {}
        self._wanted: dict[str, ModelEntry] = {}
        for entry in every_file(catalogue):
            path = store.fetched(entry)
            key = None if path is None else _identity(path)
            if path is None or key is None:
                # Only the default file of a size can be replaced by one of the user's own.
                shipped = entry.origin == registry.shipped_file() and entry.name in self._entries
                if entry.sha256 and shipped:
                    self._wanted[entry.sha256] = entry
                continue
            self._files.setdefault(key, entry.name)
            receipt = store.read_receipt(path)
            if receipt is not None:
                self._hashes.setdefault(receipt.sha256, entry.name)

    def gone(self) -> list[str]:
        """A sentence on each model of the user's own whose file is not there any more."""
        return [
            f"The file of {entry.name} is gone ({entry.source_text}); `localspec models rm {entry.name}` "
            "forgets the name."
            for entry in self._entries.values()
            if entry.is_local and store.fetched(entry) is None
        ]

    def named(self, found: Found) -> Named:
        """The model with its name, which no other gets from now on."""
        candidate = found.candidate
        key = _identity(candidate.path)
        known = (self._files.get(key) if key else None) or self._hashes.get(candidate.sha256)
        if known:
            return Named(found, known, new=False)
        entry = self._entry_of(found)
        if entry is not None and entry.name not in self._files.values():
            # The very file that would be fetched under this name.
            name = entry.name
        else:
            name = self._free(own.plain_name(_PART.sub("", candidate.name)), candidate.program)
        self._taken.add(name.lower())
        if key is not None:
            self._files[key] = name
        return Named(found, name, new=True)

    def _entry_of(self, found: Found) -> ModelEntry | None:
        """The entry whose file this is, by hash, or by repository, name and size."""
        entry = self._wanted.get(found.candidate.sha256)
        if entry is not None or not found.candidate.title:
            return entry
        for one in self._wanted.values():
            source = one.sources[0]
            if (
                isinstance(source, HubSource)
                and source.repo == found.candidate.title
                and source.filename == found.path.name
                and one.size == found.size
            ):
                return one
        return None

    def _free(self, name: str, program: str) -> str:
        """`name`, or one like it that is not taken."""
        place = own.plain_name(program) if program else "local"
        for one in (name, f"{name}-{place}"):
            if one.lower() not in self._taken:
                return one
        number = 2
        while f"{name}-{number}".lower() in self._taken:
            number += 1
        return f"{name}-{number}"


def _values(named: Named) -> Mapping[str, Any]:
    """Fields of an entry: what the file says, and of the model that it is a file of, what is known."""
    found = named.found
    values = own.entry_values(found.path, found.header, size=found.size, description=_description(found))
    known = registry.entries().get(named.name)
    return {**values, **(own.known_values(known) if known is not None else {})}


def _description(found: Found) -> str:
    title = found.header.name if found.header is not None else ""
    title = title if title.isprintable() and len(title) <= 80 else ""
    program = f"from {found.candidate.program}" if found.candidate.program else "on this machine"
    return f"{title or found.candidate.title or found.path.name}, {program}."
