"""`localspec models`: what is known, what is here, and fetching the rest."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.model_check import check

if TYPE_CHECKING:
    from localspec.models.entries import ModelEntry
    from localspec.models.gguf import GGUFHeader
    from localspec.models.progress import OnProgress, PullProgress
    from localspec.models.registry import Resolved

app = typer.Typer(
    help="List, describe and fetch models; make smaller copies, and check which can draft for which.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="A known model, or a source such as hf:OWNER/REPO/file.gguf.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_LINE_EVERY_S = 5.0


@app.command("list")
def list_models(as_json: JsonOption = False) -> None:
    """Show every known model, and whether it is on this machine."""
    from localspec.models import registry

    known = registry.entries()
    if as_json:
        _print_json([_describe(entry) for entry in known.values()])
        return
    from localspec.models import store
    from localspec.models.entries import FileSource, HubSource

    rows = [("NAME", "SIZE", "FETCHED", "SOURCE", "DESCRIPTION")]
    for entry in known.values():
        here = "yes" if store.fetched(entry) else "no"
        match entry.sources[0]:
            case HubSource():
                source = "hub"
            case FileSource():
                source = "file"
            case _:
                source = "index"
        rows.append((entry.name, _size(entry.size) or "-", here, source, entry.description))
    print_table(rows)


def print_table(rows: Sequence[tuple[str, ...]]) -> None:
    """Columns as wide as they need to be; in a terminal the last one is cut to the window."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for row in rows:
        line = "  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]])
        if room is not None and len(line) > room:
            line = f"{line[: room - 1]}…"
        typer.echo(line.rstrip())


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME|PATH", help="A known model or a GGUF file.")],
    as_json: JsonOption = False,
) -> None:
    """Describe a model: where it is from, what its file holds, and the memory it takes."""
    from localspec.models import gguf, registry

    found = registry.resolve(name)
    header = gguf.read_header(found.path) if found.path is not None else None
    facts = _facts(found, header)
    if as_json:
        _print_json(facts)
        return
    width = max(len(key) for key in facts)
    for key, value in facts.items():
        if value not in (None, "", {}):
            text = _readable(key, value).replace("\n", "\n" + " " * (width + 2))
            typer.echo(f"{key.replace('_', ' '):<{width}}  {text}")
    if found.path is None:
        typer.echo(f"Not fetched yet: `localspec models pull {name}`.", err=True)


@app.command()
def pull(name: NameArgument) -> None:
    """Fetch a model, and print the path of its file."""
    from localspec.models import registry, sources, store

    entry = registry.find_entry(name)
    if store.fetched(entry) is None:
        size = f" ({_size(entry.size)})" if entry.size else ""
        typer.echo(f"Fetching {entry.name}{size} from {_where_from(entry)}.", err=True)
        with progress_display() as show_progress:
            path = sources.pull(entry, show_progress)
    else:
        path = sources.pull(entry)
    typer.echo(path)


@app.command()
def path(
    name: Annotated[str, typer.Argument(metavar="NAME|PATH", help="A known model or a GGUF file.")],
) -> None:
    """Print the path of a model's file, and nothing else."""
    from localspec.errors import NotFoundError
    from localspec.models import registry

    found = registry.resolve(name)
    if found.path is None:
        raise NotFoundError(f"{name} is not fetched yet; run `localspec models pull {name}`.")
    typer.echo(found.path.absolute())


@app.command()
def quantize(
    name: Annotated[str, typer.Argument(metavar="MODEL", help="A known model or a GGUF file.")],
    file_type: Annotated[str, typer.Argument(metavar="TYPE", help="Such as Q4_0 or Q2_K.")],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The file to make.")
    ] = None,
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, max=512, metavar="N", help="CPU threads.")
    ] = None,
) -> None:
    """Make a copy of a model in another quantization, and print the path of its file.

    The copy is known as MODEL-TYPE from then on, for --model and for --draft: a copy of few bits drafts for
    the model that it was made of.
    """
    from localspec import model_copies
    from localspec.cli.common import StatusLine
    from localspec.model_files import file_of
    from localspec.models import registry

    model_copies.check_type(file_type)
    found = registry.resolve(name)
    if found.path is None:
        typer.echo(f"Fetching {found.name}.", err=True)
    with progress_display() as show_progress:
        found = replace(found, path=file_of(found, show_progress))
    wanted = model_copies.plan_copy(found, file_type, output)
    typer.echo(f"Making {wanted.name} of {found.name}, about {_size(wanted.size)}.", err=True)
    line = StatusLine()
    try:
        wanted.make(threads, lambda share: line.show(f"converting {share:.0%}"))
    finally:
        line.clear()
    typer.echo(wanted.path)


app.command()(check)


@contextmanager
def progress_display() -> Iterator[OnProgress]:
    """Shows progress on standard error: a bar in a terminal, else a line a stage and every few seconds."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield _LinePrinter().show
        return
    from rich.progress import BarColumn, Progress, TextColumn

    # The text carries the figures: they are measured where the bytes arrive, not where they are drawn.
    columns = (BarColumn(bar_width=30), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)

        def show_progress(progress: PullProgress) -> None:
            bar.update(
                task,
                description=progress.text,
                total=progress.total_bytes,
                completed=progress.done_bytes,
            )

        yield show_progress


class _LinePrinter:
    """Progress for logs and pipes."""

    def __init__(self) -> None:
        self._stage = ""
        self._last = 0.0

    def show(self, progress: PullProgress) -> None:
        now = time.monotonic()
        if progress.stage == self._stage and now - self._last < _LINE_EVERY_S:
            return
        self._stage, self._last = progress.stage, now
        typer.echo(progress.text, err=True)


def _print_json(value: Any) -> None:
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def _size(count: int | None) -> str:
    from localspec.models.disk import readable_size

    return readable_size(count) if count else ""


def _where_from(entry: ModelEntry) -> str:
    from localspec.models.entries import FileSource, HubSource

    source = entry.sources[0]
    if isinstance(source, FileSource):
        return "a file"
    return source.repo if isinstance(source, HubSource) else source.requirement.split("==")[0]


def _describe(entry: ModelEntry) -> dict[str, Any]:
    """An entry as plain values, the same keys for every model."""
    from localspec.models import store

    here = store.fetched(entry)
    return {
        "name": entry.name,
        "description": entry.description,
        "fetched": here is not None,
        "path": str(here) if here else None,
        "source": [str(source) for source in entry.sources],
        "size": entry.size,
        "sha256": entry.sha256,
        "license": entry.license,
        "family": entry.family,
        "parameters": entry.parameters,
        "quantization": entry.quantization,
        "context": entry.context,
        "sampling": entry.sampling.given(),
        "defined_in": str(entry.origin) if entry.origin else None,
    }


def _facts(found: Resolved, header: GGUFHeader | None) -> dict[str, Any]:
    facts: dict[str, Any] = {"name": found.name, "fetched": True, "path": str(found.path)}
    if found.entry is not None:
        facts = _describe(found.entry)
    if header is None:
        return facts
    facts["size"] = header.file_bytes
    facts |= {
        "architecture": header.architecture,
        "title": header.name,
        "file_type": header.file_type,
        "layers": header.block_count,
        "width": header.embedding_length,
        "vocabulary": header.vocabulary,
        "trained_context": header.context_length,
        "sliding_window": header.sliding_window or None,
        "tokenizer": header.tokenizer,
        "chat_template": header.has_chat_template,
        "memory": _memory(header),
    }
    return facts


def _memory(header: GGUFHeader) -> dict[str, Any]:
    """What the model takes with all its layers in one memory, in bytes."""
    from localspec.errors import EngineError
    from localspec.models import fit
    from localspec.runtime.devices import repacked_types

    try:
        repacked = repacked_types()
    except EngineError:
        # Without a usable llama.cpp there is nothing to ask; what a file holds can be shown all the same.
        repacked = frozenset()
    trained = header.context_length or fit.DEFAULT_CONTEXT
    context = min(trained, fit.DEFAULT_CONTEXT)
    contexts = sorted({min(size, trained) for size in (2048, context, trained)})
    at = {size: fit.sizes(header, context=size, batch=min(512, size), repacked=repacked) for size in contexts}
    usual = at[context]
    return {
        "weights": usual.weights_bytes,
        "repacked": usual.repacked_bytes,
        "kv_cache": usual.kv_bytes,
        "kv_cache_context": context,
        "kv_caches": {str(size): sizes.kv_bytes for size, sizes in at.items()},
        "buffers": usual.compute_bytes + usual.output_bytes,
        "other": usual.other_bytes,
        "needed": usual.needed_bytes,
        "total": usual.total_bytes,
    }


def _readable(key: str, value: Any) -> str:
    if key == "size":
        return _size(value)
    if key == "memory":
        weights = f"{_size(value['weights'])} for the weights"
        if value["repacked"]:
            weights += f", {_size(value['repacked'])} for a copy that this CPU works with"
        caches = [
            f"{_size(count) or '0 bytes'} for {size} tokens" for size, count in value["kv_caches"].items()
        ]
        buffers = f"{_size(value['buffers'] + value['other'])} for buffers and vocabulary"
        total = f"{_size(value['needed'])} have to be free for {value['kv_cache_context']} tokens of context"
        if value["total"] > value["needed"]:
            total += f"; {_size(value['total'])} show as used while the system has no other use for them"
        return "\n".join((weights, f"cache: {', '.join(caches)}", buffers, total))
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{name.replace('_', '-')} {item}" for name, item in value.items())
    return ", ".join(value) if isinstance(value, list) else str(value)
