"""The full-text index of messages: made from them, kept by triggers, and dispensable.

A Python whose SQLite lacks FTS5 takes the triggers away, so that it can write, and the next one that has it
makes the index anew: the triggers say whether the index is whole.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Iterator

INDEXED_CHARACTERS = 1_000_000
"""Of a message; words beyond are found by reading, where the index finds nothing."""

_VIEW = f"""
CREATE VIEW message_text AS
SELECT id, substr(content, 1, {INDEXED_CHARACTERS}) AS content FROM message WHERE status != 'streaming'
"""  # noqa: S608 - a number

_TOKENIZE = "tokenize = 'unicode61 remove_diacritics 2'"

_TABLE = f"""
CREATE VIRTUAL TABLE message_index USING fts5 (
    content, content = 'message_text', content_rowid = 'id', {_TOKENIZE}
)
"""

_TAKE_OUT = f"""
INSERT INTO message_index (message_index, rowid, content)
VALUES ('delete', old.id, substr(old.content, 1, {INDEXED_CHARACTERS}))
"""  # noqa: S608

_PUT_IN = f"""
INSERT INTO message_index (rowid, content) VALUES (new.id, substr(new.content, 1, {INDEXED_CHARACTERS}))
"""  # noqa: S608

# A reply is indexed once it is final: while it grows it is written every half second.
_TRIGGERS = {
    "message_index_insert": f"AFTER INSERT ON message WHEN new.status != 'streaming' BEGIN {_PUT_IN}; END",
    "message_index_delete": f"AFTER DELETE ON message WHEN old.status != 'streaming' BEGIN {_TAKE_OUT}; END",
    "message_index_before": (
        f"BEFORE UPDATE OF content, status ON message WHEN old.status != 'streaming' BEGIN {_TAKE_OUT}; END"
    ),
    "message_index_after": (
        f"AFTER UPDATE OF content, status ON message WHEN new.status != 'streaming' BEGIN {_PUT_IN}; END"
    ),
}


def ensure_index(database: sqlite3.Connection) -> None:
    """Make the index where it is missing and can be had; without FTS5, make the database writable."""
    if _whole(database) == has_fts5():
        return
    if has_fts5():
        _try_to_make(database)
    else:
        with _locked(database):
            _drop_triggers(database)


def mend_index(database: sqlite3.Connection) -> None:
    """Make a damaged index anew, or where that cannot be done, go on without it."""
    with _locked(database):
        _drop_triggers(database)
    _try_to_make(database)


def is_index_damage(error: BaseException) -> bool:
    """Whether it is the index alone that is damaged."""
    return getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_CORRUPT_VTAB


def has_index(database: sqlite3.Connection) -> bool:
    """Whether searches can use the index."""
    return has_fts5() and _whole(database)


@functools.cache
def has_fts5() -> bool:
    """Whether this build of SQLite has full-text search, with the tokenizer that is used here."""
    with contextlib.closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute(f"CREATE VIRTUAL TABLE trial USING fts5 (content, {_TOKENIZE})")
        except sqlite3.OperationalError:
            return False
    return True


def _whole(database: sqlite3.Connection) -> bool:
    names = ", ".join(f"'{name}'" for name in _TRIGGERS)
    counting = f"SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name IN ({names})"  # noqa: S608
    (count,) = database.execute(counting).fetchone()
    return bool(count == len(_TRIGGERS))


def _try_to_make(database: sqlite3.Connection) -> None:
    try:
        with _locked(database):
            if not _whole(database):
                _make(database)
    except sqlite3.DatabaseError as error:
        # Some damage keeps SQLite from deleting the index; without triggers it is in nobody's way.
        if not is_index_damage(error):
            raise


def _make(database: sqlite3.Connection) -> None:
    _drop_triggers(database)
    database.execute("DROP TABLE IF EXISTS message_index")
    database.execute("DROP VIEW IF EXISTS message_text")
    database.execute(_VIEW)
    database.execute(_TABLE)
    for name, rule in _TRIGGERS.items():
        database.execute(f"CREATE TRIGGER {name} {rule}")
    database.execute("INSERT INTO message_index (message_index) VALUES ('rebuild')")


def _drop_triggers(database: sqlite3.Connection) -> None:
    for name in _TRIGGERS:
        database.execute(f"DROP TRIGGER IF EXISTS {name}")


@contextlib.contextmanager
def _locked(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.commit()
    except BaseException:
        if database.in_transaction:
            database.rollback()
        raise
