"""Models that are fetched beside the chat, one after the other. No widgets here."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.model_files import ModelFiles
from localspec.models.entries import ModelEntry
from localspec.models.progress import PullProgress
from localspec.models.sources import pull
from localspec.types import EngineOptions
from tui.finder import FileFound, FileMissing, FileProgress, ModelFinder


@dataclass(slots=True)
class Download:
    """A model on its way.

    Attributes:
        entry: the model.
        running: whether it is fetched now; else it waits for its turn, or has ended.
        progress: how far it is, None before anything is known.
        error: why it ended without a file; "" while there is hope.
    """

    entry: ModelEntry
    running: bool = False
    progress: PullProgress | None = None
    error: str = ""


class Downloads:
    """Fetches models in the order in which they were asked for; nothing waits for it.

    What was fetched of a model stays on the disk when it is stopped, or the app ends: the next time goes on
    from there, where the source allows that.
    """

    def __init__(self) -> None:
        self._line: list[Download] = []
        self._failed: dict[str, Download] = {}
        self._finder = ModelFinder()

    @property
    def busy(self) -> bool:
        """Whether anything is fetched, or waits."""
        return bool(self._line)

    @property
    def running(self) -> Download | None:
        """The one that is fetched now."""
        return self._line[0] if self._line else None

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return max(len(self._line) - 1, 0)

    def of(self, entry: ModelEntry) -> Download | None:
        """What has become of a model that was asked for; None where it was not, or is here."""
        source = entry.source_text
        found = next((one for one in self._line if one.entry.source_text == source), None)
        return found or self._failed.get(source)

    def add(self, entry: ModelEntry) -> None:
        """Fetch a model, after those that were asked for before."""
        self._failed.pop(entry.source_text, None)
        if self.of(entry) is None:
            self._line.append(Download(entry))
            self._next()

    def stop(self, entry: ModelEntry) -> bool:
        """Do not fetch it, or no further; forgets why it failed. Returns whether it was in the line."""
        self._failed.pop(entry.source_text, None)
        found = self.of(entry)
        if found is None:
            return False
        if found.running:
            self._finder.abandon()
        self._line.remove(found)
        self._next()
        return True

    def tick(self) -> list[Download]:
        """Take note of what has happened since the last call; returns those that have ended."""
        ended: list[Download] = []
        for event in self._finder.drain():
            running = self._line[0]
            match event:
                case FileProgress(progress=progress):
                    running.progress = progress
                case FileMissing(error=error):
                    running.running, running.error = False, str(error)
                    self._failed[running.entry.source_text] = running
                    ended.append(self._line.pop(0))
                case FileFound():
                    running.running = False
                    ended.append(self._line.pop(0))
        self._next()
        return ended

    def close(self) -> None:
        """Fetch nothing more."""
        self._finder.abandon()
        self._line.clear()

    def _next(self) -> None:
        if not self._line or self._line[0].running:
            return
        first = self._line[0]
        first.running = True
        self._finder.start(lambda report: ModelFiles(pull(first.entry, report), EngineOptions()))
