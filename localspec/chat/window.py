"""Which turns of a conversation fit into the context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.errors import PromptTooLongError
from localspec.types import ChatMessage


@dataclass(frozen=True, slots=True)
class Window:
    """What is sent to the model.

    Attributes:
        messages: the turns that stay, oldest first.
        dropped: how many messages were left out.
        tokens: tokens of `messages`, as counted.
    """

    messages: tuple[ChatMessage, ...]
    dropped: int
    tokens: int


def fit(
    messages: Sequence[ChatMessage],
    *,
    count: Callable[[Sequence[ChatMessage]], int],
    limit: int,
    reserve: int,
) -> Window:
    """Drop the oldest exchanges until the prompt and `reserve` tokens for the reply fit into `limit`.

    An exchange is a user message and what follows it. System messages at the head and the newest exchange
    always stay. Dropping frees whole quarters of the room: the same turns then stay out until another quarter
    is filled, so that the next turns find their prefix in the cache. The choice depends on the messages
    alone: calling again with more turns makes the same one.

    Args:
        messages: the conversation, oldest first.
        count: tokens of the prompt that some of the messages make; called a few times, not once an exchange.
        limit: tokens of the context.
        reserve: tokens kept free for the reply.

    Raises:
        PromptTooLongError: the newest exchange with the system prompt is too long by itself.
    """
    head, exchanges = _exchanges(messages)
    room = limit - reserve

    def kept(drop: int) -> list[ChatMessage]:
        return [*head, *(message for exchange in exchanges[drop:] for message in exchange)]

    counts = {0: count(messages)}

    def tokens(drop: int) -> int:
        if drop not in counts:
            counts[drop] = count(kept(drop))
        return counts[drop]

    if tokens(0) <= room:
        return Window(tuple(messages), 0, tokens(0))
    last = len(exchanges) - 1
    if last < 1 or tokens(last) > room:
        shortest = tokens(max(last, 0))
        raise PromptTooLongError(
            f"The prompt has {shortest:,} tokens, but the context of {limit:,} leaves {max(room, 0):,} "
            f"for it; shorten it, or start with --context {shortest + reserve} or more."
        )
    quarter = max(room // 4, 1)
    goal = tokens(0) - -(-(tokens(0) - room) // quarter) * quarter
    if tokens(last) > goal:
        goal = room
    drop = _first_at_most(goal, tokens, last, [sum(len(m.content) for m in e) for e in exchanges])
    messages_kept = kept(drop)
    return Window(tuple(messages_kept), len(messages) - len(messages_kept), tokens(drop))


def _exchanges(
    messages: Sequence[ChatMessage],
) -> tuple[list[ChatMessage], list[list[ChatMessage]]]:
    """The system messages at the head, and the rest cut before every user message."""
    start = 0
    while start < len(messages) and messages[start].role == "system":
        start += 1
    exchanges: list[list[ChatMessage]] = []
    for message in messages[start:]:
        if message.role == "user" or not exchanges:
            exchanges.append([])
        exchanges[-1].append(message)
    return list(messages[:start]), exchanges


def _first_at_most(goal: int, tokens: Callable[[int], int], last: int, sizes: Sequence[int]) -> int:
    """The smallest number of dropped exchanges whose prompt has at most `goal` tokens; `last` is known to do.

    Counting is the dear part, so characters say where to look first: a right guess takes two counts.
    """
    # Dropping `low` is too little, dropping `high` is enough.
    low, high = 0, last
    wanted = (tokens(0) - goal) / max(tokens(0) - tokens(last), 1) * sum(sizes[:last])
    probe, characters, step = 0, 0, 1
    while probe < last and characters < wanted:
        characters += sizes[probe]
        probe += 1
    while high - low > 1:
        probe = min(max(probe, low + 1), high - 1)
        if tokens(probe) <= goal:
            high = probe
            probe -= step
        else:
            low = probe
            probe += step
        if low > 0 and high < last:
            probe = (low + high) // 2
        step *= 2
    return high
