"""The SHA-256 of a model file, computed once: gigabytes take seconds to read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from localspec import paths
from localspec.errors import ModelFileError
from localspec.models.store import read_receipt

_BLOCK = 1 << 20


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hex.

    It comes from the receipt of a fetched model, or from `<cache>/hashes.json` while size and time of change
    are those that the file had when it was hashed. A cache that cannot be used costs time, nothing else.

    Raises:
        ModelFileError: the file cannot be read.
    """
    try:
        return _file_sha256(path)
    except OSError as error:
        raise _unreadable(path, error) from error


def identity(path: Path) -> str:
    """What tells a model file from others, without reading all of it.

    Its SHA-256 where that is known already; else its size, time of change and the hash of its first mebibyte,
    which holds the header.

    Raises:
        ModelFileError: the file cannot be read.
    """
    try:
        stamp = _stamp(path)
        known = _known_sha256(path, stamp)
        if known is not None:
            return known
        with path.open("rb") as file:
            return f"{stamp[0]}-{stamp[1]}-{hashlib.sha256(file.read(_BLOCK)).hexdigest()}"
    except OSError as error:
        raise _unreadable(path, error) from error


def _stamp(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _known_sha256(path: Path, stamp: list[int]) -> str | None:
    receipt = read_receipt(path)
    if receipt is not None and [receipt.size, receipt.mtime_ns] == stamp:
        return receipt.sha256
    entry = _known().get(str(path.resolve()))
    if isinstance(entry, dict) and entry.get("stamp") == stamp and isinstance(entry.get("sha256"), str):
        return str(entry["sha256"])
    return None


def _file_sha256(path: Path) -> str:
    stamp = _stamp(path)
    found = _known_sha256(path, stamp)
    if found is not None:
        return found
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    sha256 = digest.hexdigest()
    _remember(_known() | {str(path.resolve()): {"stamp": stamp, "sha256": sha256}})
    return sha256


def _unreadable(path: Path, error: OSError) -> ModelFileError:
    return ModelFileError(f"Cannot read {path} ({error.strerror or error}); check its permissions.")


def _cache_path() -> Path:
    return paths.cache_dir() / "hashes.json"


def _known() -> dict[str, Any]:
    try:
        known = json.loads(_cache_path().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _remember(known: dict[str, Any]) -> None:
    """Write the cache in one step, so that no other process reads half of it."""
    target = _cache_path()
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(known), encoding="utf-8")
        temporary.replace(target)
