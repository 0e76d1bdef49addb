"""How a row of the models screen reads: its columns, what is told of it, and which keys do what."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from localspec.models.disk import readable_size
from localspec.models.progress import PullProgress
from localspec.text import printable
from tui import figures
from tui.keymap import KEYS
from tui.model_rows import ModelRow, Shelf

SIZE, PLACE, RATE, GAP = 9, 9, 6, 2
FIXED = 2 + SIZE + PLACE + RATE + 3 * GAP
"""Cells of a row without its name."""

NAME = 40
"""Cells of a name at most; in a wide window the rest tells what the model is good for."""

LEAST = 20
"""Cells below which that is left out."""

THINKING = {"switch": "can think first", "always": "thinks first"}


@dataclass(frozen=True, slots=True)
class Coming:
    """A model that is on its way, or did not arrive.

    Attributes:
        running: whether it is fetched now; else it waits, or has failed.
        progress: how far it is, None before anything is known.
        error: why it did not arrive; "" while there is hope.
    """

    running: bool = False
    progress: PullProgress | None = None
    error: str = ""

    @property
    def share(self) -> float | None:
        """How much of it is here, None where that cannot be told."""
        progress = self.progress
        return progress.done_bytes / progress.total_bytes if progress and progress.total_bytes else None


def title(shelf: Shelf, width: int) -> Text:
    """The top row: how much the models take, and how much is free."""
    text = Text("Models", "bold", no_wrap=True)
    told = [f"{readable_size(shelf.taken)} of models"]
    if shelf.free is not None:
        told.append(f"{readable_size(shelf.free)} free")
    room = width - len(text)
    taken = " · ".join(told)
    text.append(f"{taken if len(taken) < room else told[-1]:>{room}}", "not bold dim")
    return text


def columns(width: int) -> Text:
    """The heads of the columns."""
    name = _fitted("  model", _name_room(width) + 2)
    return Text(f"{name}  {'size':>{SIZE}}  {'runs on':<{PLACE}}  {'tok/s':>{RATE}}", no_wrap=True)


def label(
    row: ModelRow, width: int, coming: Coming | None, *, unfolded: bool = False, inner: bool = False
) -> Text:
    """A row: mark, name, size, where it runs and how fast, or how far it is on its way."""
    mark = "• " if row.current else ("▾ " if unfolded else "▸ ") if row.sizes else "  "
    indent = "  " if inner else ""
    text = Text(no_wrap=True)
    room = _name_room(width) - len(indent)
    name = printable(row.name)
    hint = f"  {printable(row.note)}" if row.note else ""
    text.append(mark + indent)
    text.append(_fitted(figures.middle(name, room), min(cell_len(name), room)))
    text.append(_fitted(hint, room - min(cell_len(name), room)), "dim")
    size = readable_size(row.size) if row.size else figures.DASH
    text.append(f"  {size:>{SIZE}}  ")
    if coming is not None:
        text.append(_status(coming))
    elif row.part:
        share = f"{row.part / row.size:.0%} is here" if row.size else "partly here"
        text.append(_fitted(share, PLACE + GAP + RATE))
    else:
        rate = row.fit.rate if row.fit and row.fit.fits else None
        shown = figures.estimate(min(rate, 9999)) if rate else figures.DASH
        text.append(f"{row.runs_on or figures.DASH:<{PLACE}}  {shown:>{RATE}}")
    rest = width - FIXED - _name_room(width) - GAP
    if rest >= LEAST:
        text.append(f"  {_cut(printable(row.about), rest)}", "dim")
    if row.fit is not None and not row.fit.fits:
        text.stylize("dim")
    return text


def _name_room(width: int) -> int:
    room = max(width - FIXED, 8)
    return NAME if room >= NAME + GAP + LEAST else room


def _status(coming: Coming) -> str:
    width = PLACE + GAP + RATE
    if coming.error:
        return _fitted("! not fetched", width)
    if not coming.running:
        return _fitted("waits", width)
    if coming.share is None:
        return _fitted(f"{coming.progress.stage if coming.progress else 'starting'}…", width)
    filled, rest = figures.bar(coming.share, width - 6)
    return f"{coming.share * 100:3.0f} % {filled}{rest}"


def details(row: ModelRow, coming: Coming | None, sentence: str, width: int, height: int) -> Text:
    """What is known of a row, in `height` lines.

    Args:
        row: the marked one.
        coming: whether it is on its way.
        sentence: what has just happened to it; takes the place of what is known of its speed.
        width: cells of a line.
        height: lines that there are.
    """
    if not sentence and coming is not None:
        sentence = _news(coming)
    reason = row.fit.reason if row.fit is not None else ""
    told = textwrap.wrap(printable(sentence or reason), max(width, 20))[: max(height - 1, 1)]
    # What has happened is more important than where a file is from.
    where, room = _where(row, width), height - 1 - len(told)
    about = [*_wrapped(_facts(row), width, max(room - bool(where), 1)), where][: max(room, 0)]
    text = Text(_cut(f"{printable(row.name)}  {printable(row.about)}", width), no_wrap=True)
    text.stylize("bold", 0, len(printable(row.name)))
    for line in about:
        text.append(f"\n{_cut(line, width)}", "dim")
    for line in told:
        text.append(f"\n{line}")
    return text


def _wrapped(text: str, width: int, most: int) -> list[str]:
    """Text in lines, `most` of them at most: the last one is cut where there is more."""
    lines = textwrap.wrap(text, max(width, 20))
    return lines if len(lines) <= most else [*lines[: most - 1], " ".join(lines[most - 1 :])]


def _news(coming: Coming) -> str:
    """How far a model is, in a sentence."""
    if coming.error:
        return coming.error
    if not coming.running:
        return "It waits until the one before it is here."
    words = coming.progress.text if coming.progress is not None else "starting"
    return f"{words[:1].upper()}{words[1:]}"


def _facts(row: ModelRow) -> str:
    entry = row.entry
    if entry is None:
        return "not in the registry"
    size = " ".join(part for part in (entry.parameters, entry.quantization) if part)
    others = [one for one in entry.quantizations if one != entry.quantization]
    parts = (
        size,
        f"{figures.count(entry.context)} tokens of context" if entry.context else "",
        entry.license,
        THINKING.get(entry.thinking, ""),
        f"also {', '.join(others)}" if others else "",
    )
    return printable(" · ".join(part for part in parts if part))


def _where(row: ModelRow, width: int) -> str:
    if row.path is not None:
        return figures.middle(printable(str(row.path)), width)
    return figures.middle(printable(row.entry.source_text), width) if row.entry is not None else ""


def keys_of(row: ModelRow | None, coming: Coming | None, *, inner: bool, unfolded: bool | None) -> str:
    """What the keys do with a row, in words.

    Args:
        row: the marked one.
        coming: whether it is on its way.
        inner: whether it is a size of a family that can be folded.
        unfolded: whether it is a family that is folded out; None where folding is not possible.
    """
    fetch, keep, remove = KEYS["models.fetch"], KEYS["models.keep"], KEYS["models.remove"]
    words: list[str] = []
    if row is None:
        pass
    elif row.sizes:
        if unfolded is not None:
            words.append("← fold" if unfolded else "→ sizes")
        if row.entry is not None:
            words += [f"enter use {row.entry.name}", f"{fetch} fetch it"]
    elif coming is not None and not coming.error:
        words += [f"{fetch} stop", "enter use it"]
    elif row.current:
        words += ["answers now", f"{keep} start with it"]
    elif row.path is not None:
        words += ["enter use", f"{keep} start with it", f"{remove} remove"]
    else:
        again = "fetch on" if row.part else "fetch"
        words += [f"enter {again} and use", f"{fetch} {again}"]
        if row.part:
            words.append(f"{remove} discard")
    if inner:
        words.append("← fold")
    return " · ".join([*words, f"{KEYS['models.back']} back"])


def _fitted(text: str, width: int) -> str:
    return set_cell_size(_cut(text, width), width)


def _cut(text: str, width: int) -> str:
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, max(width - 1, 0)) + "…" if width > 0 else ""
