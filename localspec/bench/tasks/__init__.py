"""The bench's tasks: prompts with a text of our own, one data file a task."""

from __future__ import annotations

from dataclasses import dataclass

from localspec.types import ChatMessage


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a task.

    Attributes:
        name: unique within its task.
        messages: the conversation up to the reply, the user's turn last; empty for a prompt of random tokens.
        reply: the text to force in transcript mode; None records the model's own reply.
        random_tokens: length of a prompt of random tokens drawn from the whole vocabulary, 0 for text.
        random_seed: seed of that draw.
    """

    name: str
    messages: tuple[ChatMessage, ...] = ()
    reply: str | None = None
    random_tokens: int = 0
    random_seed: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """Prompts of one kind.

    Attributes:
        name: as the command line and the tables name it.
        title: what it stands for, in a few words.
        prompts: at least one.
        temperature: of the sampling; 0 is greedy.
        ask_again: whether the prompt is one that has been answered before (regenerate): a drafter that
            remembers has seen an earlier reply.
        stops: whether the reply ends where the model ends it; else exactly the asked number of tokens.
    """

    name: str
    title: str
    prompts: tuple[Prompt, ...]
    temperature: float = 0.0
    ask_again: bool = False
    stops: bool = False
