"""What localspec keeps on the disk: how much, and what removes it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from localspec import paths
from localspec.models.store import models_dir


@dataclass(frozen=True, slots=True)
class Kept:
    """Something that is kept.

    Attributes:
        name: what it is.
        path: its file or folder.
        size_bytes: on the disk, 0 where there is none.
        removed_by: the command, or what to do.
    """

    name: str
    path: Path
    size_bytes: int
    removed_by: str


def look_at_kept() -> tuple[Kept, ...]:
    """Everything that localspec writes; nothing is created."""
    cache, data = paths.cache_dir(), paths.data_dir()
    conversations = data / "conversations.db"
    logs = paths.log_dir()
    known = (
        ("models", models_dir(), "`localspec models rm NAME`"),
        ("own copies", data / "models", "`localspec models rm NAME`"),
        ("heads", data / "heads", "`localspec models rm NAME`"),
        ("training", data / "train", "deleting the folder; a training begins anew"),
        ("comparisons", data / "comparisons.jsonl", "deleting the file"),
        ("requantized", cache / "requantized", "deleting the folder; a bench or tune makes them anew"),
        ("memory", paths.memory_dir(), "`localspec memory forget --all`"),
        ("conversations", conversations, "deleting them in the chat, or the file"),
        ("calibration", cache / "calibration", "deleting the folder; it is measured anew"),
        ("transcripts", cache / "transcripts", "deleting the folder; a bench makes them anew"),
        ("built wheels", cache / "wheels", "deleting the folder; make builds them anew"),
        ("logs", logs, "deleting the folder"),
    )
    return tuple(Kept(name, path, _size(path), removed_by) for name, path, removed_by in known)


def _size(path: Path) -> int:
    """Bytes of a file with its companions, or of everything in a folder; links count as links."""
    if path.is_dir() and not path.is_symlink():
        return _folder_size(path)
    # A database keeps its newest writes in files beside it.
    return sum(_file_size(each) for each in (path, Path(f"{path}-wal"), Path(f"{path}-shm")))


def _folder_size(folder: Path) -> int:
    total = 0
    for parent, _, files in os.walk(folder):
        total += sum(_file_size(Path(parent, name)) for name in files)
    return total


def _file_size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0
