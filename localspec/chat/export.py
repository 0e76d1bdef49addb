"""Conversations as JSON, which `imports` reads again, and as Markdown for people."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any

from localspec.chat.rows import MessageRow, Tree
from localspec.chat.thinking import opening_in, reasoning_of
from localspec.text import printable

FORMAT = "localspec-conversations"
VERSION = 1

_LONGEST_NAME = 50

# What JSON may leave as it is, and a terminal should not see: DEL, C1, and what reorders text.
_UNSAFE = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def as_json(trees: Iterable[Tree]) -> str:
    """Every branch of these conversations, with what was measured; safe to print."""
    return safe_json(
        {"format": FORMAT, "version": VERSION, "conversations": [_as_object(one) for one in trees]}
    )


def safe_json(value: Any) -> str:
    """A value as indented JSON that holds no control characters, however it came by them."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def as_markdown(trees: Sequence[Tree]) -> str:
    """These conversations for people: the branch that is shown first, then what stands beside it.

    Reasoning is folded where Markdown is shown as a page, and quoted elsewhere; JSON keeps it as it was said.
    """
    return "\n---\n\n".join(_one_as_markdown(tree) for tree in trees)


def file_name(tree: Tree, suffix: str) -> str:
    """A name for an exported conversation that every system takes, such as `12-about-bread.md`."""
    words = re.sub(r"[^\w]+", "-", tree.row.title.lower())[:_LONGEST_NAME].strip("-_")
    return f"{tree.row.id}-{words or 'chat'}.{suffix}"


def _as_object(tree: Tree) -> dict[str, Any]:
    row = tree.row
    return {
        "id": row.id,
        "uid": row.uid,
        "title": row.title,
        "model": row.model,
        "system_prompt": row.system_prompt,
        "settings": row.settings,
        "created": row.created,
        "updated": row.updated,
        "active": tree.active,
        "messages": [
            {
                "id": one.id,
                "parent": one.parent_id,
                "role": one.role,
                "content": one.content,
                "status": one.status,
                "created": one.created,
                "stats": one.stats,
            }
            for one in tree.messages
        ],
    }


def _one_as_markdown(tree: Tree) -> str:
    row = tree.row
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.created))
    parts = [f"# {_line(row.title) or '(no title)'}", f"{day} · {_line(row.model)} · conversation {row.id}"]
    if row.system_prompt:
        parts.append("**System prompt**\n\n" + _quoted(row.system_prompt))
    path = tree.path
    for number, message in enumerate(path, 1):
        parts += [f"## {number}. {_speaker(tree, message)}", _body(message)]
    others = _others(tree, path)
    if others:
        parts += ["## Other branches", *others]
    return "\n\n".join(parts) + "\n"


def _others(tree: Tree, path: Sequence[MessageRow]) -> list[str]:
    """What is not in the branch that is shown, each branch where it begins."""
    number_of: dict[int | None, int] = {message.id: number for number, message in enumerate(path, 1)}
    number_of[None] = 0
    children: dict[int | None, list[MessageRow]] = {}
    for message in tree.messages:
        children.setdefault(message.parent_id, []).append(message)
    parts: list[str] = []
    for message in tree.messages:
        if message.id in number_of or message.parent_id not in number_of:
            continue
        number = number_of[message.parent_id] + 1
        place = f"Instead of {number}" if number <= len(path) else f"After {number - 1}"
        parts += [f"### {place}: {_speaker(tree, message)}", _body(message)]
        # Depth first, without recursion: a branch may be thousands of messages long.
        below = children.get(message.id, [])[::-1]
        while below:
            one = below.pop()
            parts += [f"#### {_speaker(tree, one)}", _body(one)]
            below += children.get(one.id, [])[::-1]
    return parts


def _speaker(tree: Tree, message: MessageRow) -> str:
    if message.role == "assistant":
        return _line(str((message.stats or {}).get("model") or tree.row.model)) or "Assistant"
    return "You" if message.role == "user" else "System"


def _body(message: MessageRow) -> str:
    """What a message says; its reasoning is folded, and quoted, so that its marks do not reach beyond."""
    parts: list[str] = []
    text = message.content
    if message.role == "assistant":
        reasoning = reasoning_of(text, opening_in(message.stats))
        text, last = reasoning.answer, len(reasoning.blocks) - 1
        for number, block in enumerate(reasoning.blocks):
            if block.strip():
                stopped = reasoning.thinking and number == last
                parts.append(_folded("Reasoning, not to the end" if stopped else "Reasoning", block))
    parts.append(printable(text).strip())
    if message.status != "complete":
        parts.append("*(failed)*" if message.status == "failed" else "*(not finished)*")
    return "\n\n".join(part for part in parts if part)


def _folded(summary: str, text: str) -> str:
    return f"<details>\n<summary>{summary}</summary>\n\n{_quoted(text)}\n\n</details>"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in printable(text).strip().splitlines())


def _line(text: str) -> str:
    return " ".join(printable(text).split())
