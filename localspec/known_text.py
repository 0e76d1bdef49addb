"""Text whose exact tokens are known, so that the next prompt need not be tokenized into other ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from localspec.runtime.model import LlamaModel


class PromptTokenizer(Protocol):
    """What the tokens of a prompt need of a vocabulary; `LlamaModel` has it."""

    @property
    def bos(self) -> int:
        """Beginning-of-text token, -1 where there is none."""

    @property
    def adds_bos(self) -> bool:
        """Whether `tokenize(add_special=True)` begins with the beginning-of-text token."""

    def token_text(self, token: int) -> str:
        """The token's text with control tokens spelled out; empty for -1."""

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`."""


def prompt_tokens(text: str, vocabulary: PromptTokenizer) -> list[int]:
    """Token ids of prompt text, as llama.cpp's server makes them of what a chat template writes.

    The vocabulary says whether a text begins with the beginning-of-text token, and a template may write it,
    too: it then stands there once.
    """
    bos = vocabulary.token_text(vocabulary.bos)
    if bos and text.startswith(bos) and vocabulary.adds_bos:
        text = text.removeprefix(bos)
    return vocabulary.tokenize(text, add_special=True, parse_special=True)


@dataclass
class KnownText:
    """A prompt and its reply, with the very tokens that they were said with."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)

    def tokenize(self, text: str, model: LlamaModel) -> list[int]:
        """Token ids of prompt text; where it begins with the known text, that keeps its tokens."""
        if self.text and text.startswith(self.text):
            rest = model.tokenize(text[len(self.text) :], add_special=False, parse_special=True)
            # Only a control token is a clean cut: some vocabularies put a space before text alone.
            if not rest or not model.token_bytes(rest[0]):
                return self.tokens + rest
        return prompt_tokens(text, model)
