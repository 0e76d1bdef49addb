"""The conversation on screen: its messages, kept in the store as they grow. No widgets here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from localspec.chat.rows import ConversationRow, MessageRow, Wishes, title_of
from localspec.chat.store import Store
from localspec.chat.thinking import kept_opening, opening_in, told_again
from localspec.chat.turns import without_neighbours
from localspec.errors import StorageError
from localspec.stats.replies import Parts, partial_stats, reply_stats
from localspec.types import ChatMessage
from tui.markdown.fences import last_fence

__all__ = [
    "Conversation",
    "Message",
    "Parts",
    "message_of",
    "partial_stats",
    "reply_stats",
    "title_of",
    "turns_of",
]

SAVE_EVERY = 0.5
"""Seconds between two writes of a growing reply: what a crash may lose."""

T = TypeVar("T")

Status = Literal["streaming", "complete", "cancelled", "failed"]


@dataclass(frozen=True, slots=True)
class Message:
    """One turn as it is shown.

    Attributes:
        role, text, status: who says what, and whether that is all.
        stats: what its footer says.
        row_id: the store's id, None where it is not kept.
        version: which of the messages in this place it is, from 1.
        versions: how many there are.
    """

    role: Literal["user", "assistant"]
    text: str
    status: Status = "complete"
    stats: dict[str, Any] | None = None
    row_id: int | None = None
    version: int = 1
    versions: int = 1


class Conversation:
    """Messages of one conversation, in memory and in the store.

    A row in the store is made with the first message, so that opening the app and quitting leaves nothing.
    A store that fails does not stop the chat: `on_trouble` is told once, and the conversation goes on.
    `on_company` is told when another app has written in the same conversation since the last message.

    Attributes:
        model: name of the model that a new conversation begins with.
        messages: oldest first.
        system_prompt: what the model is told before the chat.
        wishes: how its replies are made, where it has a way of its own.
    """

    def __init__(
        self,
        store: Store,
        *,
        model: str,
        system_prompt: str | None,
        on_trouble: Callable[[StorageError], None],
        on_company: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self.model = model
        self.system_prompt = system_prompt or ""
        self.wishes = Wishes()
        self._on_trouble = on_trouble
        self._on_company = on_company
        self._clock = clock
        self._troubled = False
        self._saved_at = 0.0
        self._row: ConversationRow | None = None
        self.messages: list[Message] = []

    @property
    def id(self) -> int | None:
        """The store's id, None before the first message."""
        return self._row.id if self._row else None

    @property
    def title(self) -> str:
        """The store's title, empty before the first message."""
        return self._row.title if self._row else ""

    @property
    def memory_name(self) -> str:
        """What replies are remembered under; empty where nothing is to be kept, or can be."""
        return self._row.memory_name if self._row and not self._store.private else ""

    def open(self, conversation_id: int) -> bool:
        """Show a conversation of the store; False when it is not there."""
        row = self._store.get(conversation_id)
        if row is None:
            return False
        self._row = row
        self.system_prompt = row.system_prompt
        self.wishes = Wishes.of(row.settings)
        self._read(row.id)
        return True

    def refresh(self) -> bool:
        """Take over what was changed elsewhere, such as the title; False when it was deleted there."""
        row = self._row
        if row is None:
            return True
        try:
            found = self._store.get(row.id)
        except StorageError:
            # Nothing is known to be otherwise; the next write says what is wrong.
            return True
        self._row = found or row
        return found is not None

    def configure(self, *, system_prompt: str | None = None, wishes: Wishes | None = None) -> None:
        """Change what its further replies are made with; None leaves it as it is."""
        self.system_prompt = self.system_prompt if system_prompt is None else system_prompt
        self.wishes = wishes or self.wishes
        row = self._row
        if row is not None:
            prompt, settings = self.system_prompt, self.wishes.kept
            self._try(lambda: self._store.configure(row.id, system_prompt=prompt, settings=settings))

    def ask(self, text: str) -> None:
        """Add a user message and the empty reply that will answer it."""
        if self._row is None:
            self._row = self._try(
                lambda: self._store.create(
                    model=self.model,
                    system_prompt=self.system_prompt,
                    title=title_of(text),
                    settings=self.wishes.kept,
                )
            )
        self._add(Message("user", text))
        self._add(Message("assistant", "", "streaming"))
        self._saved_at = self._clock()

    def edit(self, index: int, text: str) -> None:
        """Ask something else in the place of the question at `index`; the old branch is kept beside it."""
        self._replace(index, Message("user", text))
        self._add(Message("assistant", "", "streaming"))
        self._saved_at = self._clock()

    def regenerate(self, index: int) -> None:
        """Begin another reply in the place of the one at `index`; the old branch is kept beside it."""
        self._replace(index, Message("assistant", "", "streaming"))
        self._saved_at = self._clock()

    def switch(self, index: int, step: int) -> bool:
        """Show the branch of another message in the place of the one at `index`.

        Args:
            index: of `messages`.
            step: 1 for the next younger one, -1 for the next older one.

        Returns:
            Whether there is such a branch; it stays the one that is shown, in other windows too.
        """
        row, asked = self._row, self.messages[index].row_id
        if row is None or asked is None:
            return False
        siblings = self._try(lambda: self._store.siblings(asked)) or []
        ids = [sibling.id for sibling in siblings]
        place = ids.index(asked) + step if asked in ids else -1
        if not 0 <= place < len(ids):
            return False
        self._try(lambda: self._activate(row.id, ids[place]))
        return True

    def show(self, message_id: int) -> bool:
        """Show the branch of a message of this conversation, down to the newest message below it.

        Returns:
            Whether it is shown now: the store may fail.
        """
        row = self._row
        if row is None:
            return False
        self._try(lambda: self._activate(row.id, message_id))
        return any(message.row_id == message_id for message in self.messages)

    def grow(self, text: str, opening: str = "") -> None:
        """Add text to the reply; written to the store every `SAVE_EVERY` seconds.

        Args:
            text: what was said.
            opening: the mark of reasoning that the reply's prompt ended with.
        """
        last = self.messages[-1]
        self.messages[-1] = replace(last, text=last.text + text)
        if self._clock() - self._saved_at >= SAVE_EVERY:
            self._saved_at = self._clock()
            whole = self.messages[-1].text
            # Whoever reads it after the app was killed has to know what of it is reasoning.
            self._update(self.messages[-1], content=whole, stats=kept_opening(whole, opening) or None)

    def end(self, status: Status, *, text: str | None = None, stats: dict[str, Any] | None = None) -> Message:
        """Make the reply final and write it; returns it."""
        last = self.messages[-1]
        ended = replace(last, text=last.text if text is None else text, status=status, stats=stats)
        self.messages[-1] = ended
        self._update(ended, content=ended.text, status=status, stats=stats)
        return ended

    def reject(self) -> str:
        """Mark the last question as one that the model must not be shown again; returns its text."""
        for index in range(len(self.messages) - 1, -1, -1):
            message = self.messages[index]
            if message.role == "user":
                self.messages[index] = replace(message, status="failed")
                self._update(message, status="failed")
                return message.text
        return ""

    def history(self) -> tuple[ChatMessage, ...]:
        """What the model is asked with: every turn so far, without what failed."""
        system = [ChatMessage("system", self.system_prompt)] if self.system_prompt else []
        return (*system, *turns_of(self.messages))

    def last_reply(self) -> str:
        """Text of the newest reply that has any."""
        return next(self._replies(), "")

    def last_code(self) -> str:
        """The newest code block, in whichever reply it stands; empty where there is none."""
        return next((code for code in map(last_fence, self._replies()) if code), "")

    def questions(self) -> list[str]:
        """The user's messages, oldest first."""
        return [message.text for message in self.messages if message.role == "user"]

    def _replies(self) -> Iterator[str]:
        return (m.text for m in reversed(self.messages) if m.role == "assistant" and m.text)

    def _read(self, conversation_id: int) -> None:
        rows = self._store.messages(conversation_id)
        self.messages = [message_of(row) for row in rows if row.role in ("user", "assistant")]

    def _activate(self, conversation_id: int, message_id: int) -> None:
        self._store.activate(message_id)
        self._read(conversation_id)

    def _replace(self, index: int, message: Message) -> None:
        """Put a message in the place of another one, and nothing behind it."""
        old = self.messages[index].row_id
        row: MessageRow | None = None
        if old is not None:
            row = self._try(lambda: self._store.add_sibling(old, message.text, status=message.status))
        del self.messages[index:]
        self.messages.append(_kept(message, row))

    def _add(self, message: Message) -> None:
        last = self.messages[-1].row_id if self.messages else None
        row: MessageRow | None = None
        if self._row is not None:
            conversation_id = self._row.id
            row = self._try(
                # What others wrote below the last message comes first: opened again, all of it is there.
                lambda: self._store.add_message(
                    conversation_id, message.role, message.text, after=last, status=message.status
                )
            )
            if row and last is not None and row.parent_id != last:
                self._on_company()
        self.messages.append(_kept(message, row))

    def _update(self, message: Message, **changes: Any) -> None:
        row_id = message.row_id
        if row_id is not None:
            self._try(lambda: self._store.update_message(row_id, **changes))

    def _try(self, write: Callable[[], T]) -> T | None:
        try:
            return write()
        except StorageError as error:
            if not self._troubled:
                self._troubled = True
                self._on_trouble(error)
            return None


def turns_of(messages: Iterable[Message]) -> list[ChatMessage]:
    """Messages as the model is shown them, without what is empty or was refused.

    Chat templates want user and assistant to take turns, so questions that got no answer are joined.
    """
    turns: list[ChatMessage] = []
    for message in messages:
        if not message.text or (message.role == "user" and message.status == "failed"):
            continue
        answered = message.role == "assistant"
        text = told_again(message.text, opening_in(message.stats)) if answered else message.text
        turns.append(ChatMessage(message.role, text))
    return without_neighbours(turns)


def message_of(row: MessageRow) -> Message:
    """A message of the store as it is shown."""
    return Message(
        _role(row.role),
        row.content,
        _status(row.status),
        row.stats,
        row.id,
        row.version,
        row.versions,
    )


def _kept(message: Message, row: MessageRow | None) -> Message:
    if row is None:
        return message
    return replace(message, row_id=row.id, version=row.version, versions=row.versions)


def _role(value: str) -> Literal["user", "assistant"]:
    return "user" if value == "user" else "assistant"


def _status(value: str) -> Status:
    match value:
        case "complete" | "cancelled" | "failed":
            return value
        case _:
            return "cancelled"
