"""The database file of conversations: opening, migrating, setting a damaged one aside, explaining errors."""

from __future__ import annotations

import contextlib
import functools
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from localspec.chat.search_index import ensure_index, is_index_damage, mend_index
from localspec.errors import StorageError
from localspec.paths import ensure

VERSION = 4
BUSY_SECONDS = 3.0
IN_MEMORY = Path(":memory:")

# A message belongs to its parent's conversation: the pair is the foreign key. Ids are never used again, so
# that a second app cannot write into a conversation that took the place of a deleted one.
_SCHEMA = """
CREATE TABLE conversation (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    title TEXT NOT NULL,
    model TEXT NOT NULL,
    system_prompt TEXT NOT NULL,
    created REAL NOT NULL,
    updated REAL NOT NULL
);
CREATE INDEX conversation_updated ON conversation (updated);
CREATE TABLE message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id INTEGER NOT NULL REFERENCES conversation (id) ON DELETE CASCADE,
    parent_id INTEGER,
    role TEXT NOT NULL CHECK (role IN ('system', 'user', 'assistant')),
    content TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('streaming', 'complete', 'cancelled', 'failed')),
    writer TEXT,
    created REAL NOT NULL,
    stats TEXT,
    UNIQUE (conversation_id, id),
    FOREIGN KEY (conversation_id, parent_id) REFERENCES message (conversation_id, id) ON DELETE CASCADE
);
CREATE INDEX message_parent ON message (conversation_id, parent_id);
CREATE INDEX message_streaming ON message (writer) WHERE status = 'streaming';
"""

# What a conversation is remembered under: the number is unique in one database only.
_UID = """
ALTER TABLE conversation ADD COLUMN uid TEXT NOT NULL DEFAULT '';
UPDATE conversation SET uid = lower(hex(randomblob(8)))
"""

# The last message of the branch that is shown; until now that was the newest one.
_ACTIVE = """
ALTER TABLE conversation ADD COLUMN active_id INTEGER;
UPDATE conversation SET active_id = (SELECT max(id) FROM message WHERE conversation_id = conversation.id);
CREATE INDEX conversation_uid ON conversation (uid)
"""

# How its replies are made, where a conversation has a way of its own.
_SETTINGS = "ALTER TABLE conversation ADD COLUMN settings TEXT NOT NULL DEFAULT '{}'"

MIGRATIONS = (_SCHEMA, _UID, _ACTIVE, _SETTINGS)
"""Script number n brings a database from version n to n + 1."""

_END_STREAMS = (
    "UPDATE message SET status = 'cancelled', writer = NULL WHERE status = 'streaming' AND writer IS ?"
)


def open_database(path: Path) -> tuple[sqlite3.Connection, str | None]:
    """Open the database, making or mending what is needed.

    Returns:
        The connection, in autocommit mode, and a sentence for the user where a damaged file was set aside.

    Raises:
        StorageError: the folder or the file cannot be used.
    """
    ensure(path.parent)
    before = _identity(path)
    try:
        return _open(path), None
    except sqlite3.Error as error:
        if not _is_damage(error):
            raise explained(error, path) from error
    notice = None
    # Unless another app has just put a new file in its place.
    if _identity(path) == before:
        aside = _set_aside(path)
        notice = (
            f"The conversations could not be read: the damaged file is kept as {aside}, a new one was made."
        )
    with explaining(path):
        return _open(path), notice


def open_private() -> sqlite3.Connection:
    """A database in memory: nothing of it reaches a disk."""
    database = _open(IN_MEMORY)
    database.execute("PRAGMA temp_store = MEMORY")
    return database


def open_reading(path: Path) -> sqlite3.Connection:
    """The database as it is, to be read alone: the folder need not be writable.

    Raises:
        StorageError: it cannot be read, or another version of localspec has written it.
    """
    log = path.with_name(f"{path.name}-wal")
    # Without a log of changes SQLite needs no files beside the database.
    whole = not log.exists() or log.stat().st_size == 0
    address = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if whole else ''}"
    with explaining(path):
        database = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            version = _version(database)
        except BaseException:
            database.close()
            raise
    if version != VERSION:
        database.close()
        raise StorageError(
            f"Another version of localspec has written {path}; make it writable, so that it can be converted."
        )
    return database


@contextlib.contextmanager
def explaining(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into `StorageError`."""
    try:
        yield
    except sqlite3.Error as error:
        raise explained(error, path) from error


def explained(error: sqlite3.Error, path: Path) -> StorageError:
    """The error in a sentence that says what to do."""
    code = getattr(error, "sqlite_errorcode", 0)
    primary = code & 0xFF
    if code == sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
        return StorageError("This conversation was deleted meanwhile; start a new one.")
    if primary == sqlite3.SQLITE_FULL:
        return StorageError(f"There is no space left for {path}; free some and try again.")
    if primary in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StorageError(
            f"Cannot write to {path}; make it writable or set LOCALSPEC_HOME to a folder that is."
        )
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StorageError(f"{path} is locked by another program; close that one and try again.")
    if is_index_damage(error):
        return StorageError(f"The search index in {path} was damaged and has been mended; try again.")
    if _is_damage(error):
        return StorageError(f"The database {path} is damaged; move it away to start with a new one.")
    return StorageError(
        f"The database {path} cannot be used ({error}); set LOCALSPEC_HOME to another folder."
    )


@functools.lru_cache(maxsize=1)
def process_mark() -> str:
    """This process as `number:start`, which no later process shares."""
    import psutil

    return f"{os.getpid()}:{psutil.Process().create_time():.2f}"


def _is_alive(mark: str | None) -> bool:
    """Whether the process of this mark still runs."""
    import psutil

    pid, _, started = (mark or "").partition(":")
    try:
        # The start is derived from the system's clock, which may have been set meanwhile.
        return abs(psutil.Process(int(pid)).create_time() - float(started)) < 5.0
    except (psutil.Error, ValueError):
        return False


def _open(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        database.execute("PRAGMA foreign_keys = ON")
        _enter_wal(database)
        # With a write-ahead log the death of a process loses nothing at this level, only a power cut may.
        database.execute("PRAGMA synchronous = NORMAL")
        _migrate(database, path)
        ensure_index(database)
        _end_abandoned_streams(database)
    except BaseException:
        database.close()
        raise
    return database


def _enter_wal(database: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; SQLite does not wait by itself while another app does the same."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _migrate(database: sqlite3.Connection, path: Path) -> None:
    version = _version(database)
    if version > VERSION:
        raise StorageError(
            f"A newer localspec has written {path}; upgrade this one, or set another LOCALSPEC_HOME."
        )
    if version == VERSION:
        return
    database.execute("BEGIN IMMEDIATE")
    try:
        # Read again under the lock: another app may have been quicker.
        for script in MIGRATIONS[_version(database) :]:
            for statement in script.split(";"):
                database.execute(statement)
        database.execute(f"PRAGMA user_version = {VERSION}")
    except BaseException:
        database.rollback()
        raise
    database.commit()


def _version(database: sqlite3.Connection) -> int:
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def _end_abandoned_streams(database: sqlite3.Connection) -> None:
    """Mark replies as cancelled whose writer is gone; a live app's own are left alone."""
    writers = database.execute("SELECT DISTINCT writer FROM message WHERE status = 'streaming'").fetchall()
    gone = [(writer,) for (writer,) in writers if not _is_alive(writer)]
    if not gone:
        return
    try:
        database.executemany(_END_STREAMS, gone)
    except sqlite3.DatabaseError as error:
        if not is_index_damage(error):
            raise
        mend_index(database)
        database.executemany(_END_STREAMS, gone)


def _is_damage(error: sqlite3.Error) -> bool:
    primary = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return primary in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT)


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _set_aside(path: Path) -> Path:
    moment = time.strftime("%Y%m%d-%H%M%S")
    aside = path.with_name(f"{path.name}.broken-{moment}")
    number = 1
    while aside.exists():
        number += 1
        aside = path.with_name(f"{path.name}.broken-{moment}-{number}")
    try:
        # The log belongs to the file: it is kept beside it, and must not be replayed into the new one.
        for suffix in ("-wal", "-shm"):
            log = path.with_name(path.name + suffix)
            if log.exists():
                log.replace(aside.with_name(aside.name + suffix))
        path.replace(aside)
    except OSError as error:
        raise StorageError(
            f"The database {path} is damaged and cannot be renamed ({error.strerror}); move it away yourself."
        ) from error
    return aside
