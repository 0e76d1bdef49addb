"""A bench's rows as CSV: one row a line, ours and the other programs' in one table, every field a column."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from localspec.bench.peer_rows import PeerRow, peer_rows
from localspec.bench.records import Divergence, Results
from localspec.bench.report.disk import write_whole
from localspec.bench.rows import Row, rows

OURS = "localspec"
_FIRST_DIVERGENCE = tuple(f"first_divergence_{field}" for field in Divergence.model_fields)


def columns() -> list[str]:
    """Names of the columns: program and configuration, the fields of `Row`, those that only peers have."""
    names = ["name", "config"]
    for field in (*Row.model_fields, *PeerRow.model_fields):
        if field == "first_divergence":
            names += _FIRST_DIVERGENCE
        elif field not in names:
            names.append(field)
    return names


def csv_text(results: Results) -> str:
    """The table as text; an empty cell is a figure that was not measured, a list stands in one cell."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns(), lineterminator="\n")
    writer.writeheader()
    for row in rows(results):
        writer.writerow({"name": OURS, "config": row.label} | _cells(row))
    for peer in peer_rows(results):
        writer.writerow(_cells(peer))
    return out.getvalue()


def save_csv(results: Results, path: Path) -> None:
    """Write the table to `path`, whole or not at all.

    Raises:
        StorageError: the folder cannot be written, or the disk is full.
    """
    write_whole(path, csv_text(results).encode())


def _cells(row: Row | PeerRow) -> dict[str, str]:
    cells: dict[str, str] = {}
    for field, value in row.model_dump().items():
        if field != "first_divergence":
            cells[field] = _cell(value)
        elif value is not None:
            cells |= {name: _cell(part) for name, part in zip(_FIRST_DIVERGENCE, value.values(), strict=True)}
    return cells


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    return str(value)
