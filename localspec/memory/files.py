"""The files of a memory folder from outside: what each holds, and texts of the user's own for them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import StorageError
from localspec.memory.log import TokenLog
from localspec.types import MEMORY_CAPACITY

_SUFFIX = ".tokens"
_PIECE = 16_000
"""Characters of an imported document at most: documents are dropped whole, and no draft spans two of them."""


@dataclass(frozen=True, slots=True)
class ConversationStatus:
    """What is remembered of one conversation; times are Unix times in seconds."""

    name: str
    documents: int
    tokens: int
    oldest: float
    newest: float


@dataclass(frozen=True, slots=True)
class FileStatus:
    """What one tokenizer's memory holds; `problem` says why it cannot be used, or what is damaged in it."""

    path: Path
    fingerprint: str
    documents: int
    tokens: int
    bytes: int
    conversations: tuple[ConversationStatus, ...]
    problem: str | None


def log_path(folder: Path, fingerprint: str) -> Path:
    """The file of one tokenizer's memory."""
    return folder / f"{fingerprint}{_SUFFIX}"


def logs(folder: Path, capacity: int = MEMORY_CAPACITY) -> list[TokenLog]:
    """Every memory in `folder`; none where there is no such folder."""
    return [TokenLog(path, path.name.removesuffix(_SUFFIX), capacity) for path in _files(folder)]


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob(f"*{_SUFFIX}"))
    except OSError as error:
        raise StorageError(
            f"Cannot read the folder {folder} ({error.strerror}); make it readable."
        ) from error


def file_status(log: TokenLog) -> FileStatus:
    """What the memory of `log` holds, the conversations that were written to last first."""
    problem: str | None = None
    found: dict[str, ConversationStatus] = {}
    try:
        for record in log.reread().records:
            name, count, time = record.conversation, len(record.tokens), record.time
            known = found.get(name, ConversationStatus(name, 0, 0, time, time))
            found[name] = ConversationStatus(
                name,
                known.documents + 1,
                known.tokens + count,
                min(known.oldest, time),
                max(known.newest, time),
            )
    except StorageError as error:
        problem = str(error)
    if log.skipped:
        problem = f"{log.skipped} damaged bytes are left out; `localspec memory compact` clears them."
    conversations = sorted(found.values(), key=lambda one: one.newest, reverse=True)
    return FileStatus(
        path=log.path,
        fingerprint=log.fingerprint,
        documents=sum(one.documents for one in conversations),
        tokens=sum(one.tokens for one in conversations),
        bytes=log.size,
        conversations=tuple(conversations),
        problem=problem,
    )


def import_name(path: Path) -> str:
    """What a file's text is remembered under: the same file again takes the place of its older text."""
    mark = hashlib.blake2b(str(path.resolve()).encode("utf-8", "surrogateescape"), digest_size=4).hexdigest()
    name = path.name.encode("utf-8", "replace").decode()[:40]
    return f"import-{mark}-{name}"


def pieces(text: str) -> Iterator[str]:
    """A text in documents of moderate size, cut at blank lines, else at line ends, else anywhere."""
    start = 0
    while len(text) - start > _PIECE:
        limit = start + _PIECE
        # Not in the first half: a text with one early blank line would fall into crumbs.
        cuts = (text.rfind(end, start + _PIECE // 2, limit) + len(end) for end in ("\n\n", "\n"))
        cut = next((place for place in cuts if place > start + _PIECE // 2), limit)
        yield text[start:cut]
        start = cut
    if text[start:].strip():
        yield text[start:]
