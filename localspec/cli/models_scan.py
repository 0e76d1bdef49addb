"""`localspec models scan` and `add`: models that are on this machine already."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli.models_output import JsonOption, print_json, print_table, readable

if TYPE_CHECKING:
    from localspec.models.places import Place
    from localspec.models.scan import Found, Named, Scan


def scan(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FOLDER", help="Look into these, in place of other programs' folders."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be added.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Find GGUF files that are here already, and make them known by name; nothing is copied.

    Looks into the Hugging Face cache and the folders of LM Studio, Ollama, llama.cpp, Jan and GPT4All, or
    into the folders that are given.
    """
    from localspec.cli.common import StatusLine
    from localspec.models import places, registry
    from localspec.models import scan as scanning

    where = [_place(folder) for folder in folders] if folders else places.known_places()
    line = StatusLine()
    try:
        found = scanning.scan(where, lambda path: line.show(f"reading {path.name}"))
    finally:
        line.clear()
    added = [one for one in found.models if one.new]
    if not dry_run:
        scanning.register(found.models)
    if as_json:
        print_json(
            {
                "registry": str(registry.user_file()),
                "dry_run": dry_run,
                "folders": [{"program": one.program or None, "path": str(one.folder)} for one in where],
                "added": [_named_values(one) for one in added],
                "known": [_named_values(one) for one in found.models if not one.new],
                "other": [_values(one) for one in found.others],
                "broken": [_values(one) for one in found.broken],
                "notes": list(found.notes),
            }
        )
        return
    _print(found, where, dry_run)


def add(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="A GGUF file, the first of a split model.")],
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Made from the file's name if left out.")
    ] = None,
) -> None:
    """Make a file of your own known by a name; it stays where it is."""
    from localspec.errors import ModelFileError, UsageError
    from localspec.models import own, registry
    from localspec.models import scan as scanning

    found = scanning.inspect(path)
    if found.kind == "broken":
        raise ModelFileError(f"{path} cannot be added: {found.reason}.")
    if found.kind == "other":
        raise UsageError(f"{path} cannot be added as a model: it is {found.reason}.")
    if name is None:
        named = scanning.named(found)
        if not named.new:
            typer.echo(f"It is known already, as {named.name}.")
            return
        scanning.register([named])
        name = named.name
    else:
        own.check_free(name)
        scanning.register([scanning.Named(found, name, new=True)])
    typer.echo(f"Added as {name} to {registry.user_file()}; `localspec chat --model {name}` starts it.")


def _place(folder: Path) -> Place:
    from localspec.errors import NotFoundError, UsageError
    from localspec.models.places import Place

    if not folder.exists():
        raise NotFoundError(f"There is no folder {folder}; check the path.")
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder; `localspec models add {folder}` adds one file.")
    return Place("", folder.absolute())


def _print(found: Scan, where: Sequence[Place], dry_run: bool) -> None:
    from localspec.models import registry

    added = sum(one.new for one in found.models)
    if found.models:
        rows = [("NAME", "SIZE", "FROM", "STATE", "FILE")]
        for one in found.models:
            state = "known" if not one.new else "new" if dry_run else "added"
            rows.append((one.name, _size(one.found), _from(one.found), state, str(one.found.path)))
        print_table([tuple(map(_line, row)) for row in rows])
    for title, files in (("No models by themselves:", found.others), ("Not usable:", found.broken)):
        if files:
            typer.echo(f"\n{title}" if found.models else title)
            for file in files:
                typer.echo(f"  {_line(file.path)}: {_line(file.reason)}")
    for note in found.notes:
        typer.echo(_line(note), err=True)
    if not where:
        typer.echo("No other program keeps models here; give a FOLDER to look into.")
    elif not (found.models or found.others or found.broken):
        typer.echo(f"No GGUF file in {', '.join(_line(place.folder) for place in where)}.")
    elif added:
        would = "would be added" if dry_run else "added"
        what = "1 model" if added == 1 else f"{added} models"
        typer.echo(f"\n{what} {would} to {registry.user_file()}; nothing is copied.")
    elif found.models:
        typer.echo("\nAll of them are known already.")


def _line(text: object) -> str:
    """It on one line, harmless to a terminal: files may be named anything."""
    from localspec.text import printable

    return printable(str(text).replace("\n", "␊").replace("\t", "␉"))


def _size(found: Found) -> str:
    parts = f" ({found.parts} files)" if found.parts > 1 else ""
    return f"{readable(found.size)}{parts}"


def _from(found: Found) -> str:
    return found.candidate.program or "-"


def _values(found: Found) -> dict[str, Any]:
    header = found.header
    return {
        "path": str(found.path),
        "program": found.candidate.program or None,
        "title": found.candidate.title or None,
        "size": found.size,
        "parts": found.parts,
        "architecture": header.architecture if header else None,
        "parameters": header.size_label if header else None,
        "quantization": header.file_type if header else None,
        "reason": found.reason or None,
    }


def _named_values(named: Named) -> dict[str, Any]:
    return {"name": named.name, **_values(named.found)}
