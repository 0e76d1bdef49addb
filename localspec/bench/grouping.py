"""Which measurements share a row, and in which order the rows stand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from localspec.bench.records import Measurement, PeerMeasurement, Results

M = TypeVar("M", Measurement, PeerMeasurement)
MODES = ("transcript", "free", "synthetic")


class Order:
    """Places of names in the grid, so that an interrupted and resumed bench ends with the same table.

    Names that the grid does not have come last, by the alphabet.
    """

    def __init__(self, results: Results) -> None:
        self._files = [file.name for file in results.files]
        self._settings = results.settings

    def file(self, name: str) -> tuple[int, str]:
        """Place of a file."""
        return _place(name, self._files)

    def task(self, name: str) -> tuple[int, str]:
        """Place of a task."""
        return _place(name, self._settings.tasks)

    def draft(self, name: str) -> tuple[int, str]:
        """Place of a drafter."""
        return _place(name, self._settings.drafts)

    def mode(self, name: str) -> int:
        """Place of a mode."""
        return MODES.index(name)


def grouped(measurements: Iterable[M], key: Callable[[M], tuple[object, ...]]) -> list[list[M]]:
    """Measurements that share a row, in the order of rows; of two of one prompt the later one counts."""
    groups: dict[tuple[object, ...], dict[str, M]] = {}
    for measurement in measurements:
        groups.setdefault(key(measurement), {})[measurement.prompt] = measurement
    return [
        [prompts[name] for name in sorted(prompts)]
        for _, prompts in sorted(groups.items(), key=lambda item: item[0])
    ]


def _place(name: str, names: Sequence[str]) -> tuple[int, str]:
    return (names.index(name) if name in names else len(names), name)
