"""Versions of messages: a question asked otherwise, a reply made again, and the way between them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tui.conversation import Conversation
from tui.keymap import KEYS

if TYPE_CHECKING:
    from tui.chat import Chat
    from tui.view import View

NO_VERSIONS = "There are no other versions; {} makes a reply again, {} edits a message."
NOT_READY = "The model is not ready yet; try again in a moment."


class Branches:
    """What users do with the versions of the messages on screen; all of them are kept.

    Methods return a sentence for the user, "" where there is nothing to say.

    Args:
        chat: whose conversation it is.
        view: shows it.
    """

    def __init__(self, chat: Chat, view: View) -> None:
        self._chat, self._view = chat, view
        self._edited: tuple[Conversation, int] | None = None
        self._switched: tuple[Conversation, int, int] | None = None

    @property
    def editing(self) -> int | None:
        """Index of the question that the prompt is about to replace; None where it is a further one."""
        if self._edited is None or self._edited[0] is not self._chat.conversation:
            return None
        return self._edited[1]

    def edit(self, index: int | None) -> tuple[str, str]:
        """Begin to edit a question; its text, and what to say.

        Args:
            index: of a message, None for the newest.
        """
        if self._chat.replying:
            return "", _replying()
        found = self._last("user", self._bound(index))
        if found is None:
            return "", "There is no message to edit yet."
        self._edited = (self._chat.conversation, found)
        return self._chat.conversation.messages[found].text, ""

    def leave(self) -> None:
        """Edit nothing any more."""
        self._edited = None

    def send(self, text: str) -> str:
        """Ask `text` in the place of the question that is being edited."""
        index = self.editing
        trouble = self._trouble()
        if index is None or trouble:
            return trouble
        self.leave()
        self._chat.conversation.edit(index, text)
        self._answer()
        return ""

    def regenerate(self, index: int | None) -> str:
        """Have a reply made again with the drafter and the sampling of now.

        Args:
            index: of a reply, or of the question before it; None for the newest.
        """
        conversation = self._chat.conversation
        messages = conversation.messages
        place = self._bound(index)
        if index is not None and messages[place].role == "user":
            place = min(place + 1, len(messages) - 1)
        found = self._last("assistant", place)
        if found is None:
            return "There is no reply yet that could be made again."
        asked = self._last("user", found)
        if asked is None or messages[asked].status == "failed":
            return f"Its question could not be answered as it is; {KEYS['chat.edit']} edits it."
        trouble = self._trouble()
        if trouble:
            return trouble
        self.leave()
        conversation.regenerate(found)
        self._answer()
        seed = self._chat.requests.fixed_seed(conversation)
        return (
            "" if seed is None else f"The seed is still {seed}: the same reply, unless settings have changed."
        )

    def switch(self, index: int | None, step: int) -> str:
        """Show another version of a message, with what follows it.

        Args:
            index: of a message with versions, None for the one that was switched last, else the newest.
            step: 1 for the next younger one, -1 for the next older one.
        """
        if self._chat.replying:
            return _replying()
        conversation = self._chat.conversation
        messages = conversation.messages
        if index is None and self._switched is not None:
            before, at, count = self._switched
            # Until something else is said.
            index = at if before is conversation and count == len(messages) else None
        several = [place for place, one in enumerate(messages) if one.versions > 1]
        place = several[-1] if index is None and several else index
        if place is None or place >= len(messages) or messages[place].versions < 2:
            return NO_VERSIONS.format(KEYS["chat.regenerate"], KEYS["chat.edit"])
        if not conversation.switch(place, step):
            return f"This is the {'newest' if step > 0 else 'first'} version."
        self.leave()
        self._switched = (conversation, place, len(conversation.messages))
        self._view.show_conversation()
        return ""

    # --- inner steps

    def _answer(self) -> None:
        """Have the reply written that another branch ends with."""
        self._view.show_conversation()
        self._chat.begin_reply()

    def _trouble(self) -> str:
        """Why nothing can be answered now."""
        chat = self._chat
        if chat.replying:
            return _replying()
        if chat.ready:
            return ""
        if chat.down:
            chat.begin()
        return NOT_READY

    def _bound(self, index: int | None) -> int:
        last = len(self._chat.conversation.messages) - 1
        return last if index is None else min(index, last)

    def _last(self, role: str, index: int) -> int | None:
        """The last message of a role at `index` or before."""
        messages = self._chat.conversation.messages
        return next((place for place in range(index, -1, -1) if messages[place].role == role), None)


def _replying() -> str:
    return f"A reply is being written; {KEYS['chat.stop']} stops it first."
