"""Recordings of steps as JSON lines: one object a step, preceded by one header object.

Between steps stand lines that say why the controller decides as it does, where that changed. The recording of
a whole chat (`localspec.recording`) has other lines around its steps, and `read_steps` reads it too.

The format is append-only and survives a crash: a torn last line is ignored on reading.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TextIO

from localspec.errors import StorageError, UsageError
from localspec.types import StepStats

FORMAT = 1
"""Steps alone, as `localspec run --record` writes them."""

CHAT_FORMAT = 2
"""A chat with all that the engine was asked and said, see `localspec.recording`."""

_FIELDS = {field.name for field in fields(StepStats)}


class JsonLines:
    """A file of JSON objects, one a line, written as they come.

    Args:
        path: the file; one that is there is overwritten.
        number: the format's number.
        header: what else the first line says.

    Raises:
        StorageError: the file cannot be created or written.
    """

    def __init__(self, path: Path, number: int, header: Mapping[str, Any]) -> None:
        self._path = path
        try:
            self._file: TextIO = path.open("w", encoding="utf-8")
        except OSError as error:
            raise StorageError(f"Cannot write the recording {path} ({error.strerror}).") from error
        self.add({"localspec_recording": number, **header})

    def add(self, *values: Mapping[str, Any]) -> None:
        """Append a line for each of `values`."""
        text = "".join(json.dumps(value, separators=(",", ":")) + "\n" for value in values)
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            raise self._failed(error) from error

    def close(self) -> None:
        """Flush and close the file."""
        try:
            self._file.close()
        except OSError as error:
            raise self._failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"Cannot write the recording {self._path} ({error.strerror}).")


class Recorder(JsonLines):
    """Writes `StepStats` to a JSONL file as they come.

    Raises:
        StorageError: the file cannot be created or written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any] | None = None) -> None:
        super().__init__(path, FORMAT, header or {})

    def write(self, stats: StepStats) -> None:
        """Append one step."""
        self.add(asdict(stats))

    def reason(self, text: str, index: int) -> None:
        """Append why the controller decides as it does from about step `index` on."""
        self.add({"reason": text, "index": index})


def read_steps(path: Path) -> Iterator[StepStats]:
    """Steps of a recording, in order; reasons are skipped, and a torn last line is dropped.

    Of a chat's recording these are the steps of the chat's replies, without those of comparisons.

    Raises:
        UsageError: the file is missing, is no recording, or has a broken line before its last.
    """
    try:
        # Not splitlines: JSON's strings may hold other characters that it takes for line ends.
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read the recording {path} ({error}).") from error
    trials: set[int] = set()
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
            if number == 1:
                if value.get("localspec_recording") not in (FORMAT, CHAT_FORMAT):
                    raise UsageError(f"{path} is not a recording of this version of localspec.")
                continue
            if "at" in value:
                value = _chat_step(value, trials)
            if value is None or "reason" in value:
                continue
            # Counters that came later have defaults: they are missing in older recordings.
            yield StepStats(**{name: value[name] for name in _FIELDS if name in value})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines) and number > 1:
                return
            raise UsageError(f"{path}, line {number}: not a step of a recording.") from error


def _chat_step(line: dict[str, Any], trials: set[int]) -> dict[str, Any] | None:
    """The counters in a line of a chat's recording, None where it has none; takes note of trials."""
    command, event = line.get("command", {}), line.get("event", {})
    if command.get("type") == "generate" and command.get("trial"):
        trials.add(command["id"])
    if event.get("type") != "step" or event["id"] in trials:
        return None
    counters: dict[str, Any] = event["stats"]
    return counters
