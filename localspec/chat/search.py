"""Searching conversations: titles, and the words of every message in every branch."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from localspec.chat.rows import ConversationRow
from localspec.chat.search_index import has_index

_BEFORE = 24
_LENGTH = 160
"""Characters of a snippet, and how many of them at most stand before what was found."""

_INDEXED = """
SELECT conversation_id, max(message.id), count(*)
FROM message_index JOIN message ON message.id = message_index.rowid
WHERE message_index MATCH ? GROUP BY conversation_id
"""

_READ = """
SELECT conversation_id, max(id), count(*) FROM message WHERE holds_words(content) GROUP BY conversation_id
"""

# Scripts that are written without spaces between words, which the index takes for one word.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A piece of a message on one line; `marks` say from where to where each word that was found stands."""

    text: str
    marks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Found:
    """A conversation that a search has found.

    Attributes:
        row: the conversation.
        messages: how many of its messages have all words; 0 where only the title has them.
        message_id: the newest of these, None where there is none.
        snippet: a piece of that one.
    """

    row: ConversationRow
    messages: int = 0
    message_id: int | None = None
    snippet: Snippet | None = None


def words_of(text: str) -> list[str]:
    """The words of a search: all of them have to be found, wherever they stand."""
    return [word for word in text.replace("\0", " ").split() if word]


def matching_messages(database: sqlite3.Connection, words: Sequence[str]) -> dict[int, tuple[int, int]]:
    """Which conversations have messages with all of these words: the newest such message, and how many.

    The index finds words by their beginning. What it cannot find (parts of words, signs, scripts without
    spaces, or anything where there is no index) is looked for in every message.
    """
    if not words:
        return {}
    found: list[tuple[int, int, int]] = []
    if has_index(database) and not any(_UNSPACED.search(word) for word in words):
        found = database.execute(_INDEXED, (" ".join(map(_queried, words)),)).fetchall()
    if not found:
        wanted = [word.casefold() for word in words]
        database.create_function("holds_words", 1, lambda text: _holds(text, wanted))
        found = database.execute(_READ).fetchall()
    return {conversation: (newest, count) for conversation, newest, count in found}


def title_matches(title: str, words: Sequence[str]) -> bool:
    """Whether a title has all of the words."""
    return bool(words) and _holds(title, [word.casefold() for word in words])


def snippet_of(text: str, words: Sequence[str]) -> Snippet:
    """The piece of a text around the first of the words."""
    longest_first = sorted(words, key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)), re.IGNORECASE)
    first = pattern.search(text)
    start = max(first.start() - _BEFORE, 0) if first else 0
    if start:
        # From the beginning of a word, where one is near.
        space = text.find(" ", start, first.start() if first else start)
        start = space + 1 if space >= 0 else start
    piece = " ".join(text[start : start + _LENGTH].split())
    piece = ("…" if start else "") + piece + ("…" if start + _LENGTH < len(text) else "")
    return Snippet(piece, tuple(match.span() for match in pattern.finditer(piece)))


def _queried(word: str) -> str:
    """A word as FTS5 is asked for it; a single letter begins too many words to be worth it."""
    quoted = '"{}"'.format(word.replace('"', '""'))
    return quoted if len(word) == 1 else f"{quoted}*"


def _holds(text: str, words: Sequence[str]) -> bool:
    folded = text.casefold()
    return all(word in folded for word in words)
