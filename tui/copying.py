"""What of a conversation is copied: messages without their reasoning, and their code blocks."""

from __future__ import annotations

from tui.chat import Chat
from tui.markdown.fences import fences
from tui.reasoning import answer_of


def message_text(chat: Chat, index: int) -> str:
    """A message as it is copied; of a reply, the answer alone."""
    message = chat.conversation.messages[index]
    if message.status == "streaming":
        # What its prompt began with is not among its stats yet.
        return chat.thoughts.reasoning.answer
    return answer_of(message)


def last_reply(chat: Chat) -> str:
    """The newest reply with an answer; "" for none."""
    return next((text for text in _replies(chat) if text), "")


class CodeBlocks:
    """Code blocks to copy, one after the other."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self._last = (-1, -1)

    def take(self, index: int | None) -> tuple[str, str]:
        """A code block and what it is, in words; "" for none.

        Args:
            index: of the message; asked again, its next block is taken. None takes the last block of all.
        """
        if index is None:
            found = (blocks[-1] for text in _replies(self._chat) if (blocks := fences(text)))
            return next(found, ""), "the last code block"
        blocks = fences(message_text(self._chat, index))
        if not blocks:
            return "", ""
        message, number = self._last
        number = (number + 1) % len(blocks) if message == index else 0
        self._last = (index, number)
        place = f" {number + 1} of {len(blocks)}" if len(blocks) > 1 else ""
        return blocks[number], f"code block{place}"


def _replies(chat: Chat) -> list[str]:
    messages = chat.conversation.messages
    places = [place for place, message in enumerate(messages) if message.role == "assistant"]
    return [message_text(chat, place) for place in reversed(places)]
