"""Which models are known and here, which one a chat starts with, and which one suits this machine best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from localspec.diagnosis.facts import look_at_place
from localspec.diagnosis.findings import Finding
from localspec.errors import LocalspecError
from localspec.models import choose, registry, store
from localspec.models.choose import Capacity
from localspec.models.disk import readable_size
from localspec.models.families import Catalogue


@dataclass(frozen=True, slots=True)
class Inventory:
    """What is known of models.

    Attributes:
        facts: plain values for the report.
        files: by name of those that are here, the one that a chat starts with first.
        findings: what is wrong with the lists of models or with the settings.
    """

    facts: dict[str, Any]
    files: Mapping[str, Path] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()


def look_at_models(capacity: Capacity) -> Inventory:
    """Read registries, settings and the folder of models; whatever is broken there becomes a finding."""
    place = look_at_place(store.models_dir())
    facts: dict[str, Any] = {
        "known": 0,
        "present": None,
        "best": None,
        "fetched": [],
        "folder": str(place.path),
        "free_bytes": None if place.problem else place.free_bytes,
    }
    try:
        catalogue, known = registry.catalogue(), registry.entries()
    except LocalspecError as error:
        return Inventory(facts, findings=(Finding("error", str(error)),))
    fetched = {name: path for name, entry in known.items() if (path := store.fetched(entry))}
    findings = []
    present, file = None, None
    try:
        present, file = _present(catalogue, capacity)
    except LocalspecError as error:
        findings.append(Finding("error", f"A chat cannot start with these settings: {error}"))
    if file is None:
        first = (registry.DEFAULT_MODEL, fetched.get(registry.DEFAULT_MODEL))
    else:
        first = (present or file.stem, file)
    best = choose.best(catalogue, capacity)
    default = known.get(registry.DEFAULT_MODEL)
    suits = best if best and best.suits else None
    if suits and present == registry.DEFAULT_MODEL:
        better = f"`localspec chat --model {suits.entry.name}` suits this machine"
        findings.append(Finding("note", f"A chat starts with the small demo model; {better}."))
    if default is not None and default.name not in fetched:
        size = f" ({readable_size(default.size)})" if default.size else ""
        findings.append(
            Finding("note", f"The default model {default.name}{size} is fetched by the first chat.")
        )
    facts |= {
        "known": len(known),
        "present": present,
        "best": {"name": suits.entry.name, "reason": suits.reason} if suits else None,
        "fetched": list(fetched),
    }
    files = {name: path for name, path in (first, *fetched.items()) if path is not None}
    return Inventory(facts, files, tuple(findings))


def _present(catalogue: Catalogue, capacity: Capacity) -> tuple[str, Path | None]:
    """Name and file of the model that the settings name; raises `LocalspecError` where there is none."""
    from localspec.settings import load_settings

    name = load_settings().model
    family = catalogue.family(name.strip())
    if family is not None:
        entry = choose.choose(family, capacity).entry
        return entry.name, store.fetched(entry)
    resolved = registry.resolve(name)
    return resolved.name, resolved.path
