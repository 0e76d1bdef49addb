"""Drafts through text: a draft model whose token ids mean something else than the target's.

What the target said becomes text, the text the draft's tokens; what these are continued with becomes text
again, and then the target's tokens. The longest prefix on which both agree is the draft, as in Hugging Face's
universal assisted generation.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections.abc import Sequence
from typing import Protocol

from localspec.drafters.base import Drafter
from localspec.drafters.retokenized import Retokenized, Texts, ends_in, whole_characters
from localspec.target import Vocabulary
from localspec.types import EMPTY_DRAFT, Advice, Budget, Draft, Outcome

_TAIL = 8
"""Verified tokens that are tokenized again together with a draft, so that it is split as the target would."""
_NEW_LINE = re.compile(rb"\n[ \t]*\Z")


class Rewindable(Drafter, Protocol):
    """A drafter whose text may change near its end."""

    def cut(self, length: int) -> None:
        """Forget all after the first `length` tokens of the text; `commit` tells of what comes instead."""


class TextBridge:
    """Lets `inner`, which drafts in the tokens of another vocabulary, draft for the target.

    `inner` sees one sequence of its own tokens, as if it were the session's. It changes near its end alone,
    where new text makes another token of the last ones, so a cache that follows it is kept.

    Control tokens are spelled out on both ways: a marker of turns that both vocabularies have is one token
    for both, and a foreign one is plain text for the draft. The end of a reply becomes the end token that the
    target's text had last.

    Args:
        inner: drafts in the tokens of `draft`.
        target: the vocabulary that drafts are to be in.
        draft: that of `inner`.
    """

    def __init__(self, inner: Rewindable, target: Vocabulary, draft: Vocabulary) -> None:
        self.name = inner.name
        self.needs = inner.needs
        self.remembers = inner.remembers
        self._inner = inner
        self._target = Texts(target)
        self._draft = Texts(draft)
        self._ends = target.eog_tokens
        self._draft_ends = draft.eog_tokens
        self._own = Retokenized(self._draft)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._said: list[int] = []
        # Length of the text up to each of them, and the bytes of a character that one ends within.
        self._marks: list[int] = []
        self._halves: dict[int, bytes] = {}
        # What was said since `inner` was last told, and what it has drafted since.
        self._unshown: list[int] = []
        self._proposed: tuple[int, ...] = ()

    def begin(self, tokens: Sequence[int]) -> None:
        """See `Drafter.begin`; what `tokens` share with the sequence before is not tokenized again."""
        shared = _shared(self._said, tokens)
        while shared - 1 in self._halves:
            shared -= 1
        if shared <= len(self._target.start):
            self._forget()
        else:
            self._own.cut(self._marks[shared - 1])
            del self._said[shared:], self._marks[shared:]
            self._halves = {place: half for place, half in self._halves.items() if place < shared}
            self._decoder.reset()
        self._take(tokens[len(self._said) :])
        self._unshown.clear()
        self._proposed = ()
        self._inner.begin(self._own.tokens)

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:
        """See `Drafter.propose`; `inner` is asked for the likeliest tokens, its draws being no use here."""
        del tokens
        advice = budget.advice
        if budget.tokens <= 0 or (advice is not None and not advice.more(Draft(source=self.name))):
            return EMPTY_DRAFT
        self._show()
        if not self._own.tokens:
            return EMPTY_DRAFT
        asked = Budget(budget.tokens, advice=None if advice is None else _Answered(advice))
        draft = self._inner.propose(self._own.tokens, asked).best_chain()
        self._proposed = draft.tokens
        return self._translated(draft, budget.tokens) if len(draft) else EMPTY_DRAFT

    def commit(self, outcome: Outcome) -> None:
        """See `Drafter.commit`; while nothing is drafted, the text is not even tokenized."""
        self._unshown += outcome.tokens
        if self._proposed:
            self._show()
        else:
            self._inner.commit(Outcome(tokens=(), accepted=0, drafted=0))

    def close(self) -> None:
        """See `Drafter.close`."""
        self._forget()
        self._inner.close()

    # --- from the target's tokens to the draft's

    def _show(self) -> None:
        """Let `inner` know what was said."""
        if not self._unshown and not self._proposed:
            return
        held = len(self._own.tokens)
        kept = self._take(self._unshown)
        self._unshown.clear()
        new = tuple(self._own.tokens[kept:])
        if kept < held or not new:
            self._inner.cut(kept)
        right = _shared(self._proposed, new) if kept == held else 0
        self._inner.commit(Outcome(tokens=new, accepted=right, drafted=len(self._proposed)))
        self._proposed = ()

    def _forget(self) -> None:
        self._own = Retokenized(self._draft)
        self._decoder.reset()
        self._said.clear()
        self._marks.clear()
        self._halves.clear()
        self._unshown.clear()
        self._proposed = ()

    def _take(self, tokens: Sequence[int]) -> int:
        """Add verified tokens; returns how many of the draft's tokens were not changed by them."""
        start = self._target.start
        skipped = len(start) if not self._said and tuple(tokens[: len(start)]) == start else 0
        length, texts = len(self._own.text), []
        for place, token in enumerate(tokens):
            piece = b"" if place < skipped else self._target.piece(token)
            # Half a character waits for the rest, and what is none becomes U+FFFD.
            text = self._decoder.decode(piece).encode()
            half = self._decoder.getstate()[0]
            if half:
                self._halves[len(self._said)] = half
            length += len(text)
            texts.append(text)
            self._said.append(token)
            self._marks.append(length)
        return self._own.append(b"".join(texts), self._ahead())

    def _ahead(self) -> bytes:
        """What may follow where a line has begun, for the draft to see its spaces split as it is used to.

        Some vocabularies split an indented line before its last space, others after it, and most split spaces
        at the end of a text in another way than within it. After a split that it has never seen a model has
        nothing to say; spaces that are no token of its own here it finds by itself.
        """
        last = self._said[-1] if self._said else None
        if last is None or not self._target.piece(last)[-1:].isspace():
            return b""
        tail = self._tail(0)
        if _NEW_LINE.search(tail):
            for ahead in (b"x", b" x"):
                # The target has said what it would have said before that.
                tokens = self._target.tokens(tail + ahead)
                ends = ends_in(tail + ahead, map(self._target.piece, tokens))
                if len(tail) in ends and tokens[ends.index(len(tail))] == last:
                    return ahead
        return b""

    # --- from the draft's tokens to the target's

    def _translated(self, draft: Draft, most: int) -> Draft:
        """The target's tokens for the text of `draft`, as far as they are certain to be what it says."""
        text, borders, ended = self._text_of(draft.tokens)
        found = self._continuation(text)
        if found is None:
            return EMPTY_DRAFT
        tokens, starts, ends = found
        places = [min(bisect_left(borders, end), len(borders) - 1) for end in ends]
        if ended and ends[-1:] in ([], [len(text)]):
            end = self._last_end()
            if end is not None:
                tokens.append(end)
                places.append(len(borders))
        elif tokens and not _said_in_one(starts[-1], ends[-1], borders):
            # It may go on: what follows could make another token of it.
            tokens.pop()
        chances = draft.confidence
        tokens = tokens[:most]
        confidence = tuple(chances[place] for place in places[: len(tokens)]) if chances else ()
        return Draft.chain(tokens, source=self.name, confidence=confidence)

    def _continuation(self, text: bytes) -> tuple[list[int], list[int], list[int]] | None:
        """The target's tokens that go on with `text`, and where in it each starts and ends.

        None where no token ends with what the target has said: it would have said another one.
        """
        known = bytes(self._own.text[self._own.end :]) + self._halves.get(len(self._said) - 1, b"")
        if not text.startswith(known):
            return None
        tail = self._tail(len(known))
        whole = tail + whole_characters(text)
        tokens = self._target.tokens(whole)
        ends = [end - len(tail) for end in ends_in(whole, map(self._target.piece, tokens))]
        borders = [-len(tail), *ends]
        if len(known) not in borders:
            return None
        first = len(borders) - 1 - borders[::-1].index(len(known))
        return tokens[first:], borders[first:-1], ends[first:]

    def _text_of(self, tokens: Sequence[int]) -> tuple[bytes, list[int], bool]:
        """Text of draft tokens, where each of them ends in it, and whether the reply ends with it."""
        text = b""
        borders: list[int] = []
        for token in tokens:
            piece = self._spoken(token)
            if not piece:
                return text, borders, token in self._draft_ends
            text += piece
            borders.append(len(text))
        return text, borders, False

    def _spoken(self, token: int) -> bytes:
        """A draft token's text; empty for a control token that the target does not have."""
        shown = self._draft.vocabulary.token_bytes(token)
        if shown:
            return shown
        spelled = self._draft.piece(token)
        same = self._target.tokens(spelled) if spelled else []
        return spelled if len(same) == 1 and self._target.piece(same[0]) == spelled else b""

    def _tail(self, known: int) -> bytes:
        """Text of the last verified tokens but for the `known` bytes at its end that a draft repeats."""
        first = max(len(self._said) - _TAIL, 0)
        if first == 0 and tuple(self._said[: len(self._target.start)]) == self._target.start:
            first = len(self._target.start)
        pieces = [self._target.piece(token) for token in self._said[first:]]
        while pieces:
            text = b"".join(pieces)
            if len(text) < known:
                break
            text = text[: len(text) - known]
            if len(whole_characters(text)) == len(text):
                return text
            # It begins within a character, or holds what is none.
            pieces.pop(0)
        return b""

    def _last_end(self) -> int | None:
        """The end token that the text had last."""
        return next((token for token in reversed(self._said) if token in self._ends), None)


class _Answered:
    """Advice whose first question, whether a draft is worth its time at all, was answered with yes."""

    def __init__(self, advice: Advice) -> None:
        self._advice = advice
        self.rate = advice.rate
        self.prospect = advice.prospect

    def more(self, draft: Draft) -> bool:
        """See `Advice.more`."""
        return not len(draft) or self._advice.more(draft)

    def block(self, source: str) -> bool:
        """See `Advice.block`."""
        return self._advice.block(source)

    def wants(self, source: str) -> bool:
        """See `Advice.wants`."""
        return self._advice.wants(source)

    @property
    def looking(self) -> bool:
        """See `Advice.looking`."""
        return self._advice.looking


def _said_in_one(start: int, end: int, borders: Sequence[int]) -> bool:
    """Whether one draft token ends where this one does and begins no later: the draft knew no longer one."""
    place = bisect_left(borders, end)
    if place == len(borders) or borders[place] != end:
        return False
    return (borders[place - 1] if place else 0) <= start


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens with which both begin."""
    both = zip(one, other, strict=False)
    return next((place for place, (a, b) in enumerate(both) if a != b), min(len(one), len(other)))
