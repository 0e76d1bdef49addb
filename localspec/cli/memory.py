"""`localspec memory`: what is remembered of earlier replies, and how to forget it."""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from localspec.cli import common
from localspec.errors import NotFoundError, StorageError, UsageError

if TYPE_CHECKING:
    from localspec.chat.store import ConversationRow
    from localspec.memory.files import FileStatus
    from localspec.memory.records import Record
    from localspec.settings import Settings

app = typer.Typer(
    help="See, forget and prime what drafts are made from.", no_args_is_help=True, rich_markup_mode=None
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command()
def status(as_json: JsonOption = False) -> None:
    """Show what is remembered, by tokenizer and conversation."""
    from localspec.memory.files import file_status, logs
    from localspec.paths import memory_dir

    settings = _settings()
    files = [file_status(log) for log in logs(memory_dir(), settings.memory.capacity)]
    rows = _rows({one.name for file in files for one in file.conversations})
    if as_json:
        told = {
            "folder": str(memory_dir()),
            "enabled": settings.memory.enabled,
            "capacity": settings.memory.capacity,
            "memories": [_as_json(file, rows) for file in files],
        }
        typer.echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    if not files:
        typer.echo("Nothing is remembered yet.")
    for file in files:
        _show(file, rows)
    if not settings.memory.enabled:
        typer.echo("Replies are not remembered: memory.enabled is false.", err=True)


@app.command()
def path() -> None:
    """Print the folder of the memory, and nothing else."""
    from localspec.paths import memory_dir

    typer.echo(memory_dir().absolute())


@app.command()
def forget(
    conversation: Annotated[
        str | None,
        typer.Option("--conversation", metavar="ID", help="A conversation, as `memory status` shows it."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Everything, of every model.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Forget a conversation or everything; its tokens are gone from the files too."""
    from localspec.memory.files import file_status, logs
    from localspec.paths import memory_dir

    if (conversation is None) is not everything:
        raise UsageError("Say what to forget: --conversation ID or --all.")
    files = logs(memory_dir(), _settings().memory.capacity)
    failure: StorageError | None = None
    gone = 0
    if everything and not yes and files and sys.stdin.isatty():
        typer.confirm("Forget every reply that is remembered?", abort=True, err=True)
    known, name = everything, "" if conversation is None else conversation
    # SQLite's numbers have 63 bits.
    if conversation is not None and conversation.isdecimal() and int(conversation) < 2**63:
        row = _numbered(int(conversation))
        known, name = row is not None, row.memory_name if row else name
    for log in files:
        # One file that cannot be used must not keep the others from being cleared.
        try:
            if everything:
                gone += file_status(log).documents
                log.remove()
            else:
                gone += log.forget(name)
        except StorageError as error:
            failure = failure or error
    if failure is not None:
        raise failure
    if not gone and not known:
        raise NotFoundError(
            f"Nothing is remembered of a conversation {conversation}; see `localspec memory status`."
        )
    if as_json:
        typer.echo(json.dumps({"forgotten": gone}))
    else:
        typer.echo(f"Forgot {_count(gone, 'document')}.")


@app.command()
def compact() -> None:
    """Rewrite the files: drop what is damaged, and the oldest beyond the capacity."""
    from localspec.memory.files import logs
    from localspec.models.disk import readable_size
    from localspec.paths import memory_dir

    failure: StorageError | None = None
    for log in logs(memory_dir(), _settings().memory.capacity):
        # As in `forget`: one file that cannot be used must not keep the others.
        try:
            log.refresh()
            before = log.size
            dropped = log.compact()
        except StorageError as error:
            failure = failure or error
            continue
        sizes = f"{readable_size(before)} before, {readable_size(log.size)} now"
        typer.echo(f"{log.path}: {sizes}, {_count(dropped, 'document')} dropped")
    if failure is not None:
        raise failure


@app.command("import")
def import_files(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Texts or code, as UTF-8.")],
    model: common.ModelOption = None,
    debug: common.DebugOption = False,  # noqa: ARG001 - its callback has done all there is to do
) -> None:
    """Remember texts of your own, so that replies that repeat them are drafted from them.

    A file that is imported again takes the place of its older text.
    """
    from localspec.memory.files import import_name, log_path
    from localspec.memory.log import TokenLog
    from localspec.models.gguf import read_header
    from localspec.paths import memory_dir
    from localspec.runtime.vocabulary import vocabulary

    texts = {file: _text(file) for file in files}
    settings = _settings(model)
    model_path = _model_path(settings)
    fingerprint = read_header(model_path).fingerprint
    if not fingerprint:
        raise UsageError(f"{model_path} has no vocabulary, so that it cannot make tokens of a text.")
    capacity = settings.memory.capacity
    with vocabulary(model_path) as loaded:
        named = {import_name(file): _records(import_name(file), text, loaded) for file, text in texts.items()}
    total = sum(len(record.tokens) for records in named.values() for record in records)
    if total > capacity:
        raise UsageError(
            f"These texts have {total} tokens and the memory holds {capacity}; import less, or raise "
            "memory.capacity in config.toml."
        )
    log = TokenLog(log_path(memory_dir(), fingerprint), fingerprint, capacity)
    for name, records in named.items():
        log.forget(name)
        log.append(records)
        documents, tokens = _count(len(records), "document"), sum(len(record.tokens) for record in records)
        typer.echo(f"{name}: {documents}, {tokens} tokens")


def _settings(model: str | None = None) -> Settings:
    from localspec import settings

    return settings.merge(settings.load_settings(), model=model)


def _text(file: Path) -> str:
    text = common.read_text(file, "file")
    if "\0" in text:
        raise UsageError(f"{file} is binary, not text; give UTF-8 text or code.")
    if not text.strip():
        raise UsageError(f"{file} is empty; give a file with some text.")
    return text


def _records(name: str, text: str, loaded: Any) -> list[Record]:
    """The documents of one text."""
    import numpy as np

    from localspec.memory.files import pieces
    from localspec.memory.records import IMPORT, Record

    now = time.time()
    # Control tokens that are written out in a text are text here.
    tokens = (loaded.tokenize(piece, add_special=False, parse_special=False) for piece in pieces(text))
    return [Record(np.asarray(ids, np.int32), name, now, IMPORT) for ids in tokens]


def _model_path(settings: Settings) -> Path:
    from localspec.cli.models import progress_display
    from localspec.model_choice import resolve
    from localspec.models.sources import pull

    found = resolve(settings.model)
    if found.path is not None or found.entry is None:
        return Path(found.path or found.name)
    typer.echo(f"Fetching {found.name}.", err=True)
    with progress_display() as show_progress:
        return pull(found.entry, show_progress)


def _rows(names: set[str]) -> dict[str, ConversationRow]:
    """The conversations that these names stand for, as far as they are still kept."""
    from localspec.chat.store import Store
    from localspec.paths import data_dir

    chats = [name for name in names if name.startswith("chat-")]
    if not chats or not (data_dir() / "conversations.db").exists():
        return {}
    with closing(Store()) as store:
        rows = {name: store.remembered_as(name) for name in chats}
    return {name: row for name, row in rows.items() if row is not None}


def _numbered(number: int) -> ConversationRow | None:
    """The conversation that the app shows with this number."""
    from localspec.chat.store import Store
    from localspec.paths import data_dir

    if not (data_dir() / "conversations.db").exists():
        return None
    with closing(Store()) as store:
        return store.get(number)


def _as_json(file: FileStatus, rows: dict[str, ConversationRow]) -> dict[str, Any]:
    return {
        "path": str(file.path),
        "fingerprint": file.fingerprint,
        "documents": file.documents,
        "tokens": file.tokens,
        "bytes": file.bytes,
        "problem": file.problem,
        "conversations": [
            {
                "id": str(rows[one.name].id) if one.name in rows else one.name,
                "name": one.name,
                "title": rows[one.name].title if one.name in rows else None,
                "documents": one.documents,
                "tokens": one.tokens,
                "oldest": one.oldest,
                "newest": one.newest,
            }
            for one in file.conversations
        ],
    }


def _show(file: FileStatus, rows: dict[str, ConversationRow]) -> None:
    from localspec.cli.models import print_table
    from localspec.models.disk import readable_size
    from localspec.text import printable

    typer.echo(str(file.path))
    size = readable_size(file.bytes)
    typer.echo(f"{_count(file.documents, 'document')}, {file.tokens} tokens, {size}")
    if file.problem is not None:
        typer.echo(f"problem: {file.problem}")
    if not file.conversations:
        return
    table = [("ID", "DOCUMENTS", "TOKENS", "LAST", "TITLE")]
    for one in file.conversations:
        row = rows.get(one.name)
        last = time.strftime("%Y-%m-%d %H:%M", time.localtime(one.newest))
        title = printable(row.title) if row else ""
        shown = str(row.id) if row else printable(one.name)
        table.append((shown, str(one.documents), str(one.tokens), last, title))
    print_table(table)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
