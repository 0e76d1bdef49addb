"""Reasoning within replies: the marks around it, and telling it from the answer while the text still grows.

Reasoning is recognised where models put it, at the beginning of a reply, so that an answer which speaks of a
mark is not taken for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Marks:
    """What stands around a block of reasoning.

    Attributes:
        begin, end: before and after it.
        around: what a model writes between its blocks and its answer, and is part of neither.
        kept: whether a prompt may show them within a reply. Where not, a template writes them by itself, and
            gets the reasoning apart from the answer.
        tokens: control tokens of which the marks consist, where they are not one token each.
    """

    begin: str
    end: str
    around: tuple[str, ...] = ()
    kept: bool = True
    tokens: tuple[str, ...] = ()


MARKS = (
    Marks("<think>", "</think>"),
    # gpt-oss: every message names its channel.
    Marks(
        "<|channel|>analysis<|message|>",
        "<|end|>",
        around=("<|start|>assistant", "<|channel|>final<|message|>", "<|channel|>commentary<|message|>"),
        kept=False,
        tokens=("<|channel|>", "<|message|>", "<|start|>", "<|end|>"),
    ),
    # Gemma 4
    Marks("<|channel>thought", "<channel|>", kept=False, tokens=("<|channel>", "<channel|>")),
    # Magistral
    Marks("[THINK]", "[/THINK]"),
    # Command A
    Marks("<|START_THINKING|>", "<|END_THINKING|>", around=("<|START_RESPONSE|>",), kept=False),
    # Kimi VL
    Marks("◁think▷", "◁/think▷"),
    # Seed OSS
    Marks("<seed:think>", "</seed:think>"),
    # EXAONE Deep
    Marks("<thought>", "</thought>"),
    # Apertus
    Marks("<|inner_prefix|>", "<|inner_suffix|>"),
)
"""Those of the models in use."""

TOKEN_GROUPS = tuple(marks.tokens or (marks.begin, marks.end) for marks in MARKS)
"""Control tokens that are part of a reply's text in a vocabulary that has all of one group."""

KEPT = "reasoning"
"""Where a reply's stats keep what is known of its reasoning beside its text."""

_STARTS = {marks.begin: marks for marks in MARKS}
_AROUND = tuple(text for marks in MARKS for text in marks.around)
_LONGEST = max(map(len, (*_STARTS, *_AROUND)))
_END_ALONE = re.compile(rf"(?:^|\n)[ \t]*{re.escape(MARKS[0].end)}[ \t]*(?:\n|$)")


def opening_of(prompt: str) -> str:
    """The mark of reasoning that a prompt ends with, so that the reply begins within it; "" for none."""
    end = prompt[-2 * _LONGEST :].rstrip()
    return next((begin for begin in _STARTS if end.endswith(begin)), "")


@dataclass
class Reasoning:
    """A reply taken apart, piece by piece; how it is cut into pieces makes no difference.

    Args:
        opening: the mark that the prompt ended with, so that the reply begins within a block.

    Attributes:
        blocks: the reasoning without its marks, oldest first; the last may still grow.
        answer: all that is no reasoning.
        thinking: whether the last block still grows.
    """

    opening: str = ""
    blocks: list[str] = field(default_factory=list)
    answer: str = ""
    thinking: bool = False

    def __post_init__(self) -> None:
        self._held = ""
        self._answering = False
        self._marks = _STARTS.get(self.opening)
        if self._marks is not None:
            self._open(self._marks)
        # A model may repeat the mark that the prompt has given it already.
        self._at_start = self.thinking

    def add(self, text: str) -> None:
        """Take the next piece."""
        if self._answering:
            self.answer += text
            return
        self._held += text
        while self._held and not self._answering and (self._think() if self.thinking else self._look()):
            pass

    def finish(self) -> None:
        """No piece follows: what was held back as the beginning of a mark is text."""
        if self.thinking:
            self.blocks[-1] += self._held
        else:
            self.answer += self._held.lstrip() if self.blocks else self._held
        self._held = ""

    def _open(self, marks: Marks) -> None:
        self._marks, self.thinking = marks, True
        self.blocks.append("")

    def _look(self) -> bool:
        """Where a block may begin; True when there is more to do."""
        text = self._held.lstrip()
        for begin, marks in _STARTS.items():
            if text.startswith(begin):
                self._held = text[len(begin) :]
                self._open(marks)
                return True
        for around in _AROUND:
            if text.startswith(around):
                self._held = text[len(around) :]
                return True
        if any(mark.startswith(text) for mark in (*_STARTS, *_AROUND)):
            return False
        self._answering = True
        # Blank lines between reasoning and answer are no part of either.
        self.answer, self._held = text if self.blocks else self._held, ""
        return False

    def _think(self) -> bool:
        """Within a block; True when it has ended."""
        marks = self._marks
        assert marks is not None  # noqa: S101 - `_open` has set it
        if self._at_start:
            text = self._held.lstrip()
            if marks.begin.startswith(text):
                return False
            if text.startswith(marks.begin):
                self._held = text[len(marks.begin) :]
            self._at_start = False
        said, end, rest = self._held.partition(marks.end)
        if end:
            self.blocks[-1] += said
            self._held, self.thinking = rest, False
            return True
        sure = len(said) - _beginning(said, marks.end)
        self.blocks[-1] += said[:sure]
        self._held = said[sure:]
        return False


def _beginning(text: str, mark: str) -> int:
    """Length of the longest beginning of `mark`, but not the whole, that `text` ends with."""
    most = min(len(text), len(mark) - 1)
    return next((size for size in range(most, 0, -1) if mark.startswith(text[-size:])), 0)


def reasoning_of(text: str, opening: str | None = None) -> Reasoning:
    """A whole reply taken apart.

    Args:
        text: the reply.
        opening: the mark that its prompt ended with; None where that is not known: the end of a block on a
            line of its own then tells that everything before it is reasoning.
    """
    if opening is None:
        opening = _opening_within(text)
    reasoning = Reasoning(opening)
    reasoning.add(text)
    reasoning.finish()
    return reasoning


def without_reasoning(text: str, opening: str | None = None) -> str:
    """The answer of a reply; as it is where it has no reasoning."""
    reasoning = reasoning_of(text, opening)
    return reasoning.answer if reasoning.blocks else text


def told_again(text: str, opening: str | None) -> str:
    """A reply as later prompts are to have it, where its own prompt had opened a block of reasoning.

    Without its beginning, a block that was stopped within would be taken for the answer, and so would one
    between marks of which the end alone tells nothing.

    Args:
        text: the reply.
        opening: the mark that its prompt ended with; "" for none, None where that is not known.
    """
    marks = _STARTS.get(opening or "")
    if marks is None:
        return text
    reasoning = reasoning_of(text, opening)
    if not reasoning.thinking and marks is MARKS[0]:
        # Templates look for the end of such a block.
        return text
    begun = text if text.lstrip().startswith(marks.begin) else f"{marks.begin}{text}"
    return f"{begun}{marks.end}" if reasoning.thinking else begun


def kept_opening(text: str, opening: str) -> dict[str, Any]:
    """What a reply's stats keep of the mark that its prompt ended with; nothing where that tells nothing."""
    # What would be taken for reasoning without it is kept as none.
    if not (opening or reasoning_of(text).blocks):
        return {}
    return {KEPT: {"opening": opening, "blocks": []}}


def opening_in(stats: dict[str, Any] | None) -> str | None:
    """The mark that a kept reply's prompt ended with; None where that is not known."""
    # An imported conversation may hold anything.
    kept = (stats or {}).get(KEPT)
    opening = kept.get("opening") if isinstance(kept, dict) else None
    return opening if isinstance(opening, str) else None


def _opening_within(text: str) -> str:
    # Only templates of models that think between these marks are known to write the first one themselves.
    return MARKS[0].begin if _unopened(text) and _END_ALONE.search(text) else ""


def split_thinking(content: str) -> tuple[str, str]:
    """A reply's reasoning and the rest of it, for a prompt; no reasoning where the reply has no whole block.

    The opening mark may be missing: some templates write it into the prompt. Marks that no prompt may show
    are taken away from a block that was stopped within, too.
    """
    opening = MARKS[0].begin if _unopened(content) else None
    reasoning = reasoning_of(content, opening)
    if not reasoning.blocks or (reasoning.thinking and shows_marks(content)):
        return "", content
    return "\n\n".join(block.strip() for block in reasoning.blocks).strip(), reasoning.answer.lstrip("\n")


def _unopened(content: str) -> bool:
    return MARKS[0].end in content and not content.lstrip().startswith((*_STARTS, *_AROUND))


def shows_marks(content: str) -> bool:
    """Whether a prompt may show a reply as it is, with the marks of its reasoning."""
    start = content.lstrip()
    return not any(start.startswith((marks.begin, *marks.around)) and not marks.kept for marks in MARKS)
