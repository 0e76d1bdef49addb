"""Turns of a conversation as chat templates want them."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.types import ChatMessage


def without_system(turns: Sequence[ChatMessage]) -> list[ChatMessage]:
    """System text moved to the head of the first user message."""
    system = "\n\n".join(turn.content for turn in turns if turn.role == "system" and turn.content)
    rest = [turn for turn in turns if turn.role != "system"]
    if not system:
        return rest
    for index, turn in enumerate(rest):
        if turn.role == "user":
            # One line end, as llama.cpp's server has it.
            rest[index] = ChatMessage("user", f"{system}\n{turn.content}")
            return rest
    return [ChatMessage("user", system), *rest]


def without_neighbours(turns: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Neighbours of the same role joined, as a reply that was stopped before its first word leaves them."""
    joined: list[ChatMessage] = []
    for turn in turns:
        if joined and joined[-1].role == turn.role:
            joined[-1] = ChatMessage(turn.role, f"{joined[-1].content}\n\n{turn.content}")
        else:
            joined.append(turn)
    return joined
