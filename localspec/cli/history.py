"""`localspec history`: conversations from the shell."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from localspec.errors import NotFoundError, UsageError

if TYPE_CHECKING:
    from localspec.chat.rows import ConversationRow, Tree
    from localspec.chat.search import Found, Snippet
    from localspec.chat.store import Store

app = typer.Typer(
    help="List, search, show, export, import and delete conversations.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
# SQLite's numbers have 63 bits.
IdArgument = Annotated[
    int, typer.Argument(metavar="ID", min=1, max=2**63 - 1, help="The number of a conversation.")
]
IdsArgument = Annotated[
    list[int] | None, typer.Argument(metavar="ID...", min=1, max=2**63 - 1, help="Numbers of conversations.")
]
LimitOption = Annotated[int, typer.Option("-n", "--limit", min=0, help="How many at most; 0 is all of them.")]

_EVERYTHING = 2**31


@app.command("list")
def list_conversations(limit: LimitOption = 20, as_json: JsonOption = False) -> None:
    """List conversations, the one that was written to last first."""
    from localspec.cli.models_output import print_table

    with _store() as store:
        # One more than is shown tells whether there are more.
        rows = store.conversations(limit + 1 if limit else _EVERYTHING) if store else []
    more = bool(limit) and len(rows) > limit
    rows = rows[:limit] if limit else rows
    if as_json:
        _print_json([_as_object(row) for row in rows])
        return
    if not rows:
        typer.echo("There are no conversations yet.", err=True)
        return
    table = [("ID", "WRITTEN", "MESSAGES", "MODEL", "TITLE")]
    print_table([*table, *(_cells(row) for row in rows)])
    if more:
        typer.echo("There are more: -n 0 lists all of them.", err=True)


@app.command()
def search(
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="Words; all of them have to occur.")],
    limit: LimitOption = 20,
    as_json: JsonOption = False,
) -> None:
    """Find conversations by the words of their title or of one of their messages."""
    with _store() as store:
        found = store.search(" ".join(text), limit or _EVERYTHING) if store else []
    if as_json:
        _print_json([_found_object(one) for one in found])
        return
    if not found:
        typer.echo("Nothing was found.", err=True)
    for one in found:
        row = one.row
        typer.echo(f"{row.id}  {_title(row)}  ({_day(row.updated)}, {_count(row.message_count, 'message')})")
        if one.snippet is not None:
            typer.echo(f"    {_marked(one.snippet)}")
            if one.messages > 1:
                typer.echo(f"    and in {_count(one.messages - 1, 'more message')}")


@app.command()
def show(conversation: IdArgument, as_json: JsonOption = False) -> None:
    """Print a conversation as Markdown, with all its branches."""
    from localspec.chat import export as exporting

    with _store() as store:
        trees = [_tree(store, conversation)]
    typer.echo(exporting.as_json(trees) if as_json else exporting.as_markdown(trees), nl=as_json)


@app.command()
def export(
    conversations: IdsArgument = None,
    everything: Annotated[bool, typer.Option("--all", help="All conversations.")] = False,
    kind: Annotated[
        Literal["md", "json"],
        typer.Option("--format", help="Markdown for people, or JSON, which `history import` reads."),
    ] = "md",
    output: Annotated[
        str | None,
        typer.Option(
            "-o", "--output", metavar="FILE|FOLDER", help="Where to; a file each in a folder. Else printed."
        ),
    ] = None,
) -> None:
    """Export conversations with all their branches; the JSON keeps everything, measurements too."""
    from localspec.chat import export as exporting

    if bool(conversations) is everything:
        raise UsageError("Say what to export: numbers of conversations or --all.")
    with _store() as store:
        if everything:
            wanted = sorted(row.id for row in store.conversations(_EVERYTHING)) if store else []
        else:
            wanted = list(dict.fromkeys(conversations or []))
        trees = [_tree(store, number) for number in wanted]
    if not trees:
        typer.echo("There are no conversations yet.", err=True)
    write = exporting.as_json if kind == "json" else exporting.as_markdown
    if output is None:
        typer.echo(write(trees), nl=kind == "json")
        return
    place = Path(output)
    if place.is_dir() or output.endswith(("/", os.sep)):
        from localspec.bench.report.disk import make_folder

        make_folder(place)
        files = {place / exporting.file_name(tree, kind): write([tree]) for tree in trees}
    else:
        files = {place: write(trees)}
    for file, text in files.items():
        _write(file, text)
        typer.echo(f"Written: {file}", err=True)


@app.command("import")
def import_files(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Our own JSON, ChatGPT's conversations.json, or a list of messages with role and content.",
        ),
    ],
) -> None:
    """Add conversations from files. Nothing that is there is changed; what is there already is left out."""
    from contextlib import closing

    from localspec.chat.imports import read_trees
    from localspec.chat.store import Store
    from localspec.conversations import take_in

    # All files are read before anything is written.
    trees = [tree for file in files for tree in read_trees(file)]
    with closing(Store()) as store:
        _tell(store)
        imported = take_in(store, trees)
    for row in imported.added:
        typer.echo(f"Added {row.id}: {_title(row)} ({_count(row.message_count, 'message')})")
    for row in imported.kept:
        typer.echo(f"Already here as {row.id}: {_title(row)}")
    if not trees:
        typer.echo("There was no conversation in it.", err=True)


@app.command()
def rm(
    conversations: Annotated[
        list[int],
        typer.Argument(metavar="ID...", min=1, max=2**63 - 1, help="Numbers of conversations."),
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete conversations, and what drafts remember of them."""
    from localspec.conversations import delete, forget
    from localspec.settings import load_settings

    capacity = load_settings().memory.capacity
    problems: list[str] = []
    with _store() as store:
        # A number that does not exist is said before anything is deleted.
        rows = [_row(store, number) for number in dict.fromkeys(conversations)]
        if not yes:
            what = _named(rows[0]) if len(rows) == 1 else _count(len(rows), "conversation")
            typer.confirm(f"Delete {what} for good?", abort=True, err=True)
        for row in rows:
            if store is None or delete(store, row.id) is None:
                continue
            forgotten = forget(row.memory_name, capacity)
            problems += [forgotten.problem] if forgotten.problem else []
            drafts = _count(forgotten.documents, "remembered reply", "remembered replies")
            also = f", and {drafts} that drafts were made from" if forgotten.documents else ""
            typer.echo(f"Deleted {_named(row)}{also}.")
    if problems:
        from localspec.errors import StorageError

        raise StorageError(f"What drafts remember of it may still be there: {problems[0]}")


@app.command()
def path() -> None:
    """Print the file in which the conversations are, and nothing else."""
    typer.echo(_database().absolute())


def _database() -> Path:
    from localspec.paths import data_dir

    return data_dir() / "conversations.db"


@contextmanager
def _store() -> Iterator[Store | None]:
    """The conversations; None where there are none, since looking makes no database."""
    from contextlib import closing

    if not _database().exists():
        yield None
        return
    from localspec.chat.store import Store

    locked = not all(os.access(place, os.W_OK) for place in (_database(), _database().parent))
    with closing(Store(read_only=locked)) as store:
        _tell(store)
        yield store


def _tell(store: Store) -> None:
    if store.notice:
        typer.echo(f"localspec: {store.notice}", err=True)


def _row(store: Store | None, number: int) -> ConversationRow:
    row = store.get(number) if store else None
    if row is None:
        raise NotFoundError(f"There is no conversation {number}; see `localspec history list`.")
    return row


def _tree(store: Store | None, number: int) -> Tree:
    _row(store, number)
    tree = store.tree(number) if store else None
    if tree is None:
        raise NotFoundError(f"Conversation {number} was just deleted; see `localspec history list`.")
    return tree


def _write(file: Path, text: str) -> None:
    from localspec.bench.report.disk import write_whole

    write_whole(file, text.encode())


def _print_json(value: Any) -> None:
    from localspec.chat.export import safe_json

    typer.echo(safe_json(value))


def _as_object(row: ConversationRow) -> dict[str, Any]:
    return {
        "id": row.id,
        "title": row.title,
        "model": row.model,
        "created": row.created,
        "updated": row.updated,
        "messages": row.message_count,
    }


def _found_object(one: Found) -> dict[str, Any]:
    return {
        **_as_object(one.row),
        "found": one.messages,
        "snippet": one.snippet.text if one.snippet is not None else None,
    }


def _cells(row: ConversationRow) -> tuple[str, ...]:
    model = _one_line(row.model)
    return str(row.id), _day(row.updated), str(row.message_count), model, _title(row)


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))


def _title(row: ConversationRow) -> str:
    return _one_line(row.title) or "(no title)"


def _named(row: ConversationRow) -> str:
    return f"{row.id} “{_title(row)}”"


def _one_line(text: str) -> str:
    from localspec.text import printable

    return " ".join(printable(text).split())


def _marked(snippet: Snippet) -> str:
    """The snippet with what was found in bold, where a terminal shows it."""
    from localspec.text import printable

    if not sys.stdout.isatty():
        return printable(snippet.text)
    parts, end = [], 0
    for start, stop in snippet.marks:
        parts += [
            printable(snippet.text[end:start]),
            typer.style(printable(snippet.text[start:stop]), bold=True),
        ]
        end = stop
    return "".join([*parts, printable(snippet.text[end:])])


def _count(number: int, what: str, several: str = "") -> str:
    return f"{number} {what if number == 1 else several or f'{what}s'}"
