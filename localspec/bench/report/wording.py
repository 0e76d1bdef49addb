"""Figures as the bench's reports write them; a dash stands for what was not measured."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from localspec.bench.pooling import clean
from localspec.bench.records import ModelFile
from localspec.bench.rows import Row
from localspec.models.disk import readable_size

DASH = "-"


def times(ratio: float | None) -> str:
    """A speed-up: "1.31x"."""
    return DASH if ratio is None else f"{ratio:.2f}x"


def between(low: float | None, high: float | None) -> str:
    """A spread: "1.28-1.35"."""
    return DASH if low is None or high is None else f"{low:.2f}-{high:.2f}"


def percent(share: float | None, digits: int = 0) -> str:
    """A share: "84%"."""
    return DASH if share is None or not math.isfinite(share) else f"{100 * share:.{digits}f}%"


def number(value: float | None, digits: int = 2) -> str:
    """A plain number."""
    return DASH if value is None else f"{value:.{digits}f}"


def rate(tokens_per_second: float | None) -> str:
    """Tokens per second, to four digits at most where that is enough."""
    if tokens_per_second is None:
        return DASH
    return f"{tokens_per_second:.0f}" if tokens_per_second >= 1000 else f"{tokens_per_second:.1f}"


def seconds(value: float | None) -> str:
    """A time: "0.62 s"."""
    return DASH if value is None else f"{value:.2f} s"


def size(count: int | float | None) -> str:
    """Bytes for people."""
    return DASH if count is None else readable_size(count)


def same(count: int | None, compared: int | None) -> str:
    """Replies equal to the plain ones, of how many: "5/6"."""
    return DASH if count is None or compared is None else f"{count}/{compared}"


def task_name(row: Row) -> str:
    """The task, with the temperature where it is not greedy."""
    name = clean(row.task)
    return name if row.temperature == 0 else f"{name} T={row.temperature:g}"


def marks(row: Row) -> str:
    """What must not be overlooked, in words: a slow-down, a rule that changes the text, a dice's result."""
    said = {"slower": row.slower, "lossy": row.lossy, "invalid": row.mode == "synthetic"}
    return " ".join(mark for mark, holds in said.items() if holds)


def where(row: Row) -> str:
    """A row named in a sentence: "copy, ngram 8", with the number of sequences where there are several."""
    together = f", {row.parallel} at once" if row.parallel > 1 else ""
    return f"{task_name(row)}, {row.label}{together}"


def grouped_notes(notes: Iterable[tuple[str, str | None]], most: int = 3) -> list[str]:
    """Notes as lines, each said once: of (where, note), the first `most` places and how many more."""
    places: dict[str, list[str]] = {}
    for place, note in notes:
        if note:
            places.setdefault(note, []).append(place)
    return [
        "; ".join(found[:most])
        + (f" and {len(found) - most} more" if len(found) > most else "")
        + f": {note}"
        for note, found in places.items()
    ]


def overhead(found: Iterable[Row]) -> str:
    """The bench's own share of the measured time, at worst: a sentence, or nothing where it is not known."""
    known = [row.overhead for row in found if row.overhead is not None]
    return f"The bench itself took {percent(max(known), 2)} of a run's time at most." if known else ""


def beyond_oracle(found: Iterable[Row]) -> str:
    """What a share of the oracle above 100 % means: a sentence, or nothing where no row has one."""
    beyond = [row for row in found if row.of_oracle is not None and round(row.of_oracle, 2) > 1]
    if not beyond:
        return ""
    return (
        f"{percent(max(row.of_oracle or 0.0 for row in beyond))} of the oracle at most: T(n) was taken once, "
        "before the rounds, and passes cost a few per cent less or more later on; what lies above 100% is "
        "that noise."
    )


def costs_line(file: ModelFile) -> str:
    """T(n)/T(1) of a file in one line."""
    return "  ".join(f"{n}:{ratio:.2f}" for n, ratio in sorted(file.cost_curve.items()))


def facts(machine: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The machine's facts as pairs of words; nested values in one line each."""
    return [(clean(str(name)).replace("_", " "), _fact(value)) for name, value in machine.items()]


def _fact(value: object) -> str:
    if value is None or value == "":
        return DASH
    if isinstance(value, Mapping):
        return ", ".join(f"{clean(str(name))} {_fact(item)}" for name, item in value.items()) or DASH
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Iterable):
        return "; ".join(_fact(item) for item in value) or DASH
    return clean(str(value))
