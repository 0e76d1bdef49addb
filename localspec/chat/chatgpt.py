"""Conversations as ChatGPT exports them (conversations.json): a tree of nodes by name."""

from __future__ import annotations

from typing import Any, cast

from localspec.chat.parts import DamageError, clean, moment, text_of
from localspec.chat.rows import ConversationRow, MessageRow, Role, Tree


def is_chatgpt(data: Any) -> bool:
    """Whether this is one of its conversations."""
    return isinstance(data, dict) and isinstance(data.get("mapping"), dict)


def read_chatgpt(data: dict[str, Any], where: str) -> Tree:
    """One conversation: what people and the model wrote, in all branches; raises `DamageError`.

    What tools and the system said is left out: what followed it follows what was said before it.
    """
    nodes: dict[str, Any] = data["mapping"]
    messages: list[MessageRow] = []
    # By node: its own message, or the nearest one above it that is kept.
    nearest: dict[str, MessageRow | None] = {}
    model = ""
    for name in _ordered(nodes, where):
        said, above = nodes[name].get("message"), nodes[name].get("parent")
        role, text = _said(said)
        parent = nearest[name] = nearest[above] if above is not None else None
        if not text:
            continue
        model = model or _model(said)
        row = MessageRow(
            id=len(messages) + 1,
            conversation_id=0,
            parent_id=parent.id if parent else None,
            role=cast("Role", role),
            content=text,
            status="complete",
            created=moment(said.get("create_time")),
        )
        messages.append(row)
        nearest[name] = row
    created = moment(data.get("create_time"))
    identity = str(data.get("conversation_id") or data.get("id") or "")
    row_of_all = ConversationRow(
        id=0,
        title=clean(str(data.get("title") or "")),
        model=clean(model),
        created=created,
        updated=max(moment(data.get("update_time")), created),
        system_prompt="",
        message_count=len(messages),
        uid=clean(f"chatgpt-{identity}" if identity else ""),
    )
    current = data.get("current_node")
    end = nearest.get(current) if isinstance(current, str) else None
    if end is None and messages:
        end = messages[-1]
    return Tree(row_of_all, tuple(messages), end.id if end else None)


def _ordered(nodes: dict[str, Any], where: str) -> list[str]:
    """Names of the nodes, parents before their children; raises `DamageError` where that cannot be."""
    children: dict[str | None, list[str]] = {}
    for name, node in nodes.items():
        if not isinstance(node, dict):
            raise DamageError(f"a node of {where} is not an object")
        parent = node.get("parent")
        if parent is not None and (not isinstance(parent, str) or parent not in nodes):
            raise DamageError(f"a node of {where} follows one that is not there")
        children.setdefault(parent, []).append(name)
    found: list[str] = []
    waiting = children.get(None, [])[::-1]
    while waiting:
        name = waiting.pop()
        found.append(name)
        waiting += children.get(name, [])[::-1]
    if len(found) < len(nodes):
        raise DamageError(f"nodes of {where} follow each other in a circle")
    return found


def _said(message: Any) -> tuple[str, str]:
    """Who said what; ("", "") for what is not shown."""
    if not isinstance(message, dict):
        return "", ""
    author, content = message.get("author"), message.get("content")
    metadata = message.get("metadata")
    hidden = isinstance(metadata, dict) and bool(metadata.get("is_visually_hidden_from_conversation"))
    role = author.get("role") if isinstance(author, dict) else None
    if hidden or role not in ("user", "assistant") or not isinstance(content, dict):
        return "", ""
    if content.get("content_type") not in ("text", "multimodal_text"):
        return "", ""
    return str(role), text_of(content.get("parts"))


def _model(message: dict[str, Any]) -> str:
    metadata = message.get("metadata")
    return str(metadata.get("model_slug") or "") if isinstance(metadata, dict) else ""
