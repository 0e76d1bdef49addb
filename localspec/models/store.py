"""Where fetched models lie, and how a finished file is told from anything else.

    <cache>/models/NAME/FILE.gguf        the model, moved here in one step once it is whole and checked; of a
                                         split model all parts, the first standing for all; a link where the
                                         hub library's own cache has the file
    <cache>/models/NAME/FILE.gguf.json   its receipt: source, and hash, size and time that it had then
    <cache>/models/NAME/.partial/        a download that can be continued
    <cache>/models/.locks/NAME           held while fetching

A file counts as fetched only with a receipt that fits it: nothing is hashed twice, nothing partial is used.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from localspec import paths
from localspec.errors import StorageError, UsageError
from localspec.models import split
from localspec.models.entries import FileSource, HubSource, ModelEntry

_LOCK_POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was known of a file when it was checked; size and time tell whether it still is that file.

    Attributes:
        source: where it is from.
        sha256: its hash, that of the first file for a split model.
        size: its bytes.
        mtime_ns: when it was changed.
        parts: hash, size and time of each further file of a split model.
    """

    source: str
    sha256: str
    size: int
    mtime_ns: int
    parts: tuple[tuple[str, int, int], ...] = ()


def models_dir() -> Path:
    """Folder of every fetched model."""
    return paths.cache_dir() / "models"


def entry_dir(entry: ModelEntry) -> Path:
    """Folder of one model; nothing else writes into it."""
    return models_dir() / entry.folder


def final_path(entry: ModelEntry) -> Path:
    """Where the model's file is, or will be."""
    source = entry.sources[0]
    return source.path if isinstance(source, FileSource) else entry_dir(entry) / entry.filename


def files(entry: ModelEntry) -> tuple[Path, ...]:
    """All files of the model, the one of `final_path` first; raises `ValueError` for a later part."""
    path = final_path(entry)
    return split.part_paths(path) if isinstance(entry.sources[0], HubSource) else (path,)


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
        stamps = [_stamp(file) for file in files(entry)]
    except (OSError, ValueError):
        return None
    known = [(receipt.size, receipt.mtime_ns), *((size, time) for _, size, time in receipt.parts)]
    return path if stamps == known else None


def known_hashes(entry: ModelEntry) -> list[str]:
    """Hashes that the receipt has of files of this source and these sizes; empty where it has none."""
    receipt = read_receipt(final_path(entry))
    if receipt is None or receipt.source != entry.source_text:
        return []
    known = [(receipt.sha256, receipt.size), *((sha256, size) for sha256, size, _ in receipt.parts)]
    try:
        sizes = [file.stat().st_size for file in files(entry)]
    except (OSError, ValueError):
        return []
    if entry.sha256 not in (None, receipt.sha256) or sizes != [size for _, size in known]:
        return []
    return [sha256 for sha256, _ in known]


def shared_file(entry: ModelEntry) -> Path | None:
    """Where the data is of a model that only links to the hub library's cache, else None."""
    path = final_path(entry)
    return path.resolve() if not entry.is_local and path.is_symlink() else None


def size_on_disk(entry: ModelEntry) -> int:
    """Bytes that `remove` would free: whole and partial files, none that other names lead to."""
    if entry.is_local:
        return 0
    folder = entry_dir(entry)
    return 0 if folder.is_symlink() else sum(_own_bytes(path) for path in folder.rglob("*"))


def remove(entry: ModelEntry) -> int:
    """Take a fetched model from the disk, with what an unfinished download left; returns the bytes freed.

    Data in the hub library's cache stays there, and only the link goes: see `shared_file`.

    Raises:
        UsageError: the entry is for a file of the user's own, which is never removed.
        StorageError: the folder cannot be removed, or another process is fetching the model.
    """
    if entry.is_local:
        raise UsageError(f"{final_path(entry)} is a file of your own and stays; remove it by hand.")
    folder = entry_dir(entry)
    if not folder.exists() and not folder.is_symlink():
        return 0

    def busy() -> None:
        raise StorageError(f"Another process is fetching {entry.name}; wait for it or end it, and try again.")

    if folder.is_symlink():
        raise StorageError(f"{folder} is a link to {folder.resolve()}; remove both by hand.")
    with locked(entry, busy):
        freed = size_on_disk(entry)
        try:
            shutil.rmtree(folder)
        except OSError as error:
            raise StorageError(
                f"Cannot remove {folder} ({error.strerror or error}); end programs that use the model, and "
                "try again."
            ) from error
    return freed


@contextlib.contextmanager
def locked(entry: ModelEntry, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold the model's lock; `on_wait` is called twice a second while another process holds it."""
    from filelock import FileLock, Timeout

    # Outside of the model's folder, which may be removed under it.
    lock = FileLock(paths.ensure(models_dir() / ".locks") / entry.folder)
    while True:
        try:
            lock.acquire(timeout=_LOCK_POLL_S)
            break
        except Timeout:
            on_wait()
    try:
        yield
    finally:
        lock.release()


def read_receipt(path: Path) -> Receipt | None:
    """The receipt of a model file, None if there is none that can be read."""
    try:
        values = json.loads(_receipt_path(path).read_text(encoding="utf-8"))
        parts = tuple((sha256, size, time) for sha256, size, time in values.pop("parts", ()))
        return Receipt(**values, parts=parts)
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def write_receipt(source: str, files: Sequence[Path], hashes: Sequence[str]) -> None:
    """Record that the files of a model were checked; written beside the first one, in one step."""
    sealed = [(sha256, *_stamp(file)) for file, sha256 in zip(files, hashes, strict=True)]
    receipt = Receipt(source, *sealed[0], parts=tuple(sealed[1:]))
    target = _receipt_path(files[0])
    temporary = target.with_name(f"{target.name}.{os.getpid()}.tmp")
    temporary.write_text(json.dumps(asdict(receipt)), encoding="utf-8")
    temporary.replace(target)


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def _own_bytes(path: Path) -> int:
    """Bytes of a file that has no other name, 0 for links and folders."""
    try:
        status = path.lstat()
    except OSError:
        return 0
    return status.st_size if path.is_file() and not path.is_symlink() and status.st_nlink == 1 else 0


def _receipt_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.json")
