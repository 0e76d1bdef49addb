"""Where in a conversation a recorded question was asked: at its end, in place of another, or once more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.chat.rows import MessageRow, Tree
from localspec.types import ChatMessage
from tui.conversation import message_of, turns_of


@dataclass(frozen=True, slots=True)
class Place:
    """Where a question belongs.

    Attributes:
        text: the question, without those before it that got no answer and went along.
        after: id of the message that it follows, None for the first.
        beside: id of a question that follows the same message already, None where there is none.
        again: whether that one is the same question, so that its reply was made again.
    """

    text: str
    after: int | None = None
    beside: int | None = None
    again: bool = False


def place_of(tree: Tree | None, turns: Sequence[ChatMessage]) -> Place | None:
    """Where in a conversation the last of `turns` was asked; the others are what the model was shown before.

    Args:
        tree: the conversation; None for one that is empty.
        turns: at least one, without the system's.

    Returns:
        None where the conversation has no such branch. Where several fit, the one that is shown comes first.
    """
    messages = tree.messages if tree else ()
    paths: dict[int | None, list[MessageRow]] = {None: []}
    questions: dict[int | None, list[MessageRow]] = {}
    for one in messages:
        paths[one.id] = [*paths[one.parent_id], one]
        if one.role == "user":
            questions.setdefault(one.parent_id, []).append(one)
    shown = {one.id for one in tree.path} if tree else set()
    ends = [None, *(one.id for one in messages if one.role == "assistant")]
    for after in sorted(ends, key=lambda end: (end in shown, len(paths[end])), reverse=True):
        text = _asked(turns_of(map(message_of, paths[after])), turns)
        if text is not None:
            others = questions.get(after, [])
            same = [one.id for one in others if one.content == text]
            beside = same or [one.id for one in others]
            return Place(text, after, beside[-1] if beside else None, bool(same))
    return None


def _asked(said: list[ChatMessage], turns: Sequence[ChatMessage]) -> str | None:
    """What was asked after what had been said; None where something else had been said."""
    *before, last = turns
    if said and said[-1].role == "user":
        # A question that got no answer goes along with the next.
        along = f"{said[-1].content}\n\n"
        fits = said[:-1] == before and last.content.startswith(along)
        return last.content.removeprefix(along) if fits else None
    return last.content if said == before else None
