"""Room on the disk: checked before a download, and recognised when it runs out during one."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from localspec.errors import DownloadError, LocalspecError, StorageError

_FULL = {errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)}
_ADVICE = {
    errno.EFBIG: "the disk has a format without files of this size, such as FAT32; set LOCALSPEC_HOME to a "
    "folder on another one",
    errno.ENAMETOOLONG: "give the model a short name in models.toml",
}


def readable_size(count: float) -> str:
    """Bytes for people, in decimal units as download pages and disks use them: "98.4 MB"."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.2f} GB" if count < 10_000 else f"{count / 1000:,.0f} TB"


def require_space(folder: Path, needed: int) -> None:
    """Raise `DownloadError` unless `needed` bytes are free where `folder` is."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadError(
            f"Not enough space in {folder}: {readable_size(needed)} needed, {readable_size(free)} free. "
            "Free some, or set LOCALSPEC_HOME to a folder on a larger disk."
        )


def refused(folder: Path, error: OSError, needed: int | None) -> LocalspecError:
    """What users are told where a model cannot be written."""
    if is_full(error):
        return full(folder, needed)
    advice = _ADVICE.get(error.errno or 0, "make it writable or set LOCALSPEC_HOME to a folder that is")
    return StorageError(f"Cannot write to {folder} ({error.strerror or error}); {advice}.")


def is_full(error: BaseException) -> bool:
    """Whether an error says that the disk or the quota is full."""
    return isinstance(error, OSError) and error.errno in _FULL


def full(folder: Path, needed: int | None) -> DownloadError:
    """The error for a disk that filled up while something was being written."""
    amount = f"; the model needs {readable_size(needed)}" if needed else ""
    return DownloadError(
        f"The disk became full while writing to {folder}{amount}. Free some space, or set LOCALSPEC_HOME to "
        "a folder on a larger disk."
    )
