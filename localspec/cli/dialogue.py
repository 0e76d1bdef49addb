"""The conversation of a chat without the app: what the model is asked with, kept in the store as it grows."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from localspec.chat.rows import ConversationRow, MessageRow, Wishes, title_of
from localspec.chat.store import Store
from localspec.chat.thinking import kept_opening, opening_in, told_again
from localspec.chat.turns import without_neighbours
from localspec.errors import NotFoundError, StorageError
from localspec.messages import Reply
from localspec.types import ChatMessage

SAVE_EVERY = 0.5
"""Seconds between two writes of a growing reply: what a crash may lose."""

T = TypeVar("T")


class Dialogue:
    """The conversation, in memory and in the store; a store that fails is told of once.

    Args:
        store: where it is kept.
        model: name of the model that new conversations begin with.
        system_prompt: what they begin with.
        on_trouble: told in a sentence when nothing can be saved.

    Attributes:
        wishes: how the replies of this conversation are made, where it has a way of its own.
    """

    def __init__(
        self, store: Store, model: str, system_prompt: str | None, on_trouble: Callable[[str], None]
    ) -> None:
        self._store, self._model = store, model
        self._system = self._own_system = system_prompt or ""
        self._on_trouble = on_trouble
        self._row: ConversationRow | None = None
        self._answer: MessageRow | None = None
        self.wishes = Wishes()
        self._turns: list[ChatMessage] = []
        self._growing: list[str] = []
        self._saved_at = 0.0
        self._troubled = False
        # The mark of reasoning that the reply's prompt ended with.
        self.opening: Callable[[], str] = str

    @property
    def memory_name(self) -> str:
        """What replies are remembered under; "" where nothing is to be kept."""
        return self._row.memory_name if self._row and not self._store.private else ""

    @property
    def messages(self) -> tuple[ChatMessage, ...]:
        """What the model is asked with; questions that got no answer are joined with the next one."""
        system = [ChatMessage("system", self._system)] if self._system else []
        return (*system, *without_neighbours(self._turns))

    def open(self, wanted: int | Literal["last", "new"]) -> str:
        """Go on with a conversation; returns a sentence about it, "" for a new one.

        Raises:
            NotFoundError: there is no such conversation.
            StorageError: it cannot be read.
        """
        row = self._store.latest() if wanted == "last" else None
        if isinstance(wanted, int):
            row = self._store.get(wanted)
            if row is None:
                raise NotFoundError(
                    f"There is no conversation {wanted}; `localspec history list` shows those that there are."
                )
        if row is None:
            return ""
        self._row, self._system, self.wishes = row, row.system_prompt, Wishes.of(row.settings)
        for message in self._store.messages(row.id):
            if message.role == "system" or not message.content or message.status == "failed":
                continue
            answered = message.role == "assistant"
            text = told_again(message.content, opening_in(message.stats)) if answered else message.content
            self._turns.append(ChatMessage(message.role, text))
        return f"Going on with “{row.title}” ({row.message_count} messages); /new begins another one."

    def new(self) -> None:
        """Begin another conversation."""
        self._row, self._turns, self._system = None, [], self._own_system
        self.wishes = Wishes()

    def ask(self, text: str) -> None:
        """Add a message, and the empty reply that will answer it."""
        store = self._store
        if self._row is None:
            self._row = self._try(
                lambda: store.create(model=self._model, system_prompt=self._system, title=title_of(text))
            )
        self._turns.append(ChatMessage("user", text))
        self._growing, self._saved_at = [], time.monotonic()
        row = self._row
        if row is not None:
            self._try(lambda: store.add_message(row.id, "user", text))
            self._answer = self._try(lambda: store.add_message(row.id, "assistant", "", status="streaming"))

    def grow(self, text: str) -> None:
        """The reply has grown."""
        self._growing.append(text)
        if time.monotonic() - self._saved_at >= SAVE_EVERY:
            self._saved_at = time.monotonic()
            self._keep()

    def cut(self) -> None:
        """The program ends within the reply."""
        self._keep(status="cancelled")

    def _keep(self, **more: Any) -> None:
        """Write what there is of the reply, and what of it is reasoning."""
        text = "".join(self._growing)
        self._update(content=text, stats=kept_opening(text, self.opening()) or None, **more)

    def end(
        self, reply: Reply | None, stats: dict[str, Any], *, opening: str = "", refused: bool = False
    ) -> None:
        """The reply is final.

        Args:
            reply: None for one that the engine never finished.
            stats: its figures.
            opening: the mark of reasoning that its prompt ended with.
            refused: whether the model must not be shown the message again.
        """
        text = "".join(self._growing) if reply is None else reply.text
        ended: Literal["complete", "cancelled", "failed"] = "failed" if reply is None else "complete"
        if reply is not None and reply.finish_reason == "cancelled":
            ended = "cancelled"
        self._update(content=text, status=ended, stats={**stats, **kept_opening(text, opening)})
        answer = self._answer
        if refused:
            self._turns.pop()
            if answer is not None and answer.parent_id is not None:
                asked = answer.parent_id
                self._try(lambda: self._store.update_message(asked, status="failed"))
        elif text:
            self._turns.append(ChatMessage("assistant", told_again(text, opening)))
        self._answer = None

    def _update(self, **changes: Any) -> None:
        answer = self._answer
        if answer is not None:
            self._try(lambda: self._store.update_message(answer.id, **changes))

    def _try(self, write: Callable[[], T]) -> T | None:
        try:
            return write()
        except StorageError as error:
            if not self._troubled:
                self._troubled = True
                self._on_trouble(f"{error} This chat goes on, but it is not being saved.")
            return None
