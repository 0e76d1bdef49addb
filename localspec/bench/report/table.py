"""A bench's tables on the terminal: readable in 80 columns and without colour."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text

from localspec.bench.oracle import best_length
from localspec.bench.peer_rows import PeerRow, peer_rows
from localspec.bench.pooling import clean
from localspec.bench.records import ModelFile, Results, Startup
from localspec.bench.report.wording import (
    DASH,
    between,
    beyond_oracle,
    costs_line,
    grouped_notes,
    marks,
    number,
    overhead,
    percent,
    rate,
    same,
    seconds,
    size,
    task_name,
    times,
    where,
)
from localspec.bench.rows import Row, rows, short_draft
from localspec.bench.winners import winners

WIDE = 112
"""Columns from which on every figure has room."""

T = TypeVar("T")

_MODES = {
    "transcript": "transcript: every drafter on the same recorded reply",
    "free": "free: as users run it",
    "synthetic": "synthetic: INVALID as a measurement, drafts accepted by dice",
}


@dataclass(frozen=True)
class Column(Generic[T]):
    """A column of a table.

    Attributes:
        title, cell: its head, and what it says of a line.
        numeric: whether it holds numbers, which never wrap.
        wide: shown on wide terminals only.
        spare: left out where it says nothing of any line.
    """

    title: str
    cell: Callable[[T], str]
    numeric: bool = True
    wide: bool = False
    spare: bool = False


_NOT_TOGETHER = ("theory", "on GPU", "oracle", "of best", "same")
_ROW = (
    Column[Row]("Task", task_name, numeric=False),
    Column[Row]("Draft", lambda row: row.label, numeric=False),
    Column[Row]("plain", lambda row: rate(row.baseline_tokens_per_second), wide=True),
    Column[Row]("tok/s", lambda row: rate(row.tokens_per_second)),
    Column[Row]("speed", lambda row: times(row.speedup)),
    Column[Row]("spread", lambda row: between(row.speedup_low, row.speedup_high)),
    Column[Row]("acc.", lambda row: percent(row.acceptance_rate)),
    Column[Row]("alpha", lambda row: percent(row.conditional_acceptance), wide=True),
    Column[Row]("tau", lambda row: number(row.acceptance_length)),
    Column[Row]("theory", lambda row: times(row.predicted_speedup), wide=True, spare=True),
    Column[Row]("on GPU", lambda row: times(row.gpu_speedup), spare=True),
    Column[Row]("oracle", lambda row: times(row.oracle_speedup), wide=True),
    Column[Row]("of best", lambda row: percent(row.of_oracle)),
    Column[Row]("same", lambda row: same(row.identical_count, row.compared), spare=True),
    Column[Row]("", marks, numeric=False, spare=True),
)
_TOGETHER = (
    *_ROW[:2],
    Column[Row]("at once", lambda row: str(row.parallel)),
    *(column for column in _ROW[2:] if column.title not in _NOT_TOGETHER),
)
_PEER = (
    Column[PeerRow]("Task", lambda row: clean(row.task), numeric=False),
    Column[PeerRow]("Program", lambda row: clean(row.name), numeric=False),
    Column[PeerRow]("Settings", lambda row: clean(row.config) + _memory(row), numeric=False),
    Column[PeerRow]("tok/s", lambda row: rate(row.tokens_per_second)),
    Column[PeerRow]("vs ours", lambda row: times(row.relative)),
    Column[PeerRow]("spread", lambda row: between(row.relative_low, row.relative_high)),
    Column[PeerRow]("vs own", lambda row: times(row.speedup)),
    Column[PeerRow]("acc.", lambda row: percent(row.acceptance_rate)),
    Column[PeerRow]("same", lambda row: same(row.identical_count, row.compared), wide=True),
)
_STARTUP = (
    Column[Startup]("File", lambda row: clean(row.file), numeric=False),
    Column[Startup]("Draft", lambda row: clean(short_draft(row.draft)), numeric=False),
    Column[Startup]("load", lambda row: seconds(row.load_s)),
    Column[Startup]("first token", lambda row: seconds(row.first_token_s)),
    Column[Startup]("KV tokens", lambda row: number(row.context_tokens, 0)),
    Column[Startup]("memory", lambda row: size(row.resident_bytes)),
    Column[Startup]("GPU memory", lambda row: size(row.device_bytes), spare=True),
)


def print_results(results: Results, console: Console) -> None:
    """Print everything that `results` holds so far."""
    if results.invalid:
        console.print(Text(f"INVALID: {results.invalid}.", style="bold"))
    found = rows(results)
    files = {file.name: file for file in results.files}
    for name, of_file in groupby(found, key=lambda row: row.file):
        _print_file(name, files.get(name), list(of_file), console)
    if found:
        _legend(found, console)
    _print_peers(results, console)
    if results.startup:
        console.print()
        console.print(_heading("Start-up and memory, from a fresh engine process"))
        console.print(_table(_STARTUP, results.startup, console))
        for line in grouped_notes(
            (f"{clean(s.file)}, {clean(short_draft(s.draft))}", s.note) for s in results.startup
        ):
            console.print(Text(f"  {clean(line)}"))
    for note in results.notes:
        console.print(Text(clean(note)))
    if not found and not results.peers:
        console.print(Text("Nothing has been measured yet."))
    if not results.complete:
        console.print(Text("This bench is not complete; `--resume` goes on with it.", style="bold"))


def _print_file(name: str, file: ModelFile | None, found: Sequence[Row], console: Console) -> None:
    console.print()
    console.print(_heading(clean(name)))
    if file and file.cost_curve:
        best = best_length(file.pass_ms)
        line = (
            f"T(n)/T(1)  {costs_line(file)}  (T(1) is {file.pass_ms[1]:.2f} ms; were every draft right, "
            f"{best} would be the best length)"
        )
        if file.floor_ms:
            line += f"; memory alone asks {file.floor_ms:.2f} ms of a pass"
        console.print(Text(line, style="dim"))
    alone = [row for row in found if row.parallel == 1]
    for mode, of_mode in groupby(alone, key=lambda row: row.mode):
        console.print(Text(_MODES[mode], style="italic"))
        _print_rows(_ROW, list(of_mode), console)
    together = [row for row in found if row.parallel > 1]
    if together:
        console.print(Text("several sequences in one batch, the rate of all together", style="italic"))
        _print_rows(_TOGETHER, together, console)


def _print_rows(columns: Sequence[Column[Row]], found: Sequence[Row], console: Console) -> None:
    measured = [row for row in found if row.prompts]
    if measured:
        console.print(_table(columns, measured, console, lambda row: "bold" if row.slower else ""))
    for line in grouped_notes((where(row), row.note) for row in found):
        console.print(Text(f"  {line}"))


def _print_peers(results: Results, console: Console) -> None:
    found = peer_rows(results)
    if not found:
        return
    for name, of_file in groupby(found, key=lambda row: row.file):
        peers = list(of_file)
        console.print()
        console.print(_heading(f"{clean(name)}: other programs, in the same rounds as our plain decoding"))
        measured = [row for row in peers if row.prompts]
        if measured:
            console.print(_table(_PEER, measured, console))
        for line in grouped_notes(
            (f"{clean(p.task)}, {clean(p.name)} {clean(p.config)}", p.note) for p in peers
        ):
            console.print(Text(f"  {line}"))
        ahead = [winner for winner in winners(results) if winner.file == name]
        if ahead:
            console.print(Text("Fastest on each task, both against our plain decoding:", style="italic"))
        for winner in ahead:
            console.print(Text(f"  {winner.statement}"))


def _legend(found: Iterable[Row], console: Console) -> None:
    said = [
        "speed: over plain decoding in the same rounds",
        "spread: slowest to fastest round",
        "acc.: accepted of drafted",
        "tau: tokens a pass",
        "of best: share of the speed that the best lengths reach on a known text (oracle)",
    ]
    shown = list(found)
    if any(row.compared for row in shown):
        said.append("same: replies equal to plain decoding's, token for token")
    if any(row.gpu_speedup is not None for row in shown):
        said.append("on GPU: predicted for the same drafts where nine tokens cost 1.4 passes")
    if any(row.lossy for row in shown):
        said.append("lossy: this verification rule changes the text")
    sentences = [f"{'; '.join(said)}.", overhead(shown), beyond_oracle(shown)]
    console.print(Text(" ".join(filter(None, sentences)), style="dim"))


def _heading(text: str) -> Text:
    return Text(text, style="bold underline")


def _memory(row: PeerRow) -> str:
    return ", cold" if row.memory == "cold" else ""


def _table(
    columns: Sequence[Column[T]],
    lines: Sequence[T],
    console: Console,
    style: Callable[[T], str] = lambda line: "",  # noqa: ARG005 - plain unless told
) -> Table:
    room = [column for column in columns if console.width >= WIDE or not column.wide]
    cells = {line: [column.cell(value) for column in room] for line, value in enumerate(lines)}
    silent = {"", DASH}
    kept = [
        place
        for place, column in enumerate(room)
        if not (column.spare and silent.issuperset(line[place] for line in cells.values()))
    ]
    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    for place in kept:
        column = room[place]
        # Words may wrap on a narrow terminal, a number never does.
        table.add_column(
            column.title,
            justify="right" if column.numeric else "left",
            no_wrap=column.numeric,
            overflow="fold",
            min_width=None if column.numeric else 6,
        )
    before = ""
    for line, value in enumerate(lines):
        # A task that goes on is named once.
        first, before = ("" if cells[line][0] == before else cells[line][0]), cells[line][0]
        shown = [first if place == 0 else cells[line][place] for place in kept]
        table.add_row(*map(Text, shown), style=style(value) or None)
    return table
