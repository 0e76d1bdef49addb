"""What a model's name stands for on this machine: of a family, the size that fits it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import IncompatibleError, LocalspecError
from localspec.models import choose, registry, store
from localspec.models.choose import Choice
from localspec.models.entries import HEADS, ModelEntry
from localspec.models.gguf import GGUFHeader, read_header
from localspec.models.heads import Kind, check_draft, head_facts, kind_named
from localspec.models.installed import installed
from localspec.models.lookalikes import purpose
from localspec.models.registry import Resolved
from localspec.models.split import size_on_disk

__all__ = [
    "KnownHead",
    "best_choice",
    "choice_of",
    "chosen_note",
    "companions_of",
    "find_entry",
    "heads_of",
    "known_file",
    "resolve",
    "resolve_draft",
    "resolve_head",
]

_TIMES_SMALLER = 6
"""A draft model that nobody asked for has to read this much less for a token than its target."""


def resolve(name_or_path: str) -> Resolved:
    """As `registry.resolve`, but a family's name is the size of it that fits this machine.

    The first such name on a machine takes a second, see `localspec.runtime.survey`. Nothing is fetched.

    Raises:
        NotFoundError: no such name (the nearest ones are offered) or no such file.
        UsageError: an unusable `models.toml` or source.
    """
    choice = choice_of(name_or_path)
    return registry.resolve(name_or_path) if choice is None else _resolved(choice.entry)


def resolve_draft(name_or_path: str) -> Resolved:
    """The same for a draft model, which has to be quick: a family's name is its smallest size."""
    family = registry.catalogue().family(name_or_path.strip())
    return registry.resolve(name_or_path) if family is None else _resolved(family.sizes[-1])


def resolve_head(kind: Kind, name: str, target: Resolved | None) -> Resolved:
    """What a head of `--draft` stands for.

    Args:
        kind: the method.
        name: a model's name, source or path; "" for the head that a registry lists for the target, the
            user's own first, and for MTP before that for the prediction layers of the target's own file.
        target: the model; None where it is not known yet: then a head without a name stands for no file.

    Raises:
        IncompatibleError: the target has no such head.
        NotFoundError: no such name, or no such file.
        UsageError: an unusable `models.toml` or source.
    """
    if name:
        return resolve_draft(name)
    if target is None:
        return Resolved(name=kind, path=None, entry=None)
    header = read_header(target.path) if kind == "mtp" and target.path is not None else None
    own = Resolved(name=kind, path=target.path, entry=target.entry)
    if header is not None and _has_own(header):
        return own
    for listed in registry.heads_for(target):
        said, _, source = listed.partition(":")
        if said == kind:
            return _resolved(registry.find_entry(source))
    if header is None and kind == "mtp" and target.entry is not None:
        # Its file has yet to be fetched: it may have such layers.
        return own
    if header is not None and header.extra_layers:
        # What is wrong with them is said where they are checked.
        return own
    make = f"make one with `localspec train eagle3 --target {target.name}`, or " if kind == "eagle3" else ""
    raise IncompatibleError(
        f"No {HEADS[kind]} head is known for {target.name}; {make}name one with --draft {kind}:PATH."
    )


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A head that was made for a model.

    Attributes:
        member: what `--draft` calls it.
        kind: the method.
        resolved: its name and file; of prediction layers (MTP) in the model's own file, that file.
    """

    member: str
    kind: Kind
    resolved: Resolved


def heads_of(model: Resolved) -> list[KnownHead]:
    """Heads that were made for a model, whether they are here or not: its own, the user's, then listed ones.

    None of them is looked into but the model's own.

    Raises:
        UsageError: an unusable `models.toml`.
        ModelFileError, NotFoundError: the model's file is none.
    """
    found: list[KnownHead] = []
    if model.path is not None and _has_own(read_header(model.path)):
        found.append(KnownHead("mtp", "mtp", model))
    for member in registry.heads_for(model):
        kind = kind_named(member)
        if kind is not None:
            entry = registry.find_entry(member.partition(":")[2])
            found.append(KnownHead(member, kind, _resolved(entry)))
    return found


def _has_own(header: GGUFHeader) -> bool:
    """Whether a model's file has prediction layers in it."""
    # A head by itself is refused as a target, in words of its own.
    facts = None if purpose(header) else head_facts(header)
    return facts is not None and facts.in_model


def known_file(path: Path) -> Resolved:
    """A model by its file alone: with what the registry knows of it, where it knows the file.

    Raises:
        UsageError: an unusable `models.toml`.
    """
    for entry, file in installed(registry.catalogue()):
        if file == path or (file.exists() and path.exists() and file.samefile(path)):
            return Resolved(name=entry.name, path=path, entry=entry)
    return Resolved(name=path.stem, path=path, entry=None)


def find_entry(name: str) -> ModelEntry:
    """As `registry.find_entry`, but a family's name is the size of it that fits this machine."""
    choice = choice_of(name)
    return registry.find_entry(name) if choice is None else choice.entry


def choice_of(name: str) -> Choice | None:
    """What is chosen for this machine where `name` is a family; None for anything else.

    Raises:
        UsageError: an unusable `models.toml`.
    """
    from localspec.runtime import survey

    family = registry.catalogue().family(name.strip())
    return None if family is None else choose.choose(family, survey.capacity())


def chosen_note(name: str) -> str:
    """A sentence for users on what was chosen for the family `name`; "" for anything else.

    Raises:
        UsageError: an unusable `models.toml`.
    """
    choice = choice_of(name)
    return "" if choice is None else f"{name.strip()}: {choice.reason}"


def companions_of(model: Resolved, path: Path) -> dict[str, Path]:
    """The installed head or draft model for `model`, whose file is `path`: member of `--draft` and file.

    A head made for it comes first, then prediction layers of its own, then a draft model made for it, then
    the smallest of its family. A draft model that is too large to be quick is none. Empty without any.

    Raises:
        UsageError: an unusable `models.toml`.
    """
    return _head_of(replace(model, path=path), path) or _draft_model_of(model.entry, path)


def _head_of(model: Resolved, path: Path) -> dict[str, Path]:
    try:
        header = read_header(path)
    except LocalspecError:
        return {}
    for member in registry.heads_for(model):
        file = store.fetched(registry.find_entry(member.partition(":")[2]))
        if file and _can_draft(member, file, header):
            return {member: file}
    return {"mtp": path} if _can_draft("mtp", path, header) else {}


def _can_draft(member: str, file: Path, target: GGUFHeader) -> bool:
    try:
        check_draft(member, read_header(file), target)
    except LocalspecError:
        return False
    return True


def _draft_model_of(entry: ModelEntry | None, path: Path) -> dict[str, Path]:
    if entry is None:
        return {}
    known = registry.catalogue()
    family = [one for one in known.models.values() if entry.family and one.family == entry.family]
    family.sort(key=choose.estimated_bytes)
    for name in dict.fromkeys([*entry.drafts, *(one.name for one in family)]):
        files = known.files_of(name)
        if name.startswith(("hf:", "pypi:")):
            files = (registry.find_entry(name),)
        for one in files:
            file = store.fetched(one)
            if file and _bytes_a_token(one, file) * _TIMES_SMALLER <= _bytes_a_token(entry, path):
                return {one.name: file}
    return {}


def _bytes_a_token(entry: ModelEntry, file: Path) -> float:
    """What a pass over one token reads: of a mixture of experts a part of the file."""
    shape = entry.shape
    return size_on_disk(file) * (shape.active / shape.weights if shape else 1.0)


def best_choice() -> Choice | None:
    """The model to recommend on this machine; None where the registry recommends no family.

    Raises:
        UsageError: an unusable `models.toml`.
    """
    from localspec.runtime import survey

    return choose.best(registry.catalogue(), survey.capacity())


def _resolved(entry: ModelEntry) -> Resolved:
    return Resolved(name=entry.name, path=store.fetched(entry), entry=entry)
