"""Conversations in SQLite: written as they grow, so that a crash loses nothing that was on the screen."""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from localspec.chat.database import IN_MEMORY, explaining, open_database, open_private, process_mark
from localspec.errors import StorageError
from localspec.paths import data_dir

Role = Literal["system", "user", "assistant"]
Status = Literal["streaming", "complete", "cancelled", "failed"]

_REMEMBERED = "chat-"

_CONVERSATION = """
SELECT id, title, model, created, updated, system_prompt,
    (SELECT count(*) FROM message WHERE conversation_id = conversation.id), uid
FROM conversation
"""

# The newest message is always a leaf, so the active path is the way from it to its root.
_ACTIVE_PATH = """
WITH RECURSIVE path (id, parent_id, depth) AS (
    SELECT id, parent_id, 0 FROM message
    WHERE id = (SELECT max(id) FROM message WHERE conversation_id = ?)
    UNION ALL
    SELECT message.id, message.parent_id, depth + 1 FROM path JOIN message ON message.id = path.parent_id
)
SELECT message.id, conversation_id, message.parent_id, role, content, status, created, stats
FROM path JOIN message ON message.id = path.id ORDER BY depth DESC
"""

_ADD_CONVERSATION = """
INSERT INTO conversation (title, model, system_prompt, created, updated, uid) VALUES (?, ?, ?, ?, ?, ?)
"""

_ADD_MESSAGE = """
INSERT INTO message (conversation_id, parent_id, role, content, status, writer, created)
VALUES (?, ?, ?, ?, ?, ?, ?)
"""

# What is given is changed; the writer follows the status.
_UPDATE_MESSAGE = """
UPDATE message SET
    content = coalesce(:content, content),
    writer = CASE WHEN :status IS NULL THEN writer ELSE :writer END,
    status = coalesce(:status, status),
    stats = coalesce(:stats, stats)
WHERE id = :id
"""

_TOUCH = """
UPDATE conversation SET updated = :now WHERE id = (SELECT conversation_id FROM message WHERE id = :message)
"""


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """One conversation; `created` and `updated` are Unix times in seconds, `uid` is unique anywhere."""

    id: int
    title: str
    model: str
    created: float
    updated: float
    system_prompt: str
    message_count: int
    uid: str

    @property
    def memory_name(self) -> str:
        """What its replies are remembered under; empty where an older localspec has made the row."""
        return f"{_REMEMBERED}{self.uid}" if self.uid else ""


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message; `created` is a Unix time in seconds, `stats` the JSON object that was kept with it."""

    id: int
    conversation_id: int
    parent_id: int | None
    role: Role
    content: str
    status: Status
    created: float
    stats: dict[str, Any] | None


class Store:
    """The database of conversations; several apps may have it open. For the thread that made it.

    Every method raises `StorageError` when the database cannot be read or written (a full disk, say) or when
    another app has deleted the conversation. Replies that are still marked as streaming, but whose process is
    gone, become cancelled when a store is opened.

    Args:
        path: the database file, made where it is missing; None takes the one in the user's data folder.
        private: keep everything in memory alone, and nothing of it once the store is closed.

    Attributes:
        private: whether that is so.
        notice: a sentence for the user when a damaged database was set aside, else None.
    """

    def __init__(self, path: Path | None = None, *, private: bool = False) -> None:
        self.private = private
        self.notice: str | None = None
        if private:
            self.path, self._database = IN_MEMORY, open_private()
            return
        self.path = path or data_dir() / "conversations.db"
        self._database, self.notice = open_database(self.path)

    def close(self) -> None:
        """Close the database; the store cannot be used afterwards."""
        self._database.close()

    def create(self, *, model: str, system_prompt: str = "", title: str = "") -> ConversationRow:
        """A new, empty conversation."""
        now, uid = time.time(), secrets.token_hex(8)
        with explaining(self.path):
            cursor = self._database.execute(_ADD_CONVERSATION, (title, model, system_prompt, now, now, uid))
        return ConversationRow(_new_id(cursor), title, model, now, now, system_prompt, 0, uid)

    def conversations(self, limit: int = 100) -> list[ConversationRow]:
        """The `limit` conversations that were written to last, newest first."""
        with explaining(self.path):
            rows = self._database.execute(
                _CONVERSATION + "ORDER BY updated DESC, id DESC LIMIT ?", (limit,)
            ).fetchall()
        return [ConversationRow(*row) for row in rows]

    def latest(self) -> ConversationRow | None:
        """The conversation that was written to last, None when there is none."""
        return next(iter(self.conversations(limit=1)), None)

    def get(self, conversation_id: int) -> ConversationRow | None:
        """One conversation, None when there is none with this id."""
        with explaining(self.path):
            row = self._database.execute(_CONVERSATION + "WHERE id = ?", (conversation_id,)).fetchone()
        return ConversationRow(*row) if row else None

    def remembered_as(self, name: str) -> ConversationRow | None:
        """The conversation whose replies are remembered under `name`, None when it is gone."""
        with explaining(self.path):
            uid = name.removeprefix(_REMEMBERED)
            row = self._database.execute(_CONVERSATION + "WHERE uid = ? AND uid != ''", (uid,)).fetchone()
        return ConversationRow(*row) if row else None

    def messages(self, conversation_id: int) -> list[MessageRow]:
        """The active path, oldest first: from the first message to the newest one."""
        with explaining(self.path):
            rows = self._database.execute(_ACTIVE_PATH, (conversation_id,)).fetchall()
        return [_message(*row) for row in rows]

    def add_message(
        self,
        conversation_id: int,
        role: Role,
        content: str,
        *,
        parent_id: int | None = None,
        status: Status = "complete",
    ) -> MessageRow:
        """Append a message to the newest one, or to `parent_id`, which makes that branch the active path."""
        now = time.time()
        writer = process_mark() if status == "streaming" else None
        with self._transaction():
            if parent_id is None:
                newest = "SELECT max(id) FROM message WHERE conversation_id = ?"
                (parent_id,) = self._database.execute(newest, (conversation_id,)).fetchone()
            cursor = self._database.execute(
                _ADD_MESSAGE, (conversation_id, parent_id, role, content, status, writer, now)
            )
            message_id = _new_id(cursor)
            self._database.execute(_TOUCH, {"now": now, "message": message_id})
        return MessageRow(message_id, conversation_id, parent_id, role, content, status, now, None)

    def update_message(
        self,
        message_id: int,
        *,
        content: str | None = None,
        status: Status | None = None,
        stats: dict[str, Any] | None = None,
    ) -> None:
        """Change what is given of a message; the rest stays."""
        changes = {
            "id": message_id,
            "content": content,
            "status": status,
            "writer": process_mark() if status == "streaming" else None,
            "stats": None if stats is None else json.dumps(stats),
        }
        with self._transaction():
            if self._database.execute(_UPDATE_MESSAGE, changes).rowcount == 0:
                raise StorageError("This conversation was deleted meanwhile; start a new one.")
            self._database.execute(_TOUCH, {"now": time.time(), "message": message_id})

    def rename(self, conversation_id: int, title: str) -> None:
        """Give a conversation another title."""
        with explaining(self.path):
            self._database.execute("UPDATE conversation SET title = ? WHERE id = ?", (title, conversation_id))

    def delete(self, conversation_id: int) -> None:
        """Delete a conversation with all its messages."""
        with explaining(self.path):
            self._database.execute("DELETE FROM conversation WHERE id = ?", (conversation_id,))

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with explaining(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.commit()
            except BaseException:
                # Some errors, a full disk among them, have ended the transaction already.
                if self._database.in_transaction:
                    self._database.rollback()
                raise


def _message(*row: Any) -> MessageRow:
    id_, conversation_id, parent_id, role, content, status, created, stats = row
    kept = json.loads(stats) if stats else None
    return MessageRow(id_, conversation_id, parent_id, role, content, status, created, kept)


def _new_id(cursor: sqlite3.Cursor) -> int:
    return int(cursor.lastrowid or 0)
