"""From the messages of a chat to the tokens of its prompt: template, window, and what is known already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.chat.template import ChatTemplate
from localspec.chat.window import fit
from localspec.known_text import KnownText
from localspec.messages import Generate
from localspec.runtime.model import LlamaModel
from localspec.types import ChatMessage

_NO_SWITCH = (
    "The model's chat template has no switch for thinking, so --think and --no-think change nothing here."
)
_RESERVE = 512
"""Tokens kept free for a reply of unknown length, at most a quarter of the context."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as text and as tokens, the reply so far included in the latter; `dropped` messages are not."""

    text: str
    tokens: list[int]
    dropped: int = 0


class Prompting:
    """Writes prompts for one model and one context.

    Args:
        template: the model's, or the user's own.
        vocabulary: tokenizes.
        capacity: tokens of the context.
    """

    def __init__(self, template: ChatTemplate, vocabulary: LlamaModel, capacity: int) -> None:
        self._template = template
        self._vocabulary = vocabulary
        self._capacity = capacity
        self._known = KnownText()
        self._told: set[str] = set()
        self._untold: list[str] = []
        self._tell(template.note)

    def prompt(self, request: Generate, said: Sequence[int]) -> Prompt:
        """The prompt of `request` and the reply's tokens `said` so far, without turns that do not fit.

        Raises:
            PromptTooLongError: the newest message does not fit, with every older turn dropped.
            UsageError: the template cannot write these messages.
        """
        if request.prompt is not None:
            return Prompt(request.prompt, [*self._tokens(request.prompt), *said])
        if request.think is not None and not self._template.can_switch_thinking:
            self._tell(_NO_SWITCH)
        reserve = min(request.max_tokens or _RESERVE, _RESERVE, self._capacity // 4)
        window = fit(
            request.messages,
            count=lambda messages: len(self._tokens(self._render(messages, request))),
            limit=self._capacity,
            reserve=reserve + len(said),
        )
        text = self._render(window.messages, request)
        self._tell(self._template.note)
        return Prompt(text, [*self._tokens(text), *said], window.dropped)

    def said(self, prompt_text: str, prompt: Sequence[int], text: str, tokens: Sequence[int]) -> None:
        """Keep a reply's tokens for the next prompt, if its text says the same."""
        data = b"".join(map(self._vocabulary.token_bytes, tokens))
        if prompt_text and data == text.encode():
            self._known = KnownText(prompt_text + text, [*prompt, *tokens])

    def stops(self, request: Generate) -> tuple[str, ...]:
        """Texts that end the reply: those of `request`, and those of its format."""
        return request.stop if request.prompt is not None else (*request.stop, *self._template.stops)

    def take_notes(self) -> list[str]:
        """What users should know of the template, each once; new ones may come with every prompt."""
        notes, self._untold = self._untold, []
        return notes

    def _tell(self, note: str) -> None:
        if note and note not in self._told:
            self._told.add(note)
            self._untold.append(note)

    def _render(self, messages: Sequence[ChatMessage], request: Generate) -> str:
        return self._template.render(messages, think=request.think)

    def _tokens(self, text: str) -> list[int]:
        return self._known.tokenize(text, self._vocabulary)
