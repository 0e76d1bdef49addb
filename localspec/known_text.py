"""Text whose exact tokens are known, so that the next prompt need not be tokenized into other ones."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.runtime.model import LlamaModel


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
        bos = model.token_text(model.bos)
        writes_bos = bool(bos) and text.startswith(bos)
        return model.tokenize(text, add_special=not writes_bos, parse_special=True)
