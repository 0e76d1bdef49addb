"""Prompts beside the shipped ones: the user's own files and conversations; and the tokens of all."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice, zip_longest
from pathlib import Path
from typing import Protocol

import numpy as np
from pydantic import ValidationError

from localspec import known_text
from localspec.bench.tasks import Prompt, PromptEntry, Task
from localspec.chat.store import ConversationRow, MessageRow, Store
from localspec.chat.template import ChatTemplate
from localspec.errors import NotFoundError, StorageError, UsageError
from localspec.target import Vocabulary
from localspec.types import ChatMessage

_SEPARATOR = "---"
_LARGEST_FILE = 64 * 1024 * 1024
_CONVERSATIONS = 1000
"""How many conversations are looked at, newest first."""


class PromptVocabulary(Vocabulary, Protocol):
    """What tokens of a prompt need of a vocabulary; `LlamaModel` has it."""

    @property
    def vocabulary_size(self) -> int:
        """Number of tokens."""

    @property
    def bos(self) -> int:
        """Beginning-of-text token, -1 where there is none."""

    @property
    def adds_bos(self) -> bool:
        """Whether `tokenize(add_special=True)` begins with the beginning-of-text token."""

    def token_text(self, token: int) -> str:
        """The token's text with control tokens spelled out; empty for -1."""


# --- tokens


def prompt_tokens(prompt: Prompt, template: ChatTemplate, vocabulary: PromptVocabulary) -> list[int]:
    """Tokens of a prompt, as the engine makes them for the first reply of a chat.

    A prompt of random tokens gets the token before it that the model wants at the beginning of a text.

    Raises:
        ModelFileError: the template refuses the conversation.
    """
    if prompt.random_tokens:
        hidden = (token for token in range(vocabulary.vocabulary_size) if not vocabulary.token_bytes(token))
        begin = vocabulary.tokenize("", add_special=True, parse_special=False)
        return begin + random_prompt(vocabulary.vocabulary_size, prompt, vocabulary.eog_tokens.union(hidden))
    return known_text.prompt_tokens(template.render(prompt.messages), vocabulary)


def reply_tokens(prompt: Prompt, vocabulary: Vocabulary) -> list[int] | None:
    """Tokens of the given reply, without an end of text; None where there is none."""
    if prompt.reply is None:
        return None
    return vocabulary.tokenize(prompt.reply, add_special=False, parse_special=False)


def random_prompt(vocabulary_size: int, prompt: Prompt, forbidden: Collection[int]) -> list[int]:
    """Token ids drawn evenly from a vocabulary: the same ones for the same seed and tokens.

    Args:
        vocabulary_size: number of tokens.
        prompt: says how many, and the seed.
        forbidden: ids that are never drawn: those with a meaning beyond their text.
    """
    allowed = np.setdiff1d(np.arange(vocabulary_size), np.fromiter(forbidden, dtype=np.int64))
    drawn = np.random.default_rng(prompt.random_seed).integers(len(allowed), size=prompt.random_tokens)
    return [int(token) for token in allowed[drawn]]


# --- the user's files


def prompts_from_file(path: Path) -> Task:
    """The user's own prompts as the task "prompts".

    A `.jsonl` file has one object a line, see `PromptEntry`; blank lines are skipped. Any other file is text:
    prompts separated by lines that hold only `---`, or a single one.

    Raises:
        NotFoundError: there is no such file.
        UsageError: the file cannot be read, is empty or not UTF-8, or one of its prompts cannot be used; says
            which one and why.
    """
    text = _read(path)
    if not text.strip():
        raise UsageError(f"{path} is empty; write at least one prompt into it.")
    is_jsonl = path.suffix.lower() == ".jsonl"
    prompts: dict[str, Prompt] = {}
    for line, prompt in _json_prompts(path, text) if is_jsonl else _text_prompts(path, text):
        if prompt.name in prompts:
            raise UsageError(
                f'{path}, line {line}: a prompt named "{prompt.name}" is there already; rename one.'
            )
        prompts[prompt.name] = prompt
    return Task("prompts", f"your own prompts from {path.name}", tuple(prompts.values()), stops=True)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise UsageError(f"{path} is too large for a file of prompts; choose a text or a .jsonl file.")
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise NotFoundError(
            f"There is no file {path}: check the path that was given for the prompts."
        ) from error
    except OSError as error:
        raise UsageError(f"Cannot read {path}: {error.strerror}; choose a text or a .jsonl file.") from error
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(f"{path} is not UTF-8 text (line {line}); save it as UTF-8.") from error


def _text_prompts(path: Path, text: str) -> Iterator[tuple[int, Prompt]]:
    """Each prompt and the line on which its part of the file begins."""
    lines = text.split("\n")
    cuts = [index for index, line in enumerate(lines) if line.strip() == _SEPARATOR]
    starts = [0, *(cut + 1 for cut in cuts)]
    for number, (start, end) in enumerate(zip(starts, [*cuts, len(lines)], strict=True), 1):
        content = "\n".join(lines[start:end]).strip("\n")
        if not content.strip():
            raise UsageError(
                f"{path}, line {start + 1}: prompt {number} is empty; write it, or remove the line "
                f'"{_SEPARATOR}" that sets it apart.'
            )
        yield start + 1, Prompt(str(number), (ChatMessage("user", content),))


def _json_prompts(path: Path, text: str) -> Iterator[tuple[int, Prompt]]:
    """Each prompt and its line."""
    # Not splitlines: JSON's strings may hold other characters that it takes for line ends.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = PromptEntry.model_validate_json(line)
        except ValidationError as error:
            raise UsageError(f"{path}, line {number}: {_complaint(error)}.") from error
        yield number, entry.build(str(number))


def _complaint(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "json_invalid":
        # Pydantic counts within the line, which is always its line 1.
        cause = str(first.get("ctx", {}).get("error", "broken")).replace(" at line 1 column", " at column")
        return f"this is not JSON ({cause}); write one object a line"
    if first["type"] == "extra_forbidden":
        known = ", ".join(PromptEntry.model_fields)
        return f'"{place}" is not known here; a prompt has {known}'
    if first["type"] == "missing":
        return f'"{place}" is missing'
    if first["type"] == "value_error":
        return f"{first['msg'].removeprefix('Value error, ')}; correct it or remove the line"
    if not place:
        return 'this is not an object; write {"prompt": "..."} for each prompt'
    # Pydantic begins with what it looked at: "Input should be ...", "String should have ...".
    return f'"{place}" {first["msg"].partition(" ")[2]}'


# --- the user's conversations


def prompts_from_history(limit: int, store_path: Path | None = None) -> Task:
    """Questions of the user's earlier chats, with the replies that were given, as the task "history".

    The newest answered question of each conversation comes first, newest conversation first; then, where
    there are fewer than `limit`, the question before that of each, and so on.

    Args:
        limit: prompts at most, at least 1.
        store_path: database of conversations; None takes the user's.

    Raises:
        UsageError: no conversation has a complete reply.
        StorageError: the database cannot be read.
    """
    answered: list[list[Prompt]] = []
    store = Store(store_path)
    try:
        if store.notice:
            raise StorageError(store.notice)
        for conversation in store.conversations(_CONVERSATIONS):
            prompts = _answered(conversation, store.messages(conversation.id))
            if prompts:
                answered.append(prompts)
            if len(answered) == limit:
                break
    finally:
        store.close()
    if not answered:
        raise UsageError(
            "There is no conversation with a complete reply yet; chat first with `localspec chat`, or give "
            "prompts of your own with --prompts."
        )
    ranks = zip_longest(*answered)
    chosen = islice((prompt for rank in ranks for prompt in rank if prompt), limit)
    return Task("history", "your own conversations", tuple(chosen), stops=True)


def _answered(conversation: ConversationRow, messages: list[MessageRow]) -> list[Prompt]:
    """The conversation up to each complete reply, newest first; the turns are those that a chat sends."""
    turns: list[ChatMessage] = []
    if conversation.system_prompt:
        turns.append(ChatMessage("system", conversation.system_prompt))
    prompts: list[Prompt] = []
    for message in messages:
        refused = message.role == "user" and message.status == "failed"
        if message.role == "system" or refused or not message.content:
            continue
        asked = bool(turns) and turns[-1].role == "user"
        if message.role == "assistant" and message.status == "complete" and asked:
            prompts.append(Prompt(f"{conversation.id}.{message.id}", tuple(turns), message.content))
        # Chat templates want turns to alternate, so neighbours of one role are joined.
        if turns and turns[-1].role == message.role:
            turns[-1] = ChatMessage(message.role, f"{turns[-1].content}\n\n{message.content}")
        else:
            turns.append(ChatMessage(message.role, message.content))
    return prompts[::-1]
