"""Vocabularies that are made up, a drafter in the tokens of one, and what a target may say in another."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence

from hypothesis import strategies as st

from localspec.drafters.base import Needs
from localspec.drafters.bridge import TextBridge
from localspec.types import Budget, Draft, Outcome

PROSE = (
    "A bicycle stays upright because its rider steers it, a little to the left and a little to the right.\n\n"
    "def lean(angle: float) -> float:\n    if angle < 0.1:\n        return 0.0\n    return angle * 2\n\n"
    "1. Café au lait, 2 €\n2. Crème brûlée — 12,50 €\n3. 🦊🦊 naïve\tfoxes…   and    spaces.\n"
)

EURO = "€".encode()
BYTES = [bytes([byte]) for byte in range(256)]
WORDS = [
    b" y",
    b"ab",
    b"abc",
    b" a",
    b" b",
    b" ab",
    b"cd",
    b"def",
    b"  ",
    b"    ",
    b"\n ",
    b". ",
    EURO,
    EURO[:2],
]
OTHERS = [
    b"bc",
    b"abcd",
    b" d",
    b" abc",
    b"ef",
    b"\n\n",
    b"\n    ",
    b" " + EURO,
    EURO[1:],
    b"e.",
    b"a" + EURO,
]


class MadeUp:
    """A vocabulary that takes the longest token that fits, as those of RWKV do.

    Args:
        words: texts of its tokens; the single bytes come with them.
        control: spelled texts of control tokens, the first ids; "<s>" begins texts, "<e>" ends replies.
        space: whether a space is put before every piece of text, as SentencePiece does.
    """

    def __init__(
        self, words: Sequence[bytes] = (), control: Sequence[str] = (), *, space: bool = False
    ) -> None:
        self.control = list(control)
        self.pieces = [b""] * len(control) + list(dict.fromkeys([*BYTES, *words]))
        self.ids = {piece: token for token, piece in enumerate(self.pieces) if piece}
        self.longest = max(map(len, self.pieces))
        self.space = space

    @property
    def eog_tokens(self) -> frozenset[int]:
        return frozenset(token for token, text in enumerate(self.control) if text == "<e>")

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token]

    def token_text(self, token: int) -> str:
        return (
            self.control[token]
            if token < len(self.control)
            else self.pieces[token].decode("utf-8", "replace")
        )

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        tokens = [self.control.index("<s>")] if add_special and "<s>" in self.control else []
        for special, part in self._parts(text, parse_special):
            if special:
                tokens.append(self.control.index(part))
            else:
                tokens += self._plain((" " if self.space else "") + part)
        return tokens

    def _parts(self, text: str, parse: bool) -> Iterator[tuple[bool, str]]:
        while text:
            found = (
                min((text.find(one), one) for one in self.control if one in text)
                if parse and any(one in text for one in self.control)
                else (len(text), "")
            )
            if found[0]:
                yield False, text[: found[0]]
            if found[1]:
                yield True, found[1]
            text = text[found[0] + len(found[1]) :]

    def _plain(self, text: str) -> Iterator[int]:
        data, at = text.encode(), 0
        while at < len(data):
            size = next(n for n in range(self.longest, 0, -1) if data[at : at + n] in self.ids)
            yield self.ids[data[at : at + size]]
            at += size

    def of(self, text: str) -> list[int]:
        return self.tokenize(text, add_special=False, parse_special=True)

    def said(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self.pieces[token] or self.control[token].encode() for token in tokens)


class SplitsWords(MadeUp):
    """One that splits text into words first, each with the space before it, as GPT-2's does."""

    def _plain(self, text: str) -> Iterator[int]:
        for part in re.findall(r" ?\w+|\s+(?!\S)|\s+|[^\w\s]+", text):
            yield from super()._plain(part)


class Scripted:
    """Drafts what it is told to, and holds the sequence that it was shown."""

    name, needs, remembers = "scripted", Needs.TOKENS, False

    def __init__(self, say: Callable[[list[int]], Sequence[int]] = lambda tokens: ()) -> None:
        self.say = say
        self.tokens: list[int] = []
        self.cuts: list[int] = []
        self.budgets: list[Budget] = []
        self.outcomes: list[Outcome] = []

    def begin(self, tokens: Sequence[int]) -> None:
        self.tokens = list(tokens)

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        assert list(tokens) == self.tokens
        self.budgets.append(budget)
        said = tuple(self.say(self.tokens))[: budget.tokens]
        confidence = tuple(0.9**place for place in range(1, len(said) + 1))
        return Draft.chain(said, source=self.name, confidence=confidence)

    def commit(self, outcome: Outcome) -> None:
        self.tokens += outcome.tokens
        self.outcomes.append(outcome)

    def cut(self, length: int) -> None:
        assert length <= len(self.tokens)
        self.cuts.append(length)
        del self.tokens[length:]

    def close(self) -> None:
        self.tokens = []


def bridge(
    target: MadeUp, draft: MadeUp, say: Callable[[list[int]], Sequence[int]] = lambda tokens: ()
) -> tuple[TextBridge, Scripted]:
    inner = Scripted(say)
    return TextBridge(inner, target, draft), inner


def commit(drafter: TextBridge, tokens: Sequence[int]) -> None:
    """What was said is shown to the draft model when it is asked for a draft."""
    drafter.commit(Outcome(tuple(tokens), 0, 0))
    drafter.propose([], Budget(1))


words = st.lists(st.sampled_from(WORDS + OTHERS), unique=True)
plain = st.builds(MadeUp, words, space=st.booleans())
marked = st.builds(MadeUp, words, st.sampled_from([(), ("<s>",), ("<s>", "<e>"), ("<e>", "<t>")]))
vocabularies = plain | marked


@st.composite
def sessions(draw: st.DrawFn) -> tuple[MadeUp, MadeUp, list[list[int]], random.Random]:
    """Two vocabularies, and what the target says piece by piece: any tokens, whole characters or not."""
    target, draft = draw(vocabularies), draw(vocabularies)
    token = st.integers(0, len(target.pieces) - 1)
    said = draw(st.lists(st.lists(token, max_size=6), min_size=1, max_size=12))
    return target, draft, said, random.Random(draw(st.integers(0, 99)))
