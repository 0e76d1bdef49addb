"""Which of the models that are known by name are on this machine."""

from __future__ import annotations

from pathlib import Path

from localspec.models import store
from localspec.models.entries import ModelEntry
from localspec.models.families import Catalogue


def every_file(known: Catalogue) -> list[ModelEntry]:
    """Every model in every quantization, in the order of the catalogue."""
    return [file for name in known.models for file in known.files_of(name)]


def installed(known: Catalogue) -> list[tuple[ModelEntry, Path]]:
    """Those that are here, with their files; no file is looked into."""
    found = [(entry, store.fetched(entry)) for entry in every_file(known)]
    return [(entry, path) for entry, path in found if path is not None]
