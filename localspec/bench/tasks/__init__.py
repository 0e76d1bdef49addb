"""The bench's tasks: prompts with a text of our own, one data file a task.

A file `NAME.toml` has `title`, `why` (one sentence for the docs: what kind of work it stands for), the other
fields of `Task` where they differ from its defaults, and `[[prompts]]` as `TaskEntry` describes them.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from localspec.errors import UsageError
from localspec.types import ChatMessage

TASK_NAMES = (
    "copy",
    "chain",
    "code",
    "edit",
    "explain",
    "random",
    "chat",
    "story",
    "summary",
    "json",
    "agent",
    "retrieval",
    "regenerate",
)
"""The tasks that ship with localspec, in the order of every table."""


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
        why: what kind of work it measures, in a sentence.
    """

    name: str
    title: str
    prompts: tuple[Prompt, ...]
    temperature: float = 0.0
    ask_again: bool = False
    stops: bool = False
    why: str = ""


class _Data(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Turn(_Data):
    """One turn of a written conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


class PromptEntry(_Data):
    """A prompt as a file writes it; also a line of a user's own prompts.

    Attributes:
        name: for the tables; None lets the place in the file name it.
        prompt: the only user turn, instead of `messages`.
        messages: a conversation; a last turn of the assistant is the reply.
        system: text of a system turn before all others.
        reply: the text to force in transcript mode.
    """

    name: str | None = Field(default=None, min_length=1)
    prompt: str | None = None
    messages: list[Turn] = Field(default_factory=list)
    system: str | None = None
    reply: str | None = None

    @model_validator(mode="after")
    def _usable(self) -> PromptEntry:
        self._check()
        return self

    def _check(self) -> None:
        if (self.prompt is None) == (not self.messages):
            raise ValueError('it must have either "prompt" or "messages"')
        turns, reply = self._conversation()
        if not turns or turns[-1].role != "user":
            raise ValueError("the last turn, before the reply, must be the user's")
        if not turns[-1].content.strip():
            raise ValueError("the prompt is empty")
        if reply is not None and not reply.strip():
            raise ValueError("the reply is empty")
        if self.system is not None and any(turn.role == "system" for turn in self.messages):
            raise ValueError("the system turn is given twice")
        if self.reply is not None and self.messages and self.messages[-1].role == "assistant":
            raise ValueError('the reply is given twice, as the last turn and as "reply"')

    def _conversation(self) -> tuple[tuple[ChatMessage, ...], str | None]:
        turns = [ChatMessage(turn.role, turn.content) for turn in self.messages]
        if self.prompt is not None:
            turns.append(ChatMessage("user", self.prompt))
        if self.system is not None:
            turns.insert(0, ChatMessage("system", self.system))
        if turns and turns[-1].role == "assistant":
            return tuple(turns[:-1]), turns[-1].content
        return tuple(turns), self.reply

    def build(self, name: str) -> Prompt:
        """The prompt, under its own name or else `name`."""
        messages, reply = self._conversation()
        return Prompt(self.name or name, messages, reply)


class TaskEntry(PromptEntry):
    """A prompt of a task's file.

    Attributes:
        text: put where `prompt` and `reply` say `{text}`.
        random_tokens: instead of a conversation, see `Prompt`.
        random_seed: see `Prompt`.
    """

    name: str = Field(min_length=1)
    text: str | None = None
    random_tokens: int = Field(default=0, ge=0)
    random_seed: int = 0

    def _check(self) -> None:
        if not self.random_tokens:
            super()._check()
        elif self.prompt is not None or self.messages or self.system is not None or self.reply is not None:
            raise ValueError("random tokens have no conversation")

    def build(self, name: str) -> Prompt:
        """The prompt, with its text filled in."""
        messages, reply = self._conversation()
        messages = tuple(ChatMessage(turn.role, self._filled(turn.content)) for turn in messages)
        return Prompt(
            self.name or name,
            messages,
            None if reply is None else self._filled(reply),
            self.random_tokens,
            self.random_seed,
        )

    def _filled(self, template: str) -> str:
        return template if self.text is None else template.replace("{text}", self.text)


class _TaskFile(_Data):
    title: str = Field(min_length=1)
    why: str = Field(min_length=1)
    temperature: float = Field(default=0.0, ge=0.0)
    ask_again: bool = False
    stops: bool = False
    prompts: list[TaskEntry] = Field(min_length=1)


def load_tasks(names: Sequence[str] | None = None) -> tuple[Task, ...]:
    """The shipped tasks of these names, each once, in the order of `TASK_NAMES`; None means all.

    Raises:
        UsageError: there is no task of a name; the known ones are listed.
    """
    for name in names or ():
        if name not in TASK_NAMES:
            raise UsageError(f'There is no bench task "{name}"; choose among {", ".join(TASK_NAMES)}.')
    return tuple(_load(name) for name in TASK_NAMES if names is None or name in names)


def _load(name: str) -> Task:
    source = resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    data = _TaskFile.model_validate(_trimmed(tomllib.loads(source)))
    return Task(
        name=name,
        title=data.title,
        prompts=tuple(entry.build(entry.name) for entry in data.prompts),
        temperature=data.temperature,
        ask_again=data.ask_again,
        stops=data.stops,
        why=data.why,
    )


def _trimmed(value: Any) -> Any:
    """Without the line break before the closing quotes of a text block, which is not part of the text."""
    if isinstance(value, str):
        return value.strip("\n")
    if isinstance(value, list):
        return [_trimmed(item) for item in value]
    if isinstance(value, dict):
        return {key: _trimmed(item) for key, item in value.items()}
    return value
