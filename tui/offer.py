"""What a first run offers: a better model than the small one that it starts with. No widgets here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.models import registry
from localspec.models.choose import SLOWEST, Capacity, best, estimated_bytes
from localspec.models.disk import readable_size
from localspec.models.entries import ModelEntry
from localspec.models.families import Catalogue
from localspec.models.gguf import read_header
from localspec.models.installed import installed
from localspec.models.lookalikes import purpose
from localspec.models.registry import Resolved
from localspec.runtime.survey import capacity
from localspec.settings import config_file
from tui import figures
from tui.keymap import KEYS
from tui.model_rows import bytes_of, fit, free_bytes, name_of, part_bytes

FEWEST_TIMES = 3
"""How many times larger than the demo model an installed one has to be to count as better."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What can be had in place of the demo model.

    Attributes:
        demo: name of the model that the app has started with.
        entry: the model that suits this machine; None where there is none to offer.
        installed: whether it is on this machine already.
        facts: its size and speed, for people.
    """

    demo: str
    entry: ModelEntry | None = None
    installed: bool = False
    facts: str = ""

    @property
    def sentence(self) -> str:
        """One line for people."""
        start, keep = f"{self.demo} is a small demo model.", KEYS["chat.keep_model"]
        if self.entry is None:
            return f"{start} {KEYS['chat.model']} shows others · {keep}: do not say this again"
        what = "changes to" if self.installed else "gets"
        model = f"{self.entry.name} ({self.facts})"
        return f"{start} {KEYS['chat.better_model']} {what} {model} · {keep}: no, thanks"


def find_offer(demo: str) -> Offer:
    """The best model for this machine, an installed one first. Takes a moment: for a thread.

    Args:
        demo: name of the model that the app has started with.
    """
    try:
        machine = capacity()
        here = _best_installed(demo, machine)
        if here is not None:
            return here
        choice = best(_with_room(registry.catalogue()), machine)
    except (LocalspecError, OSError):
        # What is wrong with the registry is said where somebody uses it.
        return Offer(demo)
    if choice is None or not choice.suits or choice.entry.name == demo:
        return Offer(demo)
    entry = choice.entry
    whole, part = estimated_bytes(entry), part_bytes(entry)
    size = f"{readable_size(whole)} to fetch"
    if part:
        size += f", {readable_size(part)} of it here already"
    return Offer(demo, entry, facts=_facts(size, choice.tokens_per_second))


def _with_room(known: Catalogue) -> Catalogue:
    """The families without those files that the disk has no room for."""
    free = free_bytes()
    if free is None:
        return known

    def kept(files: Iterable[ModelEntry]) -> tuple[ModelEntry, ...]:
        return tuple(file for file in files if estimated_bytes(file) - part_bytes(file) <= free)

    families = {
        name: replace(
            family,
            sizes=kept(family.sizes),
            files={size: kept(files) for size, files in family.files.items()},
        )
        for name, family in known.families.items()
    }
    return replace(known, families={name: one for name, one in families.items() if one.sizes})


def _best_installed(demo: str, machine: Capacity) -> Offer | None:
    """The largest model that is here, can chat, and is quick enough."""
    files = installed(registry.catalogue())
    least = FEWEST_TIMES * next((bytes_of(entry) for entry, _ in files if entry.name == demo), 0)
    found: list[tuple[int, Offer]] = []
    for entry, path in files:
        size = bytes_of(entry)
        if entry.name == demo or size <= least or not _chats(path):
            continue
        here = fit(entry, size, machine)
        if here is not None and here.fits and (here.rate is None or here.rate >= SLOWEST):
            found.append((size, Offer(demo, entry, installed=True, facts=_facts("installed", here.rate))))
    return max(found, key=lambda one: one[0])[1] if found else None


def _chats(path: Path) -> bool:
    """Whether a file is a model that was trained to answer."""
    try:
        header = read_header(path)
    except LocalspecError:
        return False
    return header.has_chat_template and not purpose(header)


def _facts(size: str, rate: float | None) -> str:
    return f"{size}, {figures.estimate(rate)} tok/s" if rate else size


def setting_of(model: Resolved) -> str:
    """What the setting `model` has to say so that this model is found again."""
    if model.entry is not None:
        return name_of(model.entry)
    return str(model.path.absolute()) if model.path is not None else model.name


def remember_model(model: str) -> Path:
    """Start with this model from now on; returns the file that says so.

    Raises:
        UsageError: the settings cannot be read, or cannot be changed safely.
        StorageError: they cannot be written.
    """
    from localspec.config_file import write_settings

    file = config_file()
    write_settings(file, {"model": model})
    return file
