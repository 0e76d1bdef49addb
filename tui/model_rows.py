"""What the models screen lists: what is installed, and what could be. Reads files; for a thread."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.models import registry, store
from localspec.models.choose import Capacity, alone, choose, estimated_bytes
from localspec.models.entries import HubSource, ModelEntry
from localspec.models.families import Family
from localspec.models.installed import installed as installed_models

PLACES = {"gpu": "GPU", "both": "GPU + CPU", "cpu": "CPU"}
"""Where a model's layers would be, as the list shows it."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How a model would run on this machine.

    Attributes:
        place: where its layers would be.
        fits: whether there is room for it at all.
        rate: expected tokens a second without drafts, None where the machine's bandwidth is not known.
        reason: a sentence for people.
    """

    place: str
    fits: bool
    rate: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A model, or a family of them.

    Attributes:
        id: tells it from the others.
        name: what is shown, and what it is chosen by; of a family, see `entry`.
        entry: what is known of it; of a family, the size for this machine; None for a plain file.
        path: its file, None where there is none yet.
        size: bytes of the file, or of the one to fetch; None if nobody knows.
        part: bytes of it that are here from an earlier try.
        fit: how it would run; None before that is known.
        current: whether it answers now.
        sizes: what a family folds out to.
        note: how many sizes a family has, and which one suits.
        about: what it is good for.
    """

    id: str
    name: str
    entry: ModelEntry | None = None
    path: Path | None = None
    size: int | None = None
    part: int = 0
    fit: Fit | None = None
    current: bool = False
    sizes: tuple[ModelRow, ...] = ()
    note: str = ""
    about: str = ""

    def has(self, words: Iterable[str]) -> bool:
        """Whether all of these, in lower case, are found in what is known of it."""
        entry = self.entry
        told = [self.name, self.about]
        if entry:
            told.append(entry.license)
        if entry and not self.sizes:
            told += [entry.parameters, entry.quantization]
        text = " ".join(told).casefold()
        return all(word in text for word in words)

    @property
    def runs_on(self) -> str:
        """Where it would run; "" before that is known."""
        if self.fit is None:
            return ""
        return self.fit.place if self.fit.fits else "too large"


@dataclass(frozen=True, slots=True)
class Shelf:
    """The two parts of the list, the bytes that the first one takes, and those that are free."""

    installed: tuple[ModelRow, ...] = ()
    available: tuple[ModelRow, ...] = ()
    taken: int = 0
    free: int | None = None


def read_shelf(current: Path | None, capacity: Capacity | None) -> Shelf:
    """Everything that can be chosen.

    Args:
        current: file of the model that answers now.
        capacity: of this machine; None leaves out where models would run.

    Raises:
        UsageError: a registry cannot be read.
    """
    known = registry.catalogue()
    installed = [_row(entry, path, current, capacity) for entry, path in installed_models(known)]
    installed += [_row(entry, path, current, capacity) for entry, path in _fetched_by_source(installed)]
    if current is not None and not any(row.current for row in installed):
        name, size = current.stem, current.stat().st_size if current.is_file() else None
        installed.insert(0, ModelRow(str(current), name, path=current, size=size, current=True))
    installed.sort(key=lambda row: not row.current)
    here = {row.id for row in installed}
    available = [
        row
        for family in sorted(known.families.values(), key=lambda one: not one.recommended)
        if (row := _family_row(family, here, capacity)).sizes
    ]
    of_families = {entry.name for family in known.families.values() for entry in family.sizes}
    available += [
        _row(entry, None, current, capacity)
        for entry in known.models.values()
        if entry.name not in of_families and entry.name not in here and not entry.is_local
    ]
    return Shelf(tuple(installed), tuple(available), sum(row.size or 0 for row in installed), free_bytes())


def typed_row(text: str, capacity: Capacity | None) -> ModelRow | None:
    """The row of a name or source that is not in the list, such as `qwen3-8b:Q6_K` or `hf:...`."""
    try:
        entry = registry.find_entry(text.strip())
    except LocalspecError:
        return None
    return _row(entry, store.fetched(entry), None, capacity)


def narrowed(
    rows: Iterable[ModelRow], text: str, unfolded: Container[str]
) -> Iterator[tuple[ModelRow, str, bool]]:
    """Rows to show, each with the family that it is a size of, and whether the filter means the row itself.

    Args:
        rows: one part of a shelf.
        text: words that a row has to have; families with such sizes are folded out.
        unfolded: ids of families that are folded out in any case.
    """
    words = text.casefold().split()
    for row in rows:
        meant = row.has(words)
        sizes = [size for size in row.sizes if meant or size.has(words)]
        if meant or sizes:
            yield row, "", meant
            if words or row.id in unfolded:
                yield from ((size, row.id, not meant) for size in sizes)


def name_of(entry: ModelEntry) -> str:
    """What an entry is found by again: its name, or its source where no registry defines it."""
    return entry.name if entry.origin is not None else entry.source_text


def _fetched_by_source(listed: Iterable[ModelRow]) -> Iterator[tuple[ModelEntry, Path]]:
    """Files that were fetched by `hf:...`, without a name in the registry."""
    known = {row.path for row in listed}
    for receipt_file in sorted(store.models_dir().glob("*/*.gguf.json")):
        path = receipt_file.with_suffix("")
        receipt = store.read_receipt(path)
        if path in known or receipt is None or not receipt.source.startswith("hf:"):
            continue
        with contextlib.suppress(LocalspecError):
            entry = registry.find_entry(receipt.source)
            found = store.fetched(entry)
            if found is not None and found not in known:
                yield entry, found


def _family_row(family: Family, here: set[str], capacity: Capacity | None) -> ModelRow:
    """A family with those of its sizes that are not here."""
    note = f"{len(family.sizes)} size{'s' if len(family.sizes) != 1 else ''}"
    entry, fits = family.sizes[-1] if family.sizes else None, None
    if capacity is not None and family.sizes:
        choice = choose(family, capacity)
        entry = choice.entry
        fits = Fit(PLACES[choice.place], choice.fits, choice.tokens_per_second, choice.reason)
        if choice.suits and len(family.sizes) > 1 and entry.parameters:
            note += f", {entry.parameters} suits"
    sizes = tuple(
        _row(file, None, None, capacity)
        for default in family.sizes
        for place, file in enumerate(family.files.get(default.name) or (default,))
        # Of other quantizations only the one that suits, and what has been begun.
        if file.name not in here and (place == 0 or file == entry or part_bytes(file))
    )
    return ModelRow(
        f"family/{family.name}",
        family.name,
        entry=entry,
        size=estimated_bytes(entry) if entry is not None and fits is not None else None,
        fit=fits,
        sizes=sizes,
        note=note,
        about=family.description,
    )


def _row(entry: ModelEntry, path: Path | None, current: Path | None, capacity: Capacity | None) -> ModelRow:
    size = bytes_of(entry) if path is not None else estimated_bytes(entry) or None
    name = name_of(entry)
    return ModelRow(
        name,
        name,
        entry,
        path,
        size,
        part=0 if path is not None else part_bytes(entry),
        about=entry.description,
        fit=fit(entry, size, capacity),
        current=path is not None and current is not None and same_file(path, current),
    )


def fit(entry: ModelEntry, size: int | None, capacity: Capacity | None) -> Fit | None:
    """How one model would run; None where that cannot be told."""
    if capacity is None or not size:
        return None
    choice = alone(replace(entry, size=size), capacity)
    reason = choice.reason
    if not choice.suits:
        slow, large = "It is slow on this machine.", "It does not fit into this machine's memory."
        reason = slow if choice.fits else large
    return Fit(PLACES[choice.place], choice.fits, choice.tokens_per_second, reason)


def bytes_of(entry: ModelEntry) -> int:
    """Bytes of a model's files, as far as they are here."""
    total = 0
    with contextlib.suppress(OSError, ValueError):
        for file in store.files(entry):
            total += file.stat().st_size
    return total


def part_bytes(entry: ModelEntry) -> int:
    """Bytes of a download that was not finished."""
    total = 0
    # Of a package there is nothing to go on with.
    if isinstance(entry.sources[0], HubSource):
        with contextlib.suppress(OSError):
            for file in (store.entry_dir(entry) / ".partial").glob("*.part"):
                total += file.stat().st_size
    return total


def free_bytes() -> int | None:
    """Bytes that are free where models are fetched to."""
    folder = store.models_dir()
    with contextlib.suppress(OSError):
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free
    return None


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file."""
    try:
        return one.samefile(other)
    except OSError:
        return False
