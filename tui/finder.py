"""Finding the model's file, fetching it where needed, beside the running app."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.models.progress import PullProgress
from tui.launch import ResolveModel


@dataclass(frozen=True, slots=True)
class FileProgress:
    """The file is being fetched."""

    progress: PullProgress


@dataclass(frozen=True, slots=True)
class FileFound:
    """The file is there."""

    path: Path


@dataclass(frozen=True, slots=True)
class FileMissing:
    """The file could not be found or fetched."""

    error: LocalspecError


FinderEvent = FileProgress | FileFound | FileMissing


class _Abandoned(Exception):  # noqa: N818 - no error: nobody waits for the file any more
    pass


class ModelFinder:
    """Runs `resolve` in a thread of its own.

    The thread is a daemon that is told to give up with its next report of progress: quitting the app never
    waits for a download.
    """

    def __init__(self, resolve: ResolveModel) -> None:
        self._resolve = resolve
        self._thread: threading.Thread | None = None
        self._abandoned = False
        self._progress: PullProgress | None = None
        self._outcome: FileFound | FileMissing | None = None

    @property
    def running(self) -> bool:
        """Whether the outcome is still to come."""
        return self._thread is not None

    def start(self) -> None:
        """Begin, unless it is running already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="model-finder", daemon=True)
            self._thread.start()

    def drain(self) -> list[FinderEvent]:
        """What happened since the last call: the newest progress, the outcome."""
        events: list[FinderEvent] = []
        progress, self._progress = self._progress, None
        if progress is not None:
            events.append(FileProgress(progress))
        outcome = self._outcome
        if outcome is not None:
            self._outcome = self._thread = None
            events.append(outcome)
        return events

    def abandon(self) -> None:
        """Give up; nothing more is reported."""
        self._abandoned = True

    def _run(self) -> None:
        try:
            self._outcome = FileFound(self._resolve(self._report))
        except _Abandoned:
            pass
        except LocalspecError as error:
            self._outcome = FileMissing(error)
        except Exception as error:
            # Lost otherwise: nobody joins this thread.
            self._outcome = FileMissing(
                LocalspecError(f"The model could not be fetched ({type(error).__name__}: {error}).")
            )

    def _report(self, progress: PullProgress) -> None:
        if self._abandoned:
            raise _Abandoned
        self._progress = progress
