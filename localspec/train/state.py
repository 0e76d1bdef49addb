"""The folder of a training run: all that is needed to go on after an interrupt, at any moment."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from localspec.errors import StorageError, UsageError
from localspec.paths import data_dir

Settings = dict[str, Any]
CHECKPOINT = "checkpoint.pt"
"""A head in training, in the folder of its run."""


def run_folder(target: str, kind: str) -> Path:
    """Where the run for a model of this name is kept."""
    return data_dir() / "train" / f"{re.sub(r'[^A-Za-z0-9._-]+', '-', target)}-{kind}"


def write_whole(path: Path, write: Callable[[Path], object]) -> None:
    """Have `write` make a file that is there as a whole or not at all; raises `StorageError`."""
    part = path.with_name(f"{path.stem}.part{path.suffix}")
    try:
        write(part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.replace(path)
    except (OSError, RuntimeError) as error:
        # PyTorch says RuntimeError where the disk is full.
        part.unlink(missing_ok=True)
        why = getattr(error, "strerror", None) or str(error).splitlines()[0]
        full = getattr(error, "errno", errno.ENOSPC) in (errno.ENOSPC, errno.EDQUOT)
        what = "free some space" if full else "make it writable"
        raise StorageError(f"{path} cannot be written ({why}); {what} first.") from error


@dataclass(slots=True)
class Spent:
    """Seconds that each part of a run has taken so far, over all its starts."""

    texts: float = 0.0
    training: float = 0.0


class Run:
    """A training run on the disk.

    Args:
        folder: its folder.
        settings: what a run that goes on must have been begun with.
        fresh: begin anew, whatever is there.

    Attributes:
        goes_on: whether there is an unfinished run of these settings, which goes on.
        replaces: whether there is one of others, which `begin` deletes.
    """

    def __init__(self, folder: Path, settings: Settings, *, fresh: bool = False) -> None:
        self.folder = folder
        self.spent = Spent()
        self._settings = settings
        known = self._read("run.json")
        self.goes_on = known is not None and known.get("settings") == settings and not fresh
        self.replaces = known is not None and not self.goes_on
        if self.goes_on and known is not None:
            self.spent = Spent(**known.get("spent", {}))

    @contextmanager
    def held(self) -> Iterator[None]:
        """While it lasts no other process can work on this run; raises `UsageError` where one does."""
        from filelock import FileLock, Timeout

        lock = FileLock(self.folder.parent / f".{self.folder.name}.lock", timeout=0)
        try:
            self.folder.parent.mkdir(parents=True, exist_ok=True)
            lock.acquire()
        except Timeout as error:
            raise UsageError(
                f"Another localspec is training in {self.folder}; wait for it, or stop it first."
            ) from error
        except OSError as error:
            raise StorageError(f"{self.folder} cannot be used ({error.strerror or error}).") from error
        try:
            yield
        finally:
            lock.release()

    def begin(self) -> None:
        """Make the folder, and empty it of another run; raises `StorageError`."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for path in () if self.goes_on else self.folder.iterdir():
                if path.is_file():
                    path.unlink()
        except OSError as error:
            raise StorageError(f"{self.folder} cannot be used ({error.strerror}).") from error
        self.save()

    def save(self) -> None:
        """Write how much time was spent."""
        text = json.dumps({"settings": self._settings, "spent": asdict(self.spent)})

        def write(path: Path) -> None:
            path.write_text(text, encoding="utf-8")

        write_whole(self.folder / "run.json", write)

    def remove(self) -> None:
        """Delete all of it: the head is made."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def size(self) -> int:
        """Bytes that a run which goes on has on the disk already."""
        return sum(path.stat().st_size for path in self.folder.iterdir()) if self.goes_on else 0

    def path(self, name: str) -> Path:
        """A file of the run."""
        return self.folder / name

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found = json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None


class Clock:
    """Counts the seconds of one part of a run into `run.spent`, saved now and then."""

    _SAVE_S = 5.0

    def __init__(self, run: Run, part: str, limit: float) -> None:
        self._run, self._part, self.limit = run, part, limit
        self._before: float = getattr(run.spent, part)
        self._began = self._saved = time.monotonic()

    @property
    def seconds(self) -> float:
        """Spent so far, earlier starts included."""
        return self._before + time.monotonic() - self._began

    @property
    def share(self) -> float:
        """Of the limit, 1 where it is used up."""
        return min(self.seconds / self.limit, 1.0) if self.limit > 0 else 1.0

    def tick(self, *, save: bool = False) -> None:
        """Note the time."""
        setattr(self._run.spent, self._part, self.seconds)
        if save or time.monotonic() - self._saved > self._SAVE_S:
            self._saved = time.monotonic()
            self._run.save()
