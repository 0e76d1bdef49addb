"""Whether a model's drafts have come true lately: what a drafter spends on reading depends on it."""

from __future__ import annotations

from collections.abc import Sequence

_PROVEN = 16
"""Drafts with accepted tokens, on balance, after which all of the text is worth reading."""
_UNUSED = 64
"""Steps without an accepted token after which the next prompt is no longer read before it is needed."""


class Proof:
    """Compares the first token of every draft with what was said then, whether it was verified or not."""

    def __init__(self) -> None:
        self._unused = 0
        self._balance = 0
        self._first: int | None = None

    @property
    def given(self) -> bool:
        """Whether drafts come true often enough to read everything for them."""
        return self._balance >= _PROVEN

    @property
    def expected(self) -> bool:
        """Whether the next prompt is to be read at once: drafts came true, or are yet to come."""
        return self._unused < _UNUSED

    def drafted(self, tokens: Sequence[int]) -> None:
        """A draft was made."""
        self._first = tokens[0] if tokens else None

    def said(self, tokens: Sequence[int]) -> None:
        """A step has said `tokens`."""
        if self._first is not None and tokens:
            hit = self._first == tokens[0]
            self._balance = min(self._balance + 1, 2 * _PROVEN) if hit else max(self._balance - 1, 0)
            self._unused = 0 if hit else self._unused
            self._first = None
        self._unused += 1
