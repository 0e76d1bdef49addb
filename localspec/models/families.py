"""Families: models of one name in several sizes, of which each machine can run some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TypeVar

from localspec.models.entries import ModelEntry, RecommendedSampling


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models.

    Attributes:
        name: what the user types for the size that fits this machine.
        description: one sentence.
        license: name of the licence.
        thinking: as in `ModelEntry`.
        context: trained context in tokens, None if not stated.
        sampling: recommended sampling.
        checked: when the sources were last confirmed.
        recommended: whether it is one to offer to somebody who has named no model.
        sizes: the default file of each size, largest first.
        files: every file of a size by the name of the size ("qwen3-8b"), the default one first.
    """

    name: str
    description: str = ""
    license: str = ""
    thinking: str = ""
    context: int | None = None
    sampling: RecommendedSampling = field(default_factory=RecommendedSampling)
    checked: date | None = None
    recommended: bool = False
    sizes: tuple[ModelEntry, ...] = ()
    files: Mapping[str, tuple[ModelEntry, ...]] = field(default_factory=dict)


_Named = TypeVar("_Named")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Everything that is known by name.

    Attributes:
        models: exact models by name: single ones, and the default file of every size of every family.
        families: families by name; no model has the name of one.
    """

    models: Mapping[str, ModelEntry]
    families: Mapping[str, Family]

    def family(self, name: str) -> Family | None:
        """The family `name`, in any case; None where there is none."""
        return None if name in self.models else _in_any_case(self.families, name)

    def find(self, name: str) -> ModelEntry | None:
        """The model `name`, which may be `NAME:QUANTIZATION`, in any case; None where there is none."""
        entry = None if name in self.families else _in_any_case(self.models, name)
        if entry is not None:
            return entry
        base, colon, wanted = name.rpartition(":")
        if not colon:
            return None
        return next((one for one in self.files_of(base) if one.quantization.lower() == wanted.lower()), None)

    def files_of(self, name: str) -> tuple[ModelEntry, ...]:
        """Every file of the model `name`, the default one first; empty where there is no such model."""
        entry = _in_any_case(self.models, name)
        if entry is None:
            return ()
        for family in self.families.values():
            files = family.files.get(entry.name, ())
            if entry in files:
                return files
        return (entry,)


def _in_any_case(table: Mapping[str, _Named], name: str) -> _Named | None:
    """What is called `name`, or like it in other letters where that is one thing only."""
    if name in table:
        return table[name]
    alike = [one for key, one in table.items() if key.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def merged(first: Catalogue, later: Catalogue) -> Catalogue:
    """Both catalogues; a name of the later one takes the place of the same name in the first.

    A family is replaced as a whole. A model that has the name of a size of a family stands for that size, and
    a family of that name takes the size out of it.
    """
    families, models = {}, dict(first.models)
    for name, family in first.families.items():
        for entry in family.sizes:
            del models[entry.name]
        kept = tuple(entry for entry in family.sizes if entry.name not in later.families)
        if kept and name not in later.models and name not in later.families:
            files = {entry.name: family.files[entry.name] for entry in kept}
            families[name] = _with_own(replace(family, sizes=kept, files=files), later.models)
    for name in later.families:
        models.pop(name, None)
    models.update(later.models)
    for family in families.values():
        models.update((entry.name, entry) for entry in family.sizes)
    return Catalogue(models, {**families, **later.families})


def _with_own(family: Family, models: Mapping[str, ModelEntry]) -> Family:
    """The family with those of `models` that have the name of one of its sizes."""
    sizes, files = [], dict(family.files)
    for entry in family.sizes:
        own = models.get(entry.name)
        if own is not None:
            others = tuple(one for one in files[entry.name][1:] if one.quantization != own.quantization)
            names = tuple(one.quantization for one in (own, *others) if one.quantization)
            own = replace(own, shape=own.shape or entry.shape, quantizations=names)
            files[entry.name] = (own, *others)
        sizes.append(own or entry)
    return replace(family, sizes=tuple(sizes), files=files)
