"""Where fetched models lie, and how a finished file is told from anything else.

    <cache>/models/NAME/FILE.gguf        the model, moved here in one step once it is whole and checked
    <cache>/models/NAME/FILE.gguf.json   its receipt: source, hash, and the size and time it had then
    <cache>/models/NAME/.partial/        a download that can be continued
    <cache>/models/NAME/.lock            held while fetching

A file counts as fetched only with a receipt that fits it: nothing is hashed twice, nothing partial is used.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from localspec import paths
from localspec.models.entries import FileSource, ModelEntry


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was known of a file when it was checked; size and time tell whether it still is that file."""

    source: str
    sha256: str
    size: int
    mtime_ns: int


def models_dir() -> Path:
    """Folder of every fetched model."""
    return paths.cache_dir() / "models"


def entry_dir(entry: ModelEntry) -> Path:
    """Folder of one model; nothing else writes into it."""
    return models_dir() / entry.name


def final_path(entry: ModelEntry) -> Path:
    """Where the model's file is, or will be."""
    source = entry.sources[0]
    return source.path if isinstance(source, FileSource) else entry_dir(entry) / entry.filename


def fetched(entry: ModelEntry) -> Path | None:
    """The model's file if it is whole and from this source, else None. Reads no model data."""
    path = final_path(entry)
    if isinstance(entry.sources[0], FileSource):
        try:
            return path if path.is_file() else None
        except OSError:
            # Too long for a file name, or in a folder that may not be searched.
            return None
    receipt = read_receipt(path)
    if receipt is None or receipt.source != entry.source_text:
        return None
    if entry.sha256 is not None and receipt.sha256 != entry.sha256:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return path if (status.st_size, status.st_mtime_ns) == (receipt.size, receipt.mtime_ns) else None


def read_receipt(path: Path) -> Receipt | None:
    """The receipt of a model file, None if there is none that can be read."""
    try:
        return Receipt(**json.loads(_receipt_path(path).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def write_receipt(path: Path, source: str, sha256: str) -> None:
    """Record that the file at `path` was checked; written beside it, in one step."""
    status = path.stat()
    receipt = Receipt(source=source, sha256=sha256, size=status.st_size, mtime_ns=status.st_mtime_ns)
    target = _receipt_path(path)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(asdict(receipt)), encoding="utf-8")
    temporary.replace(target)


def _receipt_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
