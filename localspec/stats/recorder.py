"""Recordings of steps as JSON lines: one object a step, preceded by one header object.

Between steps stand lines that say why the controller decides as it does, where that changed.

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
_FIELDS = {field.name for field in fields(StepStats)}


class Recorder:
    """Writes `StepStats` to a JSONL file as they come.

    Raises:
        StorageError: the file cannot be created or written.
    """

    def __init__(self, path: Path, header: Mapping[str, Any] | None = None) -> None:
        self._path = path
        try:
            self._file: TextIO = path.open("w", encoding="utf-8")
        except OSError as error:
            raise StorageError(f"Cannot write the recording {path} ({error.strerror}).") from error
        self._line({"localspec_recording": FORMAT, **(header or {})})

    def write(self, stats: StepStats) -> None:
        """Append one step."""
        self._line(asdict(stats))

    def reason(self, text: str, index: int) -> None:
        """Append why the controller decides as it does from about step `index` on."""
        self._line({"reason": text, "index": index})

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

    def _line(self, value: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(value, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> StorageError:
        return StorageError(f"Cannot write the recording {self._path} ({error.strerror}).")


def read_steps(path: Path) -> Iterator[StepStats]:
    """Steps of a recording, in order; reasons are skipped, and a torn last line is dropped.

    Raises:
        UsageError: the file is missing, is no recording, or has a broken line before its last.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read the recording {path} ({error}).") from error
    for number, line in enumerate(lines, start=1):
        try:
            value = json.loads(line)
            if number == 1:
                if value.get("localspec_recording") != FORMAT:
                    raise UsageError(f"{path} is not a recording of this version of localspec.")
                continue
            if "reason" in value:
                continue
            # Counters that came later have defaults: they are missing in older recordings.
            yield StepStats(**{name: value[name] for name in _FIELDS if name in value})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if number == len(lines) and number > 1:
                return
            raise UsageError(f"{path}, line {number}: not a step of a recording.") from error
