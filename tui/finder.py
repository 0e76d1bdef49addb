"""Finding the files of models, fetching them where needed, beside the running app."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from localspec.errors import LocalspecError
from localspec.model_files import ModelFiles
from localspec.models.progress import PullProgress

FindFiles = Callable[[Callable[[PullProgress], None]], ModelFiles]


@dataclass(frozen=True, slots=True)
class FileProgress:
    """A file is being fetched."""

    progress: PullProgress


@dataclass(frozen=True, slots=True)
class FileFound:
    """All files are there."""

    files: ModelFiles


@dataclass(frozen=True, slots=True)
class FileMissing:
    """A file could not be found or fetched."""

    error: LocalspecError


FinderEvent = FileProgress | FileFound | FileMissing


class _Abandoned(Exception):  # noqa: N818 - no error: nobody waits for the file any more
    pass


class _Search:
    """One search, in a thread of its own that can be told to give up."""

    def __init__(self, find: FindFiles) -> None:
        self._find = find
        self.abandoned = False
        self.progress: PullProgress | None = None
        self.outcome: FileFound | FileMissing | None = None

    def run(self) -> None:
        try:
            self.outcome = FileFound(self._find(self._report))
        except _Abandoned:
            pass
        except LocalspecError as error:
            self.outcome = FileMissing(error)
        except Exception as error:
            # Lost otherwise: nobody joins this thread.
            self.outcome = FileMissing(
                LocalspecError(f"The model could not be fetched ({type(error).__name__}: {error}).")
            )

    def _report(self, progress: PullProgress) -> None:
        if self.abandoned:
            raise _Abandoned
        self.progress = progress


class ModelFinder:
    """Runs one search after the other, each in a thread of its own.

    The thread is a daemon that is told to give up with its next report of progress: quitting the app never
    waits for a download.
    """

    def __init__(self) -> None:
        self._search: _Search | None = None

    @property
    def running(self) -> bool:
        """Whether the outcome is still to come."""
        return self._search is not None

    def start(self, find: FindFiles) -> None:
        """Begin; a search that is running is given up."""
        self.abandon()
        self._search = _Search(find)
        threading.Thread(target=self._search.run, name="model-finder", daemon=True).start()

    def drain(self) -> list[FinderEvent]:
        """What happened since the last call: the newest progress, the outcome."""
        search = self._search
        if search is None:
            return []
        events: list[FinderEvent] = []
        outcome = search.outcome
        progress, search.progress = search.progress, None
        if progress is not None:
            events.append(FileProgress(progress))
        if outcome is not None:
            self._search = None
            events.append(outcome)
        return events

    def abandon(self) -> None:
        """Give up; nothing more is reported."""
        if self._search is not None:
            self._search.abandoned = True
            self._search = None
