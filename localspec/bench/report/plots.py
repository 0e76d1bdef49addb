"""Pictures of a bench, drawn with matplotlib (extra `plots`): readable in greyscale, the same every time."""

from __future__ import annotations

import importlib.util
import io
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from localspec.bench.oracle import predicted_speedup
from localspec.bench.pooling import clean
from localspec.bench.records import Measurement, ModelFile, Results
from localspec.bench.report import reference
from localspec.bench.report.disk import make_folder, write_whole
from localspec.bench.rows import Row, rows
from localspec.errors import UsageError

# What a picture of at most 200 KB, and a reader, can hold.
MOST_SERIES = 8
MOST_BARS = 120
MOST_TASKS = 40
MOST_LINES = 12
MOST_PANELS = 6
MOST_STEPS = 256

# Each series differs in tone, pattern and mark, so that colour is never needed.
_MISSING = f"Pictures need matplotlib: {sys.executable} -m pip install 'localspec[plots]'."
_TONES = ("#1b3a5c", "#c96f2e", "#7aa6c2", "#f0c27b", "#4f7942", "#b5b5b5", "#8c4a6b", "#e3e3e3")
_LINES = ("#1b3a5c", "#c96f2e", "#5a8fb0", "#4f7942", "#8c4a6b")
_HATCHES = ("", "//", "", "..", "xx", "", "\\\\", "--")
_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
_DASHES = ("-", "--", "-.", ":")
_STYLE = {
    "svg.hashsalt": "localspec",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "legend.frameon": False,
    "legend.fontsize": 8,
    "hatch.linewidth": 0.6,
}


@dataclass(frozen=True, slots=True)
class _Subject:
    """What a picture is of."""

    file: ModelFile
    rows: Sequence[Row]
    measurements: Sequence[Measurement]


def plots(results: Results, folder: Path, formats: Sequence[str] = ("svg",)) -> dict[str, Path]:
    """Draw every picture that the results have figures for.

    Args:
        results: complete or not.
        folder: made if it does not exist.
        formats: "svg", "png", or both.

    Returns:
        Files by name. A name begins with what is shown: speedup, positions, passes, alpha, lengths,
        concurrency.

    Raises:
        UsageError: matplotlib is not installed, or a format is unknown.
        StorageError: the folder cannot be written.
    """
    unknown = [name for name in formats if name not in ("svg", "png")]
    if unknown:
        raise UsageError(f"Pictures are written as svg or png, not as {unknown[0]}.")
    found = rows(results)
    drawings: list[tuple[str, Callable[[Any], bool]]] = [("passes", lambda figure: _passes(figure, results))]
    taken: set[str] = set()
    for file in results.files:
        of_file = [row for row in found if row.file == file.name]
        subject = _Subject(file, of_file, [m for m in results.measurements if m.file == file.name])
        slug = _slug(file.name, taken)
        drawings += [(f"{kind}-{slug}", _bound(draw, subject)) for kind, draw in _KINDS.items()]
    written: dict[str, Path] = {}
    with _drawing() as figure_class:
        make_folder(folder)
        for name, draw in drawings:
            figure = figure_class(layout="constrained")
            if draw(figure):
                for form in formats:
                    path = folder / f"{name}.{form}"
                    write_whole(path, _rendered(figure, form))
                    written[path.name] = path
    return written


def check_plots() -> None:
    """Raise `UsageError` where pictures cannot be drawn, before hours of measuring."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UsageError(_MISSING)


@contextmanager
def _drawing() -> Iterator[Any]:
    """Matplotlib's figure class under our style alone, whatever the user's own says."""
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(_MISSING) from error
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(_STYLE)
        yield Figure


def _rendered(figure: Any, form: str) -> bytes:
    out = io.BytesIO()
    metadata = (
        {"Date": None, "Creator": "localspec bench"} if form == "svg" else {"Software": "localspec bench"}
    )
    with warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes, which no user can act on.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(out, format=form, dpi=150, metadata=metadata)
    return out.getvalue()


def _bound(draw: Callable[[Any, _Subject], bool], subject: _Subject) -> Callable[[Any], bool]:
    return lambda figure: draw(figure, subject)


def _slug(name: str, taken: set[str]) -> str:
    """A file's name as part of a picture's, numbered where two would be the same."""
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", clean(name)) or "file"
    while slug in taken:
        slug = f"{slug}-{len(taken) + 1}"
    taken.add(slug)
    return slug


def _preferred(found: Sequence[Row]) -> list[Row]:
    """Single sequences, of one mode: transcripts before free runs before dice."""
    alone = [row for row in found if row.parallel == 1 and row.speedup is not None]
    for mode in ("transcript", "free", "synthetic"):
        of_mode = [row for row in alone if row.mode == mode]
        if of_mode:
            return of_mode
    return []


def _mode(found: Sequence[Row]) -> str:
    return "INVALID: accepted by dice" if found[0].mode == "synthetic" else f"{found[0].mode} runs"


def _task(row: Row, found: Sequence[Row]) -> str:
    """The task, with the temperature only where the grid has several."""
    several = len({other.temperature for other in found if other.task == row.task}) > 1
    return f"{clean(row.task)} T={row.temperature:g}" if several else clean(row.task)


def _speedup(figure: Any, subject: _Subject) -> bool:
    found = _preferred(subject.rows)
    if not found:
        return False
    tasks = list(dict.fromkeys(_task(row, found) for row in found))[:MOST_TASKS]
    every = list(dict.fromkeys(row.label for row in found))
    labels = every[: min(MOST_SERIES, MOST_BARS // len(tasks))]
    width = 0.84 / len(labels)
    figure.set_size_inches(8, 1.2 + len(tasks) * (0.16 + 0.13 * len(labels)))
    axes = figure.subplots()
    for place, label in enumerate(labels):
        own = [row for row in found if row.label == label and _task(row, found) in tasks]
        if not own:
            continue
        at = [tasks.index(_task(row, found)) + (place - (len(labels) - 1) / 2) * width for row in own]
        speeds = [row.speedup or 0.0 for row in own]
        below = [speed - (row.speedup_low or speed) for speed, row in zip(speeds, own, strict=True)]
        above = [(row.speedup_high or speed) - speed for speed, row in zip(speeds, own, strict=True)]
        axes.barh(
            at, speeds, width * 0.92, xerr=(below, above), label=label, color=_TONES[place],
            hatch=_HATCHES[place], edgecolor="black", linewidth=0.4,
            error_kw={"elinewidth": 0.8, "capsize": 1.5},
        )  # fmt: skip
    axes.axvline(1.0, color="black", linewidth=1.2)
    axes.set_yticks(range(len(tasks)), tasks)
    axes.set_ylim(len(tasks) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.grid(axis="x", color="#dddddd")
    axes.set_xlabel("speed over plain decoding (line: equal; whiskers: slowest and fastest round)")
    shown = "" if len(every) == len(labels) else f", the first {len(labels)} of {len(every)} configurations"
    axes.set_title(f"Speed-up by task: {clean(subject.file.name)}, {_mode(found)}{shown}")
    figure.legend(loc="outside right upper")
    return True


def _positions(figure: Any, subject: _Subject) -> bool:
    found = [row for row in _preferred(subject.rows) if row.accepted_at]
    if not found:
        return False
    # The configuration that most tasks have, of those the longest.
    counts = {row.label: sum(other.label == row.label for other in found) for row in found}
    chosen = max(
        found, key=lambda row: (row.draft_length is not None, counts[row.label], row.draft_length or 0)
    )
    own = [row for row in found if row.label == chosen.label][:MOST_LINES]
    figure.set_size_inches(7.5, 3.8)
    axes = figure.subplots()
    for row, mark, dash, tone in zip(own, cycle(_MARKS), cycle(_DASHES), cycle(_LINES), strict=False):
        shares = [100 * share for share in row.accepted_at[:16]]
        axes.plot(
            range(1, len(shares) + 1), shares, marker=mark, linestyle=dash, color=tone, linewidth=1.2,
            markersize=4.5, label=_task(row, own),
        )  # fmt: skip
    there = [100 * share for share in reference.ACCEPTED_AT]
    axes.plot(
        range(1, len(there) + 1),
        there,
        color="black",
        linewidth=2.5,
        alpha=0.35,
        label="reference (k = 4, all)",
    )
    axes.set_ylim(-2, 102)
    axes.set_xticks(range(1, max(max(len(row.accepted_at[:16]) for row in own), len(there)) + 1))
    axes.grid(color="#dddddd")
    axes.set_xlabel("position in the draft")
    axes.set_ylabel("accepted, % of drafts that long")
    axes.set_title(f"Acceptance by position: {clean(subject.file.name)}, {chosen.label}, {_mode(own)}")
    figure.legend(loc="outside right upper")
    return True


def _passes(figure: Any, results: Results) -> bool:
    files = [file for file in results.files if len(file.cost_curve) > 1]
    if not files:
        return False
    figure.set_size_inches(7.5, 3.8)
    axes = figure.subplots()
    widest = max(max(file.pass_ms) for file in files)
    highest = max(max(file.cost_curve.values()) for file in files)
    axes.plot(
        [1, widest],
        [1, widest],
        color="black",
        linestyle=":",
        linewidth=1,
        label="as many passes over one token",
    )
    for file, mark, dash, tone in zip(files, cycle(_MARKS), cycle(_DASHES), cycle(_LINES), strict=False):
        widths = sorted(file.cost_curve)
        axes.plot(
            widths, [file.cost_curve[n] for n in widths], marker=mark, linestyle=dash, color=tone,
            linewidth=1.4, markersize=4.5, label=clean(file.name),
        )  # fmt: skip
    nine = reference.PASS_MS[9] / reference.PASS_MS[1]
    axes.plot([1, 9], [1, nine], color="black", linewidth=2.5, alpha=0.35, label="reference (laptop GPU)")
    axes.set_ylim(0, highest * 1.08)
    axes.set_xlim(0, widest * 1.02)
    axes.grid(color="#dddddd")
    axes.set_xlabel("tokens in a pass, n")
    axes.set_ylabel("T(n) / T(1)")
    axes.set_title("What a pass over n tokens costs")
    axes.legend(loc="upper left")
    return True


def _alpha(figure: Any, subject: _Subject) -> bool:
    found = [
        row
        for row in subject.rows
        if row.parallel == 1 and not row.lossy and row.draft_length and row.speedup
        if row.conditional_acceptance is not None
    ]
    if not found:
        return False
    lengths = sorted({row.draft_length or 0 for row in found})
    figure.set_size_inches(7.5, 4)
    axes = figure.subplots()
    grid = [step / 100 for step in range(101)]
    for place, length in enumerate(lengths):
        mark, tone = _MARKS[place % len(_MARKS)], _LINES[place % len(_LINES)]
        theory = [predicted_speedup(alpha, length, subject.file.pass_ms) for alpha in grid]
        known = [(alpha, speed) for alpha, speed in zip(grid, theory, strict=True) if speed is not None]
        axes.plot(
            [alpha for alpha, _ in known], [speed for _, speed in known], color=tone,
            linestyle=_DASHES[place % len(_DASHES)], linewidth=1.3, label=f"k = {length}, theory",
        )  # fmt: skip
        for dice in (False, True):
            own = [row for row in found if row.draft_length == length and (row.mode == "synthetic") == dice]
            if own:
                axes.scatter(
                    [row.conditional_acceptance for row in own], [row.speedup for row in own],
                    marker=mark, s=22, facecolor="white" if dice else tone, edgecolor=tone, zorder=3,
                    label=f"k = {length}, {'by dice' if dice else 'measured'}",
                )  # fmt: skip
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_xlim(-0.02, 1.02)
    axes.set_ylim(bottom=0)
    axes.grid(color="#dddddd")
    axes.set_xlabel("alpha: accepted of the positions reached")
    axes.set_ylabel("speed over plain decoding")
    axes.set_title(f"Speed-up over acceptance: {clean(subject.file.name)}")
    figure.legend(loc="outside right upper")
    return True


def _lengths(figure: Any, subject: _Subject) -> bool:
    found = [m for m in subject.measurements if m.lengths and m.parallel == 1 and m.mode != "synthetic"]
    # A free controller is what the picture is for; without one, the longest fixed length shows the drafter.
    free = [m for m in found if m.configuration.length is None and m.configuration.draft != "none"]
    longest = max((m.configuration.length or 0 for m in found), default=0)
    used = free or [m for m in found if m.configuration.length == longest]
    if not used:
        return False
    first = used[0].configuration.draft
    panels: dict[str, Measurement] = {}
    for m in used:
        if m.configuration.draft == first and len(panels) < MOST_PANELS:
            panels.setdefault(m.task, m)
    figure.set_size_inches(7.5, 0.9 + 1.05 * len(panels))
    highest = max(max(m.lengths) for m in panels.values()) or 1
    for axes, (task, m) in zip(
        figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels.items(), strict=True
    ):
        shown = m.lengths[:MOST_STEPS]
        axes.step(range(1, len(shown) + 1), shown, where="mid", color=_TONES[0], linewidth=0.9)
        axes.set_ylim(-0.05 * highest, 1.08 * highest)
        axes.set_xlim(0.5, len(shown) + 0.5)
        axes.set_title(clean(task), fontsize=8)
        axes.grid(axis="y", color="#dddddd")
    figure.supxlabel(f"step of the reply (the first {MOST_STEPS} at most)", fontsize=9)
    figure.supylabel("draft tokens", fontsize=9)
    figure.suptitle(
        f"Draft length over time: {clean(subject.file.name)}, {clean(first)}", x=0.01, ha="left", fontsize=10
    )
    return True


def _concurrency(figure: Any, subject: _Subject) -> bool:
    crowds = [row for row in subject.rows if row.parallel > 1 and row.speedup]
    if not crowds:
        return False
    # One configuration where all would be too many: the one measured on most tasks, of those the first.
    labels = list(dict.fromkeys(row.label for row in crowds))
    counted = {label: len({row.task for row in crowds if row.label == label}) for label in labels}
    if sum(counted.values()) > MOST_LINES:
        labels = [max(labels, key=lambda label: counted[label])]
    lines: dict[str, list[Row]] = {}
    for row in subject.rows:
        crowded = any((row.task, row.label, row.mode) == (c.task, c.label, c.mode) for c in crowds)
        if crowded and row.label in labels and row.speedup:
            name = _task(row, subject.rows)
            lines.setdefault(name if len(labels) == 1 else f"{name}, {row.label}", []).append(row)
    what = f", {labels[0]}" if len(labels) == 1 else ""
    figure.set_size_inches(7.5, 3.8)
    axes = figure.subplots()
    for (label, own), mark, dash, tone in zip(
        list(lines.items())[:MOST_LINES], cycle(_MARKS), cycle(_DASHES), cycle(_LINES), strict=False
    ):
        own.sort(key=lambda row: row.parallel)
        axes.plot(
            [row.parallel for row in own], [row.speedup for row in own], marker=mark, linestyle=dash,
            color=tone, linewidth=1.3, markersize=4.5, label=label,
        )  # fmt: skip
    counts = sorted({row.parallel for own in lines.values() for row in own})
    axes.axhline(1.0, color="black", linewidth=1)
    axes.set_xscale("log", base=2)
    axes.set_xticks(counts, map(str, counts))
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.grid(color="#dddddd")
    axes.set_xlabel("sequences in one batch")
    axes.set_ylabel("speed over plain decoding")
    axes.set_title(f"Speed-up by concurrency: {clean(subject.file.name)}{what}")
    figure.legend(loc="outside right upper")
    return True


_KINDS: dict[str, Callable[[Any, _Subject], bool]] = {
    "speedup": _speedup,
    "positions": _positions,
    "alpha": _alpha,
    "lengths": _lengths,
    "concurrency": _concurrency,
}
