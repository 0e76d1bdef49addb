"""Recorded replies: from files, from the user's conversations, and from the bench's transcripts."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from localspec.bench.driver import Reply
from localspec.bench.prompts import PromptVocabulary, prompt_tokens, prompts_from_history, reply_tokens
from localspec.bench.tasks import Prompt, PromptEntry, Task, load_tasks
from localspec.bench.transcripts import Transcripts
from localspec.chat.template import ChatTemplate
from localspec.errors import NotFoundError, UsageError

TEXT_PROMPT = 32
"""Tokens of a plain text that count as the prompt."""
_LARGEST_FILE = 64 * 1024 * 1024
_LARGEST_TOKEN = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Recording:
    """A reply that was given.

    Attributes:
        name: for reports.
        prompt: token ids before it, at least one.
        reply: its token ids, at least one, without an end of text.
        conversation: what it belongs to; a memory does not count the present conversation twice.
    """

    name: str
    prompt: tuple[int, ...]
    reply: tuple[int, ...]
    conversation: str


@dataclass(frozen=True, slots=True)
class Text:
    """A plain text: the reply, its first tokens the prompt."""

    content: str
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Source:
    """A recording as it was read: tokens already, or what becomes tokens with a model's vocabulary.

    A prompt of one of the bench's tasks finds its reply among the transcripts where none is given.
    """

    name: str
    conversation: str
    content: Prompt | Text | tuple[tuple[int, ...], tuple[int, ...]]
    task: Task | None = None

    @property
    def is_text(self) -> bool:
        """Whether a vocabulary is needed."""
        return not isinstance(self.content, tuple)


class TokensEntry(BaseModel):
    """A line of a JSON lines file that holds token ids."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str | None = None
    conversation: str | None = None
    prompt: list[int] = Field(min_length=1)
    reply: list[int] = Field(min_length=1)


# --- sources


def from_file(path: Path, text_prompt: int = TEXT_PROMPT) -> list[Source]:
    """The replies in a file.

    A `.jsonl` file has one object a line: `prompt` or `messages` with a `reply`, see `PromptEntry`; or both
    as lists of token ids; `conversation` names what belongs together. Any other file is one plain text.

    Args:
        path: the file.
        text_prompt: first tokens of a plain text that count as the prompt.

    Raises:
        NotFoundError: there is no such file.
        UsageError: it cannot be read, is empty or not UTF-8, or a line cannot be used; says which and why.
    """
    text = _read(path)
    if not text.strip():
        raise UsageError(f"{path} is empty; choose a file with recorded replies.")
    if path.suffix.lower() == ".jsonl":
        return list(_lines(path, text))
    return [Source(path.name, str(path), Text(text, text_prompt))]


def from_history(store_path: Path | None = None) -> list[Source]:
    """Every complete reply of the user's conversations, in the order in which they were given.

    Raises:
        UsageError: there is none.
        StorageError: the conversations cannot be read.
    """
    try:
        prompts = prompts_from_history(sys.maxsize, store_path).prompts
    except UsageError as error:
        raise UsageError(
            "There is no conversation with a complete reply yet; chat first with `localspec chat`, or name a "
            "file with recorded replies."
        ) from error
    # They are named "CONVERSATION.MESSAGE"; messages are numbered as they come, over all conversations.
    placed = sorted(
        (int(message), chat, place)
        for place, (chat, message) in enumerate(prompt.name.split(".") for prompt in prompts)
    )
    return [
        Source(f"chat {chat}, message {message}", f"chat-{chat}", prompts[place])
        for message, chat, place in placed
    ]


def from_tasks(names: Sequence[str]) -> list[Source]:
    """The prompts of the bench's tasks; raises `UsageError` for an unknown task."""
    return [
        Source(f"{task.name} {prompt.name}", f"{task.name} {prompt.name}", prompt, task)
        for task in load_tasks(names)
        for prompt in task.prompts
    ]


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise UsageError(f"{path} is larger than 64 MiB; split it.")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise NotFoundError(f"There is no file {path}; check the path.") from error
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}; choose a text or a .jsonl file.") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path} is not UTF-8 text (line {line}); save it as UTF-8.") from error


def _lines(path: Path, text: str) -> Iterator[Source]:
    # Not splitlines: JSON's strings may hold other characters that it takes for line ends.
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield _entry(f"{path.name} {number}", line)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{path}, line {number}: {_complaint(error)}.") from error


def _entry(place: str, line: str) -> Source:
    value: Any = json.loads(line)
    if not isinstance(value, dict):
        raise ValueError('this is not an object; write {"prompt": "...", "reply": "..."}')  # noqa: TRY004
    if isinstance(value.get("prompt"), list) or isinstance(value.get("reply"), list):
        entry = TokensEntry.model_validate(value)
        for token in (*entry.prompt, *entry.reply):
            if not 0 <= token <= _LARGEST_TOKEN:
                raise ValueError(f"{token} is no token id")
        tokens = tuple(entry.prompt), tuple(entry.reply)
        return Source(entry.name or place, entry.conversation or place, tokens)
    conversation = value.pop("conversation", None)
    if not isinstance(conversation, str | None):
        raise ValueError('"conversation" should be a text')  # noqa: TRY004
    prompt = PromptEntry.model_validate(value).build(place)
    if prompt.reply is None:
        raise ValueError('there is no reply; give "reply", or end "messages" with the assistant\'s turn')
    return Source(prompt.name, conversation or place, prompt)


def _complaint(error: ValueError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "this is nested too deeply"
    if isinstance(error, json.JSONDecodeError):
        return f"this is not JSON ({error.msg} at column {error.colno}); write one object a line"
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "extra_forbidden":
        known = ", ".join(dict.fromkeys((*PromptEntry.model_fields, *TokensEntry.model_fields)))
        return f'"{place}" is not known here; a line has some of {known}'
    if first["type"] == "value_error":
        return f"{first['msg'].removeprefix('Value error, ')}; correct it or remove the line"
    if first["type"] == "missing":
        return f'"{place}" is missing'
    return f'"{place}" {first["msg"].partition(" ")[2]}'


# --- tokens


class Tokenizer:
    """Makes recordings of sources.

    Args:
        vocabulary: the model's tokens.
        template: its chat template.
        transcripts: what a model said in the bench; None leaves tasks without a given reply out.
        model_sha256: hash of the file that said it.
        tokens: length of those replies: the bench's `--max-tokens`.
        seed: the bench's seed.
    """

    def __init__(
        self,
        vocabulary: PromptVocabulary,
        template: ChatTemplate,
        *,
        transcripts: Transcripts | None = None,
        model_sha256: Callable[[], str] = str,
        tokens: int = 128,
        seed: int = 1,
    ) -> None:
        self._vocabulary = vocabulary
        self._template = template
        self._transcripts = transcripts
        self._sha256 = model_sha256
        self._tokens = tokens
        self._seed = seed

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a reply."""
        return self._vocabulary.eog_tokens

    def recording(self, source: Source) -> Recording | None:
        """The recording; None where nothing was recorded for a task's prompt.

        Raises:
            UsageError: a text of fewer than two tokens, or an empty reply.
            ModelFileError: the chat template refuses the conversation.
        """
        content = source.content
        if isinstance(content, tuple):
            prompt, reply = content
        elif isinstance(content, Text):
            prompt, reply = self._of_text(source, content)
        else:
            prompt = tuple(prompt_tokens(content, self._template, self._vocabulary))
            found: Sequence[int] | None = reply_tokens(content, self._vocabulary)
            if found is None:
                found = self._recorded(source.task, prompt)
            if found is None:
                return None
            reply = tuple(found)
        if not prompt or not reply:
            raise UsageError(f"{source.name}: prompt and reply need at least one token each.")
        return Recording(source.name, prompt, reply, source.conversation)

    def _of_text(self, source: Source, text: Text) -> tuple[tuple[int, ...], tuple[int, ...]]:
        tokens = self._vocabulary.tokenize(text.content, add_special=True, parse_special=False)
        if len(tokens) < 2:
            raise UsageError(f"{source.name} is too short: a prompt and a reply need two tokens.")
        # Of a short text half is left to say.
        cut = min(text.prompt_tokens, len(tokens) // 2)
        return tuple(tokens[:cut]), tuple(tokens[cut:])

    def _recorded(self, task: Task | None, prompt: tuple[int, ...]) -> Sequence[int] | None:
        if self._transcripts is None or task is None:
            return None
        asked = Reply(prompt, self._tokens, task.temperature, self._seed, stops=task.stops)
        return self._transcripts.known(self._transcripts.path(self._sha256(), asked))


def tokens_only(sources: Sequence[Source]) -> list[Recording]:
    """Recordings of sources that hold token ids; the others are left out."""
    return [
        Recording(source.name, *source.content, source.conversation)
        for source in sources
        if isinstance(source.content, tuple)
    ]
