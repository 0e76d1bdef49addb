"""Reasoning of replies: how long it took, what of that is kept, the answer without it. No widgets here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from localspec.chat.thinking import KEPT, Reasoning, opening_in, reasoning_of
from localspec.messages import Step
from tui.conversation import Message


@dataclass(frozen=True, slots=True)
class Span:
    """What one block of reasoning took, to within a step; None where that is not known."""

    seconds: float | None = None
    tokens: int | None = None


class Thoughts:
    """A reply's reasoning while it is written, as one fold over the steps.

    Args:
        opening: the mark that its prompt ended with, "" for none.

    Attributes:
        reasoning: the text so far, taken apart.
        spans: one for each of its blocks, by the engine's clock.
    """

    def __init__(self, opening: str = "") -> None:
        self._text: list[str] = []
        self._began_ns = self._now_ns = 0
        self._begin(opening)

    def _begin(self, opening: str) -> None:
        self.reasoning = Reasoning(opening)
        self.spans = [Span(0.0, 0)] * len(self.reasoning.blocks)

    def begin_within(self, opening: str) -> None:
        """The prompt ends with this mark; what is told after the first step is told too late."""
        if not self._text:
            self._begin(opening)

    def add(self, step: Step) -> None:
        """Take a step."""
        reasoning, stats = self.reasoning, step.stats
        before, thinking = len(reasoning.blocks), reasoning.thinking
        reasoning.add(step.text)
        self._text.append(step.text)
        if thinking:
            self._lengthen(stats.time_ns, stats.emitted)
        for _ in reasoning.blocks[before:]:
            self._began_ns = self._now_ns
            self.spans.append(Span(0.0, 0))
            self._lengthen(stats.time_ns, stats.emitted)
        self._now_ns = stats.time_ns

    def hear(self, text: str) -> None:
        """Take text of which it is not known how long it took."""
        self.reasoning.add(text)
        self._text.append(text)
        self.spans = [Span()] * len(self.reasoning.blocks)

    def kept(self) -> dict[str, Any]:
        """What the stats of the reply keep; nothing where it has no reasoning."""
        # What would be taken for reasoning without it is kept as none.
        if not (self.spans or reasoning_of("".join(self._text)).blocks):
            return {}
        return {KEPT: {"opening": self.reasoning.opening, "blocks": [asdict(span) for span in self.spans]}}

    def _lengthen(self, now_ns: int, tokens: int) -> None:
        span = self.spans[-1]
        self.spans[-1] = Span(round((now_ns - self._began_ns) * 1e-9, 3), (span.tokens or 0) + tokens)


def span_in(stats: dict[str, Any] | None, number: int) -> Span:
    """What block `number` of a kept reply took."""
    blocks = _kept(stats).get("blocks")
    block = blocks[number] if isinstance(blocks, list) and number < len(blocks) else None
    if not isinstance(block, dict):
        return Span()
    seconds, tokens = block.get("seconds"), block.get("tokens")
    return Span(
        float(seconds) if isinstance(seconds, int | float) else None,
        tokens if isinstance(tokens, int) else None,
    )


def answer_of(message: Message) -> str:
    """A message without its reasoning; a question as it is."""
    if message.role == "user":
        return message.text
    reasoning = reasoning_of(message.text, opening_in(message.stats))
    return reasoning.answer if reasoning.blocks else message.text


def _kept(stats: dict[str, Any] | None) -> dict[str, Any]:
    # An imported conversation may hold anything.
    kept = (stats or {}).get(KEPT)
    return kept if isinstance(kept, dict) else {}
