"""One text in the tokens of a vocabulary, kept up while the text grows: only its end is tokenized again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

from localspec.target import Vocabulary

_BACK = 16
"""Tokens before the end that are tokenized again with new text."""
_AGREE = 2
"""Tokens that have to be as before, for all that comes before them to be taken as it is."""


class Texts:
    """A vocabulary as text in bytes, control tokens spelled out.

    Attributes:
        vocabulary: itself.
        start: what the model wants before every text: its beginning-of-text token, or nothing.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.start = tuple(vocabulary.tokenize("", add_special=True, parse_special=False)[:1])
        self._pieces: dict[int, bytes] = {}

    def piece(self, token: int) -> bytes:
        """A token's text."""
        piece = self._pieces.get(token)
        if piece is None:
            piece = self.vocabulary.token_bytes(token) or self.vocabulary.token_text(token).encode()
            self._pieces[token] = piece
        return piece

    def tokens(self, text: bytes) -> list[int]:
        """Tokens of a piece of text, which has to be whole characters."""
        return self.vocabulary.tokenize(text.decode(), add_special=False, parse_special=True)


class Retokenized:
    """A growing text and its tokens.

    The tokens are those that the whole text has, as far as a tokenizer that has come to the same border by
    the same tokens goes on in the same way; this holds of those that split a text into words first.

    Attributes:
        text: so far, whole characters.
        tokens: its tokens, those that the vocabulary wants before every text first.
    """

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self.text = bytearray()
        self.tokens: list[int] = list(texts.start)
        self._ends = [0] * len(self.tokens)

    @property
    def end(self) -> int:
        """Where in the text the last token ends."""
        return self._ends[-1] if self._ends else 0

    def append(self, new: bytes, ahead: bytes = b"") -> int:
        """Add text; returns how many tokens from the beginning are as they were.

        Args:
            new: whole characters.
            ahead: text that is likely to follow. Tokens are those of a text that goes on with it, as far as
                they end before it.
        """
        self.text += new
        fixed, back = len(self._texts.start), _BACK
        while True:
            first = self._border(max(len(self.tokens) - back, fixed))
            begin = self._ends[first - 1] if first else 0
            rest = bytes(self.text[begin:]) + ahead
            fresh = self._texts.tokens(rest)
            ends = [begin + end for end in ends_in(rest, map(self._texts.piece, fresh))]
            inside = bisect_right(ends, len(self.text))
            del fresh[inside:], ends[inside:]
            met = (first, 0) if first == fixed else self._met(first, fresh, ends)
            if met is not None:
                break
            back *= 4
        kept, at = met
        while kept < len(self.tokens) and at < len(fresh) and self.tokens[kept] == fresh[at]:
            kept, at = kept + 1, at + 1
        self.tokens[kept:] = fresh[at:]
        self._ends[kept:] = ends[at:]
        return kept

    def cut(self, length: int) -> None:
        """Drop all after the first `length` bytes, which have to be whole characters; `append` comes next."""
        del self.text[length:]
        whole = max(bisect_right(self._ends, length), len(self._texts.start))
        del self.tokens[whole:], self._ends[whole:]

    def _border(self, first: int) -> int:
        """The last token up to `first` that begins with a character."""
        fixed = len(self._texts.start)
        while first > fixed and self._ends[first - 1] < len(self.text):
            if self.text[self._ends[first - 1]] & 0xC0 != 0x80:
                return first
            first -= 1
        return first

    def _met(self, first: int, fresh: Sequence[int], ends: Sequence[int]) -> tuple[int, int] | None:
        """Where, in `tokens` and in `fresh`, both agree for the first time."""
        ours, theirs = first, 0
        while ours + _AGREE <= len(self.tokens) and theirs + _AGREE <= len(fresh):
            our_end, their_end = self._ends[ours], ends[theirs]
            if (
                self.tokens[ours : ours + _AGREE] == fresh[theirs : theirs + _AGREE]
                and self._ends[ours : ours + _AGREE] == ends[theirs : theirs + _AGREE]
            ):
                return ours, theirs
            ours += our_end <= their_end
            theirs += their_end <= our_end
        return None


def ends_in(text: bytes, pieces: Iterable[bytes]) -> list[int]:
    """Where in `text` each of its tokens' `pieces` ends.

    Some tokenizers put a space before the text and after every control token, which is then not in the text.
    """
    pieces = list(pieces)
    ends = list(accumulate(map(len, pieces)))
    extra = ends[-1] - len(text) if ends else 0
    if extra in (0, 1) and b"".join(pieces)[extra:] == text:
        return [end - extra for end in ends]
    ends.clear()
    at = 0
    for piece in pieces:
        if text.startswith(piece, at):
            at += len(piece)
        elif piece.startswith(b" ") and text.startswith(piece[1:], at):
            at += len(piece) - 1
        else:
            at = min(at + len(piece), len(text))
        ends.append(at)
    return ends


def whole_characters(text: bytes) -> bytes:
    """The beginning of `text` that is valid UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return text[: error.start]
    return text
