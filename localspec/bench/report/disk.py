"""Files that a bench writes: complete or not at all, so that an interrupt leaves a readable one."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from localspec.errors import StorageError
from localspec.models.disk import is_full


def write_whole(path: Path, data: bytes) -> None:
    """Replace the contents of `path` in one move.

    Raises:
        StorageError: the folder is missing or cannot be written, or the disk is full; what was there before
            is kept.
    """
    try:
        if path.is_dir():
            raise StorageError(f"Cannot write {path}: it is a folder; name a file in it.")
        if path.exists() and not path.is_file():
            # A pipe or a device is written to; put a file in its place, and it would be gone.
            path.write_bytes(data)
            return
        _replace(path.resolve(), data)
    except OSError as error:
        raise write_error(path, error) from error


def check_target(path: Path) -> None:
    """Raise `StorageError` where `path` cannot be written now, before hours of measuring."""
    if path.is_dir():
        raise StorageError(f"Cannot write {path}: it is a folder; name a file in it.")
    if path.exists() and not path.is_file():
        return
    try:
        with tempfile.TemporaryFile(dir=path.resolve().parent):
            pass
    except OSError as error:
        raise write_error(path, error) from error


def make_folder(folder: Path) -> None:
    """Make a folder for files.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"Cannot make the folder {folder} ({error.strerror}); name another one."
        ) from error


def _replace(path: Path, data: bytes) -> None:
    fresh = path.with_name(f".localspec-{os.getpid()}.tmp")
    try:
        with fresh.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def write_error(path: Path, error: OSError) -> StorageError:
    """What went wrong with `path`, and what to do."""
    if is_full(error):
        return StorageError(
            f"Cannot write {path}: the disk is full; free some space, or name a file on another disk."
        )
    # Some folders of the system exist and still answer that they do not.
    if isinstance(error, FileNotFoundError) and not path.absolute().parent.is_dir():
        return StorageError(
            f"Cannot write {path}: the folder {path.parent} does not exist; make it, or name another one."
        )
    return StorageError(
        f"Cannot write {path} ({error.strerror}); name a file in a folder that can be written."
    )
