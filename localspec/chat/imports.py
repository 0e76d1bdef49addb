"""Reading conversations from files: our own JSON, ChatGPT's export, and plain lists of roles and contents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from localspec.chat.chatgpt import is_chatgpt, read_chatgpt
from localspec.chat.export import FORMAT, VERSION
from localspec.chat.parts import DamageError, moment, text_of, word
from localspec.chat.rows import (
    ROLES,
    STATUSES,
    ConversationRow,
    MessageRow,
    Role,
    Status,
    Tree,
    Wishes,
    title_of,
)
from localspec.errors import NotFoundError, UsageError

MOST_BYTES = 512 << 20
"""A file of more is not read."""

_SHAPES = "our own export, ChatGPT's conversations.json, or a list of messages with role and content"


def read_trees(path: Path) -> list[Tree]:
    """The conversations in a file.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it cannot be read, is too large, is damaged, or is of none of the kinds that are known.
    """
    try:
        # A device may have no end.
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise UsageError(f"{path} is too large: at most {MOST_BYTES >> 20} MiB are read. Split it.")
        text = content.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no file {path}; check the path.") from error
    except OSError as error:
        raise UsageError(f"Cannot read {path} ({error.strerror}); make it readable.") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text, so it is no export of conversations.") from error
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{path} is damaged or not JSON ({error}); export it again. Nothing was imported."
        ) from error
    try:
        trees = parsed(data)
    except DamageError as error:
        raise UsageError(f"{path} is damaged ({error}); nothing was imported.") from error
    if trees is None:
        raise UsageError(f"{path} is no export of conversations; give {_SHAPES}.")
    return trees


def parsed(data: Any) -> list[Tree] | None:
    """The conversations in a JSON value, None where it is of no known kind; raises `DamageError`."""
    if isinstance(data, dict) and data.get("format") == FORMAT:
        version = data.get("version")
        if not isinstance(version, int) or version > VERSION:
            raise DamageError(f"its version is {version}: a newer localspec has written it")
        return [
            _ours(one, f"conversation {number}") for number, one in enumerate(_list(data, "conversations"), 1)
        ]
    several = data if isinstance(data, list) else [data]
    if several and all(map(is_chatgpt, several)):
        return [read_chatgpt(one, f"conversation {number}") for number, one in enumerate(several, 1)]
    if several and all(isinstance(one, dict) and "role" in one for one in several):
        return [_plain({"messages": several}, "the list")]
    if several and all(isinstance(one, dict) and isinstance(one.get("messages"), list) for one in several):
        return [_plain(one, f"conversation {number}") for number, one in enumerate(several, 1)]
    return None


def contents_mark(tree: Tree) -> str:
    """A name made of all that is said in a tree, whatever its ids, title and active branch."""
    place = {message.id: number for number, message in enumerate(tree.messages)}
    said = [
        (place[one.parent_id] if one.parent_id is not None else -1, one.role, one.content)
        for one in tree.messages
    ]
    return _hashed([tree.row.system_prompt, said])


def _ours(data: Any, where: str) -> Tree:
    if not isinstance(data, dict):
        raise DamageError(f"{where} is not an object")
    messages: list[MessageRow] = []
    known: set[int] = set()
    for number, one in enumerate(_list(data, "messages", where), 1):
        message = _message(one, f"message {number} of {where}")
        if message.id in known or (message.parent_id is not None and message.parent_id not in known):
            raise DamageError(f"message {number} of {where} does not follow one before it")
        known.add(message.id)
        messages.append(message)
    active = data.get("active")
    if not isinstance(active, int) or active not in known:
        active = messages[-1].id if messages else None
    row = ConversationRow(
        id=0,
        title=word(data, "title", where),
        model=word(data, "model", where),
        created=moment(data.get("created")),
        updated=moment(data.get("updated")),
        system_prompt=word(data, "system_prompt", where),
        message_count=len(messages),
        uid=word(data, "uid", where),
        settings=Wishes.of(word(data, "settings", where)).kept,
    )
    return Tree(row, tuple(messages), active)


def _message(data: Any, where: str) -> MessageRow:
    if not isinstance(data, dict):
        raise DamageError(f"{where} is not an object")
    number, parent, stats = data.get("id"), data.get("parent"), data.get("stats")
    whole = isinstance(number, int) and (parent is None or isinstance(parent, int))
    if not whole or not (stats is None or isinstance(stats, dict)):
        raise DamageError(f"{where} has no id, or stats of another kind")
    status = data.get("status", "complete")
    if data.get("role") not in ROLES or status not in STATUSES:
        raise DamageError(f"{where} has a role or a status that is not known")
    content = word(data, "content", where, needed=True)
    return MessageRow(
        id=cast("int", number),
        conversation_id=0,
        parent_id=parent,
        role=cast("Role", data["role"]),
        content=content,
        status=cast("Status", status),
        created=moment(data.get("created")),
        stats=stats,
    )


def _plain(data: dict[str, Any], where: str) -> Tree:
    """A chat as programs keep it: messages in their order, with roles and contents."""
    messages: list[MessageRow] = []
    system: list[str] = []
    created = moment(data.get("created"))
    for number, one in enumerate(data["messages"], 1):
        if not isinstance(one, dict) or "role" not in one:
            raise DamageError(f"message {number} of {where} has no role")
        role, text = one["role"], text_of(one.get("content"))
        if role in ("system", "developer") and not messages:
            system.append(text)
        elif role in ("user", "assistant") and text:
            parent = messages[-1].id if messages else None
            messages.append(MessageRow(number, 0, parent, cast("Role", role), text, "complete", created))
        elif role not in ("system", "developer", "tool", "function", "user", "assistant"):
            raise DamageError(f"message {number} of {where} has the unknown role {role!r}")
    first = next((message.content for message in messages if message.role == "user"), "")
    prompt = "\n\n".join(system)
    row = ConversationRow(
        id=0,
        title=word(data, "title", where) or title_of(first),
        model=word(data, "model", where),
        created=created,
        updated=created,
        system_prompt=prompt,
        message_count=len(messages),
        uid="",
    )
    tree = Tree(row, tuple(messages), messages[-1].id if messages else None)
    # So that the same file again is known as such.
    return replace(tree, row=replace(row, uid=contents_mark(tree)))


def _hashed(value: Any) -> str:
    return hashlib.blake2b(json.dumps(value).encode(), digest_size=8).hexdigest()


def _list(data: dict[str, Any], key: str, where: str = "it") -> Iterable[Any]:
    found = data.get(key)
    if not isinstance(found, list):
        raise DamageError(f"{where} has no list of {key}")
    return found
