"""Conversations in SQLite: written as they grow, so that a crash loses nothing that was on the screen."""

from __future__ import annotations

import contextlib
import json
import secrets
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from localspec.chat.database import (
    IN_MEMORY,
    explained,
    explaining,
    open_database,
    open_private,
    open_reading,
    process_mark,
)
from localspec.chat.rows import REMEMBERED, ConversationRow, MessageRow, Role, Status, Tree
from localspec.chat.search import Found, matching_messages, snippet_of, title_matches, words_of
from localspec.chat.search_index import is_index_damage, mend_index
from localspec.chat.statements import (
    ACTIVATE,
    ACTIVE_PATH,
    ADD_CONVERSATION,
    ADD_MESSAGE,
    CONFIGURE,
    CONVERSATION,
    COUNT_CHILDREN,
    LEAF,
    NEWEST_BELOW,
    PUT_CONVERSATION,
    PUT_MESSAGE,
    QUESTIONS,
    SIBLINGS,
    TOUCH,
    TREE_MESSAGES,
    UNTIE,
    UPDATE_MESSAGE,
)
from localspec.errors import StorageError
from localspec.paths import data_dir

__all__ = ["ConversationRow", "Found", "MessageRow", "Role", "Status", "Store", "Tree"]

_GONE = "This conversation was deleted meanwhile; start a new one."


class Store:
    """The database of conversations; several apps may have it open. For the thread that made it.

    Every method raises `StorageError` when the database cannot be read or written (a full disk, say) or when
    another app has deleted the conversation. Replies that are still marked as streaming, but whose process is
    gone, become cancelled when a store is opened.

    Args:
        path: the database file, made where it is missing; None takes the one in the user's data folder.
        private: keep everything in memory alone, and nothing of it once the store is closed.
        read_only: leave a database alone that is there, and cannot or shall not be written.

    Attributes:
        private: whether that is so.
        notice: a sentence for the user when a damaged database was set aside, else None.
    """

    def __init__(self, path: Path | None = None, *, private: bool = False, read_only: bool = False) -> None:
        self.private = private
        self.notice: str | None = None
        if private:
            self.path, self._database = IN_MEMORY, open_private()
            return
        self.path = path or data_dir() / "conversations.db"
        if read_only:
            self._database = open_reading(self.path)
            return
        self._database, self.notice = open_database(self.path)

    def close(self) -> None:
        """Close the database; the store cannot be used afterwards."""
        self._database.close()

    def create(
        self, *, model: str, system_prompt: str = "", title: str = "", settings: str = "{}"
    ) -> ConversationRow:
        """A new, empty conversation."""
        now, uid = time.time(), secrets.token_hex(8)
        with explaining(self.path):
            values = (title, model, system_prompt, now, now, uid, settings)
            cursor = self._database.execute(ADD_CONVERSATION, values)
        return ConversationRow(_new_id(cursor), title, model, now, now, system_prompt, 0, uid, settings)

    def conversations(self, limit: int = 100) -> list[ConversationRow]:
        """The `limit` conversations that were written to last, newest first."""
        with explaining(self.path):
            rows = self._database.execute(
                CONVERSATION + "ORDER BY updated DESC, id DESC LIMIT ?", (limit,)
            ).fetchall()
        return [ConversationRow(*row) for row in rows]

    def latest(self) -> ConversationRow | None:
        """The conversation that was written to last, None when there is none."""
        return next(iter(self.conversations(limit=1)), None)

    def get(self, conversation_id: int) -> ConversationRow | None:
        """One conversation, None when there is none with this id."""
        with explaining(self.path):
            row = self._database.execute(CONVERSATION + "WHERE id = ?", (conversation_id,)).fetchone()
        return ConversationRow(*row) if row else None

    def remembered_as(self, name: str) -> ConversationRow | None:
        """The conversation whose replies are remembered under `name`, None when it is gone."""
        with explaining(self.path):
            uid = name.removeprefix(REMEMBERED)
            row = self._database.execute(CONVERSATION + "WHERE uid = ? AND uid != ''", (uid,)).fetchone()
        return ConversationRow(*row) if row else None

    def search(self, text: str, limit: int = 100) -> list[Found]:
        """The conversations whose title, or one message of which, has all words of `text`.

        Those with the words in the title come first, then by when they were written to; at most `limit`.
        None for a text without words.
        """
        words = words_of(text)
        if not words:
            return []
        try:
            return self._search(words, limit)
        except sqlite3.DatabaseError as error:
            if not is_index_damage(error):
                raise explained(error, self.path) from error
        with explaining(self.path):
            mend_index(self._database)
            return self._search(words, limit)

    def messages(self, conversation_id: int) -> list[MessageRow]:
        """The active branch, oldest first."""
        with explaining(self.path):
            rows = self._database.execute(ACTIVE_PATH, {"conversation": conversation_id}).fetchall()
        return [_message(*row) for row in rows]

    def siblings(self, message_id: int) -> list[MessageRow]:
        """A message and the others in its place, oldest first; none where it is not there."""
        with explaining(self.path):
            rows = self._database.execute(SIBLINGS, (message_id,)).fetchall()
        return [_message(*row) for row in rows]

    def add_message(
        self,
        conversation_id: int,
        role: Role,
        content: str,
        *,
        parent_id: int | None = None,
        after: int | None = None,
        status: Status = "complete",
    ) -> MessageRow:
        """Append a message, which becomes the end of the active branch.

        Args:
            conversation_id: where it belongs.
            role: who says it.
            content: what is said.
            status: whether that is all.
            parent_id: the message that it follows.
            after: the message that it follows at whatever distance: it is appended to the newest one below.
                With neither, it is appended to the active branch.
        """
        now = time.time()
        with self._transaction():
            if parent_id is None and after is not None:
                below = {"conversation": conversation_id, "message": after}
                (parent_id,) = self._database.execute(NEWEST_BELOW, below).fetchone()
            if parent_id is None:
                (parent_id,) = self._database.execute(LEAF, {"conversation": conversation_id}).fetchone()
            return self._insert(conversation_id, parent_id, role, content, status, now)

    def add_sibling(self, message_id: int, content: str, *, status: Status = "complete") -> MessageRow:
        """Another message in the place of one: an edited question, a reply made again.

        The branch that ends with it becomes the active one; everything else is kept.
        """
        asking = "SELECT conversation_id, parent_id, role FROM message WHERE id = ?"
        with self._transaction():
            found = self._database.execute(asking, (message_id,)).fetchone()
            if found is None:
                raise StorageError(_GONE)
            conversation_id, parent_id, role = found
            added = self._insert(conversation_id, parent_id, role, content, status, time.time())
            (count,) = self._database.execute(COUNT_CHILDREN, (conversation_id, parent_id)).fetchone()
        return replace(added, version=count, versions=count)

    def activate(self, message_id: int) -> None:
        """Make the branch of this message the active one, down to the newest message below it."""
        asking = "SELECT conversation_id FROM message WHERE id = ?"
        with self._transaction():
            found = self._database.execute(asking, (message_id,)).fetchone()
            if found is None:
                raise StorageError(_GONE)
            place = {"conversation": found[0], "message": message_id}
            (leaf,) = self._database.execute(NEWEST_BELOW, place).fetchone()
            self._database.execute(ACTIVATE, {**place, "message": leaf})

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
            if self._database.execute(UPDATE_MESSAGE, changes).rowcount == 0:
                raise StorageError(_GONE)
            self._database.execute(TOUCH, {"now": time.time(), "message": message_id})

    def rename(self, conversation_id: int, title: str) -> None:
        """Give a conversation another title."""
        with explaining(self.path):
            self._database.execute("UPDATE conversation SET title = ? WHERE id = ?", (title, conversation_id))

    def configure(self, conversation_id: int, *, system_prompt: str, settings: str) -> None:
        """Change what its replies are made with."""
        with explaining(self.path):
            self._database.execute(CONFIGURE, (system_prompt, settings, conversation_id))

    def questions(self, limit: int, longest: int) -> list[str]:
        """What users asked in the newest `limit` messages of theirs, oldest first and each text once.

        Messages of more than `longest` characters are left out.
        """
        with explaining(self.path):
            rows = self._database.execute(QUESTIONS, (longest, limit)).fetchall()
        return list(dict.fromkeys(text for (text,) in rows))[::-1]

    def delete(self, conversation_id: int) -> None:
        """Delete a conversation with all its messages."""
        with self._transaction():
            # Each message would delete the next one, and SQLite nests that a thousand deep at most.
            self._database.execute(UNTIE, (conversation_id,))
            self._database.execute("DELETE FROM conversation WHERE id = ?", (conversation_id,))

    def tree(self, conversation_id: int) -> Tree | None:
        """A conversation with all its branches, None when there is none with this id."""
        row = self.get(conversation_id)
        if row is None:
            return None
        with explaining(self.path):
            rows = self._database.execute(TREE_MESSAGES, (conversation_id,)).fetchall()
            (active,) = self._database.execute(LEAF, {"conversation": conversation_id}).fetchone()
        return Tree(row, tuple(_message(*one) for one in rows), active)

    def add_trees(self, trees: Iterable[Tree]) -> list[ConversationRow]:
        """Add whole conversations under new ids: all of them or, after an error, none."""
        with self._transaction():
            return [self._put(tree, keep_ids=False) for tree in trees]

    def restore(self, tree: Tree) -> ConversationRow:
        """Bring a deleted conversation back under the ids that it had."""
        with self._transaction():
            return self._put(tree, keep_ids=True)

    # --- inner steps --------------------------------------------------------------------------------

    def _insert(
        self,
        conversation_id: int,
        parent_id: int | None,
        role: Role,
        content: str,
        status: Status,
        now: float,
    ) -> MessageRow:
        writer = process_mark() if status == "streaming" else None
        values = (conversation_id, parent_id, role, content, status, writer, now)
        message_id = _new_id(self._database.execute(ADD_MESSAGE, values))
        self._database.execute(ACTIVATE, {"conversation": conversation_id, "message": message_id})
        self._database.execute(TOUCH, {"now": now, "message": message_id})
        return MessageRow(message_id, conversation_id, parent_id, role, content, status, now)

    def _put(self, tree: Tree, *, keep_ids: bool) -> ConversationRow:
        row = tree.row
        values = (row.title, row.model, row.system_prompt, row.created, row.updated, row.uid, row.settings)
        number = _new_id(self._database.execute(PUT_CONVERSATION, (row.id if keep_ids else None, *values)))
        new_ids: dict[int, int] = {}
        for one in tree.messages:
            # What another app is still writing has no writer here.
            status = "cancelled" if one.status == "streaming" else one.status
            parent = new_ids[one.parent_id] if one.parent_id is not None else None
            stats = None if one.stats is None else json.dumps(one.stats)
            content = (number, parent, one.role, one.content, status, one.created, stats)
            cursor = self._database.execute(PUT_MESSAGE, (one.id if keep_ids else None, *content))
            new_ids[one.id] = _new_id(cursor)
        active = new_ids.get(tree.active) if tree.active is not None else None
        self._database.execute(ACTIVATE, {"conversation": number, "message": active})
        return replace(row, id=number, message_count=len(tree.messages))

    def _search(self, words: list[str], limit: int) -> list[Found]:
        # One state of the database for several questions.
        self._database.execute("BEGIN")
        try:
            hits = matching_messages(self._database, words)
            rows = [ConversationRow(*row) for row in self._database.execute(CONVERSATION)]
            titled = {row.id for row in rows if title_matches(row.title, words)}
            found = [row for row in rows if row.id in titled or row.id in hits]
            found.sort(key=lambda row: (row.id in titled, row.updated, row.id), reverse=True)
            return [self._found(row, hits.get(row.id), words) for row in found[:limit]]
        finally:
            self._rollback()

    def _found(self, row: ConversationRow, hit: tuple[int, int] | None, words: list[str]) -> Found:
        if hit is None:
            return Found(row)
        newest, count = hit
        (content,) = self._database.execute("SELECT content FROM message WHERE id = ?", (newest,)).fetchone()
        return Found(row, count, newest, snippet_of(content, words))

    def _rollback(self) -> None:
        # Some errors, a full disk among them, have ended the transaction already.
        if self._database.in_transaction:
            self._database.rollback()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with explaining(self.path):
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.commit()
            except BaseException as error:
                self._rollback()
                if is_index_damage(error):
                    mend_index(self._database)
                raise


def _message(*row: Any) -> MessageRow:
    id_, conversation_id, parent_id, role, content, status, created, stats, *place = row
    kept = json.loads(stats) if stats else None
    return MessageRow(id_, conversation_id, parent_id, role, content, status, created, kept, *place)


def _new_id(cursor: sqlite3.Cursor) -> int:
    return int(cursor.lastrowid or 0)
