"""Conversations and their messages as plain values."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

Role = Literal["system", "user", "assistant"]
Status = Literal["streaming", "complete", "cancelled", "failed"]

ROLES: tuple[str, ...] = get_args(Role)
STATUSES: tuple[str, ...] = get_args(Status)

TITLE_LENGTH = 60

HOTTEST = 1e6
"""Temperatures are lower than this."""

SEEDS = 2**63
"""Seeds are smaller than this."""

REMEMBERED = "chat-"
"""What the names begin with under which replies are remembered."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """How the replies of one conversation are made, where it has a way of its own; None: as all others."""

    temperature: float | None = None
    seed: int | None = None
    think: bool | None = None

    @classmethod
    def of(cls, text: str) -> Wishes:
        """Wishes as they were kept; what cannot be used is left out."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            found = None
        kept: dict[str, Any] = found if isinstance(found, dict) else {}
        return cls(_temperature(kept.get("temperature")), _seed(kept.get("seed")), _switch(kept.get("think")))

    @property
    def kept(self) -> str:
        """A JSON object of those that there are."""
        return json.dumps({name: value for name, value in asdict(self).items() if value is not None})


def _temperature(value: Any) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if number and 0 <= value < HOTTEST else None


def _seed(value: Any) -> int | None:
    number = isinstance(value, int) and not isinstance(value, bool)
    return value if number and 0 <= value < SEEDS else None


def _switch(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


@dataclass(frozen=True, slots=True)
class ConversationRow:
    """One conversation; `created` and `updated` are Unix times in seconds, `uid` is unique anywhere.

    `settings` is what `Wishes` keeps.
    """

    id: int
    title: str
    model: str
    created: float
    updated: float
    system_prompt: str
    message_count: int
    uid: str
    settings: str = "{}"

    @property
    def memory_name(self) -> str:
        """What its replies are remembered under; empty where an older localspec has made the row."""
        return f"{REMEMBERED}{self.uid}" if self.uid else ""


@dataclass(frozen=True, slots=True)
class MessageRow:
    """One message of a conversation's tree.

    Attributes:
        id: unique in its database; greater than the parent's.
        conversation_id: where it belongs.
        parent_id: the message that it follows, None for a first one.
        role, content, status: who says what, and whether that is all.
        created: Unix time in seconds.
        stats: the JSON object that was kept with it.
        version: which of its siblings it is, from 1, the oldest first.
        versions: how many there are, itself among them.
    """

    id: int
    conversation_id: int
    parent_id: int | None
    role: Role
    content: str
    status: Status
    created: float
    stats: dict[str, Any] | None = None
    version: int = 1
    versions: int = 1


@dataclass(frozen=True, slots=True)
class Tree:
    """A conversation with all its messages, parents before their children.

    Attributes:
        row: the conversation.
        messages: every message of every branch; ids need to be unique within the tree only.
        active: id of the last message of the active branch, None where there are no messages.
    """

    row: ConversationRow
    messages: tuple[MessageRow, ...] = field(default=())
    active: int | None = None

    @property
    def path(self) -> list[MessageRow]:
        """The active branch, oldest first."""
        by_id = {message.id: message for message in self.messages}
        found: list[MessageRow] = []
        message = by_id.get(self.active) if self.active is not None else None
        while message is not None:
            found.append(message)
            message = by_id.get(message.parent_id) if message.parent_id is not None else None
        return found[::-1]


def title_of(text: str) -> str:
    """A title made of a message's first words."""
    # A title needs few of them: the rest of a text of megabytes is not looked at.
    words = " ".join(text[: 100 * TITLE_LENGTH].split())
    return words if len(words) <= TITLE_LENGTH else words[: TITLE_LENGTH - 1].rstrip() + "…"
