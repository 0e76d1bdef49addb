"""`localspec models pull`, `path`, `rm` and `quantize`: the files of models."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from localspec.cli.models_output import ModelArgument, NameArgument, progress_display, readable

if TYPE_CHECKING:
    from localspec.models.entries import ModelEntry


def pull(name: NameArgument) -> None:
    """Fetch a model or a head, and print the path of its file."""
    from localspec import model_choice
    from localspec.models import sources, store
    from localspec.models.entries import HubSource

    name = _without_kind(name)
    choice = model_choice.choice_of(name)
    entry = model_choice.find_entry(name) if choice is None else choice.entry
    if choice is not None:
        typer.echo(f"{name}: {choice.reason}", err=True)
    if store.fetched(entry) is None:
        size = f" ({readable(entry.size)})" if entry.size else ""
        typer.echo(f"Fetching {entry.name}{size} from {_where_from(entry)}.", err=True)
        try:
            with progress_display() as show_progress:
                path = sources.pull(entry, show_progress)
        except KeyboardInterrupt:
            if isinstance(entry.sources[0], HubSource):
                typer.echo(
                    "Stopped. What was fetched is kept, and the same command continues there.", err=True
                )
            raise
    else:
        path = sources.pull(entry)
    typer.echo(path)


def path(name: ModelArgument) -> None:
    """Print the path of a model's file, and nothing else."""
    from localspec import model_choice
    from localspec.errors import NotFoundError

    found = model_choice.resolve(_without_kind(name))
    if found.path is None:
        raise NotFoundError(f"{name} is not fetched yet; run `localspec models pull {name}`.")
    typer.echo(found.path.absolute())


def rm(
    name: NameArgument,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")] = False,
) -> None:
    """Remove a fetched model, or a copy made by `quantize`, from the disk.

    Of a model that is a file of your own only the name is forgotten: the file stays where it is.
    """
    from localspec.models import registry

    entry = registry.find_entry(_without_kind(name))
    if entry.is_local:
        _forget(entry, yes)
    else:
        _remove(entry, yes)


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
    from localspec import model_choice, model_copies
    from localspec.cli.common import StatusLine
    from localspec.model_files import file_of

    model_copies.check_type(file_type)
    found = model_choice.resolve(name)
    if found.path is None:
        typer.echo(f"Fetching {found.name}.", err=True)
    with progress_display() as show_progress:
        found = replace(found, path=file_of(found, show_progress))
    wanted = model_copies.plan_copy(found, file_type, output)
    typer.echo(f"Making {wanted.name} of {found.name}, about {readable(wanted.size)}.", err=True)
    line = StatusLine()
    try:
        wanted.make(threads, lambda share: line.show(f"converting {share:.0%}"))
    finally:
        line.clear()
    typer.echo(wanted.path)


def _without_kind(name: str) -> str:
    """The name of a head, which `models show` and `--draft` write with its kind before it."""
    from localspec.models.entries import HEADS

    kind, _, rest = name.partition(":")
    return rest if kind in HEADS and rest else name


def _where_from(entry: ModelEntry) -> str:
    from localspec.models.entries import FileSource, HubSource

    source = entry.sources[0]
    if isinstance(source, FileSource):
        return "a file"
    return source.repo if isinstance(source, HubSource) else source.requirement.split("==")[0]


def _remove(entry: ModelEntry, yes: bool) -> None:
    """Take what was fetched from the disk; the model stays known."""
    from localspec.errors import NotFoundError
    from localspec.models import store

    folder = store.entry_dir(entry)
    if not folder.exists() and not folder.is_symlink():
        raise NotFoundError(f"{entry.name} is not fetched; there is nothing to remove.")
    shared = store.shared_file(entry)
    _ask(f"Remove {entry.name} ({readable(store.size_on_disk(entry)) or 'only a link'}) in {folder}?", yes)
    freed = store.remove(entry)
    typer.echo(f"Removed {entry.name}: {readable(freed) or '0 bytes'} freed.")
    if shared is not None:
        typer.echo(f"Its data is in the hub library's cache and stays there: {shared}.")


def _forget(entry: ModelEntry, yes: bool) -> None:
    """Take a file of this machine out of the user's registry; only a copy made here is removed too."""
    from localspec.errors import StorageError
    from localspec.models import own, store

    file = store.final_path(entry)
    if not _made_here(file):
        own.remove_entry(entry.name)
        stays = "its file stays" if file.exists() else "its file was gone already"
        typer.echo(f"Forgot {entry.name}; {stays}: {file}.")
        return
    size = file.stat().st_size
    _ask(f"Remove {entry.name} ({readable(size)}), the file {file}?", yes)
    own.remove_entry(entry.name)
    try:
        file.unlink()
    except OSError as error:
        raise StorageError(f"Forgot {entry.name}, but cannot remove {file} ({error.strerror}).") from error
    typer.echo(f"Removed {entry.name}: {readable(size)} freed.")


def _made_here(file: Path) -> bool:
    """Whether `models quantize` put a file where it is."""
    from localspec import paths

    try:
        return file.is_file() and file.resolve().parent == (paths.data_dir() / "models").resolve()
    except OSError:
        return False


def _ask(question: str, yes: bool) -> None:
    """Go on only if the user says so."""
    from localspec.errors import UsageError

    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("Nobody can be asked here; give --yes to remove it without a question.")
    typer.confirm(question, abort=True, err=True)
