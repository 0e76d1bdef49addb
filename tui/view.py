"""What the chat needs of a screen, so that it can be used and tested without one."""

from __future__ import annotations

from typing import Literal, Protocol

from tui.conversation import Message

NoteKind = Literal["note", "error"]


class View(Protocol):
    """What the chat needs of the screen."""

    def show_question(self, text: str) -> None:
        """A user message was sent; an empty reply follows it."""

    def show_growth(self, text: str) -> None:
        """The reply has grown."""

    def show_reply(self, reply: Message) -> None:
        """The reply is final."""

    def show_note(self, text: str, kind: NoteKind) -> None:
        """Something to see once, in the transcript."""

    def show_conversation(self) -> None:
        """Another conversation is on screen."""

    def give_back(self, text: str) -> None:
        """A message that was not sent returns to the prompt."""
