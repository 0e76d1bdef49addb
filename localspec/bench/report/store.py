"""A bench's results as a JSON file: what other programs read, and what `--resume` goes on from.

At the top level stand the figures that are a contract (machine, model, cost curve, rows, peers), then the raw
measurements. Rows are written for readers and derived anew on loading, never trusted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from pydantic import ValidationError
from pydantic_core import to_json

from localspec.bench.grouping import M
from localspec.bench.ledger import Ledger
from localspec.bench.peer_rows import PeerRow, peer_rows
from localspec.bench.records import FORMAT, Results
from localspec.bench.report.disk import write_whole
from localspec.bench.rows import Row, rows
from localspec.errors import NotFoundError, StorageError, UsageError

# Fields of `Results` by their names in the file; "peers" are rows there.
_FIELDS = {
    "settings": "settings",
    "machine": "machine",
    "started": "started",
    "complete": "complete",
    "files": "files",
    "measurements": "measurements",
    "peer_measurements": "peers",
    "startup": "startup",
    "notes": "notes",
}
_IDENTITY = {
    "file", "task", "prompt", "mode", "configuration", "parallel", "name", "config", "temperature", "memory",
}  # fmt: skip
_DIGITS = 6
"""Significant digits of figures in rows: what they are derived from has them all."""
_DERIVED = {"format", "model", "cost_curve", "rows", "peers", "invalid"}


def document(results: Results) -> dict[str, Any]:
    """What the file says, as plain values; those that other programs read first."""
    results = _sound(results)
    return {
        "format": FORMAT,
        "machine": results.machine,
        "model": results.settings.model,
        "cost_curve": results.files[0].cost_curve if results.files else {},
        "rows": list(rows(results)),
        "peers": list(peer_rows(results)),
        "complete": results.complete,
        "invalid": results.invalid,
        "started": results.started,
        "notes": results.notes,
        "settings": results.settings,
        "files": list(results.files),
        "startup": list(results.startup),
        "measurements": list(results.measurements),
        "peer_measurements": list(results.peers),
    }


def text(results: Results) -> str:
    """The JSON text: one line a row or measurement, so that two runs can be compared line by line."""
    lines = []
    for name, value in document(results).items():
        if isinstance(value, list) and value:
            items = ",\n  ".join(_compact(_short(item) if name in _DERIVED else item) for item in value)
            lines.append(f'"{name}": [\n  {items}\n]')
        else:
            lines.append(f'"{name}": {_compact(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def save(results: Results, path: Path) -> None:
    """Write `results` to `path`, whole or not at all.

    Raises:
        StorageError: the folder cannot be written, or the disk is full.
    """
    write_whole(path, text(results).encode())


def ledger_beside(path: Path) -> Ledger | None:
    """Where the rounds of the bench at `path` are kept until it is complete; None beside what is no file."""
    if path.exists() and not path.is_file():
        return None
    place = path.resolve()
    return Ledger(place.with_name(f"{place.name}.rounds.jsonl"))


def load(path: Path) -> Results:
    """The results in a file that `save` wrote.

    Raises:
        NotFoundError: no such file.
        StorageError: it cannot be read.
        UsageError: it is no bench's JSON, or one of a newer format, or a field is wrong.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no bench at {path}; run `localspec bench --json {path}`.") from error
    except OSError as error:
        raise StorageError(f"Cannot read {path} ({error.strerror}).") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not JSON ({_first_line(error)}).") from error
    if not isinstance(value, dict) or not isinstance(value.get("format"), int):
        raise UsageError(f"{path} was not written by `localspec bench --json`.")
    if value["format"] > FORMAT:
        raise UsageError(f"{path} is of a newer format ({value['format']}); it needs a newer localspec.")
    if value["format"] != FORMAT:
        raise UsageError(f"{path} is of an unknown format ({value['format']}); measure anew.")
    wrong = sorted(value.keys() ^ (_FIELDS.keys() | _DERIVED))
    if wrong:
        state = "is missing" if wrong[0] not in value else "is unknown"
        raise UsageError(f"{path} is not a bench that can be read: the field '{wrong[0]}' {state}.")
    try:
        return Results.model_validate({field: value[name] for name, field in _FIELDS.items()})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise UsageError(
            f"{path} is not a bench that can be read: {place}: {first['msg'].lower()}."
        ) from error


def _compact(value: object) -> str:
    # NaN can only stand in the machine's free-form facts: everything else was checked.
    return to_json(value, inf_nan_mode="null").decode()


def _short(row: Row | PeerRow) -> dict[str, Any]:
    """The fields of a row, no longer than anybody reads them."""
    values = row.model_dump(warnings=False)
    return {
        name: float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value
        for name, value in values.items()
    }


def _sound(results: Results) -> Results:
    """Without figures that are no numbers: such a measurement keeps its place and says so.

    Records are checked when they are made, but a copy with new values is not, and one NaN would make the
    whole file unreadable.
    """
    return results.model_copy(
        update={
            "measurements": tuple(_checked(m) for m in results.measurements),
            "peers": tuple(_checked(m) for m in results.peers),
        }
    )


def _checked(measurement: M) -> M:
    kind = type(measurement)
    values = measurement.model_dump(warnings=False)
    try:
        kind.model_validate(values)
    except ValidationError:
        note = "; ".join(filter(None, [measurement.note, "dropped: a figure was no finite number"]))
        return kind.model_validate(
            {name: values[name] for name in _IDENTITY & values.keys()} | {"note": note}
        )
    return measurement


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"it holds {name}, which is no number")


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or ["nested too deeply"])[0]
