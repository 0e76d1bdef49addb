"""Tokens searchable by what was said last: the present text, and everything remembered from earlier ones.

The present text is searched by its last two tokens, and by the last four: of a common pair the newest places
need not hold the longest match. The memory is searched by the last four alone. 0.6 us a token to append, 12
bytes a token of the memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
Places = NDArray[np.int64]

SEPARATOR = -1
"""Stands before every document; it is no token, so no match and no continuation reaches over it."""

ORDERS = (4, 2)
"""Numbers of trailing tokens that places of the present text are found by."""

MEMORY_ORDERS = (4,)
"""The same for the memory."""

_NOWHERE: Places = np.empty(0, np.int64)
_MERGE_AT = 1 << 15
"""Appended tokens beyond which the sorted part is sorted anew: a dictionary takes ten times its memory."""
_BITS = 32
"""Of a token id in the key of several: recordings to be simulated may hold any id."""
_LOW = np.uint64(0xFFFFFFFF)
_SHIFT = np.uint64(32)


class TextIndex:
    """One growing text that can also be cut: prompt and reply of a conversation.

    A place is the index of the token that followed; a place is found once that token is there.
    """

    def __init__(self) -> None:
        self._tokens: Tokens = np.empty(1024, np.int32)
        self._size = 0
        self._places: dict[int, dict[int, list[int]]] = {order: {} for order in ORDERS}
        self._keys = dict.fromkeys(ORDERS, 0)

    def __len__(self) -> int:
        return self._size

    @property
    def tokens(self) -> Tokens:
        """The text; a view that the next change may invalidate."""
        return self._tokens[: self._size]

    def continued(self, tokens: Tokens) -> Tokens:
        """The text as if `tokens` came next; a view that the next change or such call invalidates."""
        end = self._size + len(tokens)
        self._reserve(end)
        self._tokens[self._size : end] = tokens
        return self._tokens[:end]

    def begin(self, tokens: Sequence[int]) -> None:
        """Make it the text `tokens`; what it shares with the present text from the start on stays."""
        wanted = np.asarray(tokens, np.int32)
        common = min(self._size, len(wanted))
        differs = np.flatnonzero(self._tokens[:common] != wanted[:common])
        self.cut(int(differs[0]) if len(differs) else common)
        self.extend(wanted[self._size :].tolist())

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens."""
        size, new = self._size, len(tokens)
        self._reserve(size + new)
        self._tokens[size : size + new] = tokens
        self._size = size + new
        for order, places in self._places.items():
            # The key of the last tokens, which rolls on with every new one.
            key, mask = self._keys[order], (1 << _BITS * order) - 1
            index = size
            for token in tokens:
                if index >= order:
                    there = places.get(key)
                    if there is None:
                        places[key] = [index]
                    else:
                        there.append(index)
                key = (key << _BITS | token) & mask
                index += 1
            self._keys[order] = key

    def _reserve(self, size: int) -> None:
        if size > len(self._tokens):
            grown = np.empty(max(2 * len(self._tokens), size), np.int32)
            grown[: self._size] = self.tokens
            self._tokens = grown

    def cut(self, size: int) -> None:
        """Drop everything after the first `size` tokens, as if it had never been appended."""
        first = max(min(self._size, size) - max(ORDERS), 0)
        tokens = self._tokens[first : self._size].tolist()
        for order, places in self._places.items():
            for index in range(self._size - 1, max(order, size) - 1, -1):
                key = _key(tokens[index - order - first : index - first])
                there = places[key]
                there.pop()
                if not there:
                    del places[key]
        self._size = min(self._size, size)
        for order in ORDERS:
            self._keys[order] = _key(self._tokens[max(self._size - order, 0) : self._size].tolist())

    def newest(self, order: int, limit: int) -> list[int]:
        """Places after the text's own last `order` tokens, the newest first, at most `limit`."""
        if self._size <= order:
            return []
        there = self._places[order].get(self._keys[order])
        return there[: -limit - 1 : -1] if there else []

    def places(self, order: int, limit: int) -> Places:
        """The same as an array."""
        return np.array(self.newest(order, limit), np.int64)


class TokenIndex:
    """All remembered documents in one array: a sorted part, and what was appended since.

    Args:
        tokens: the documents, `SEPARATOR` before each.

    Attributes:
        hidden: (start, end) of documents that a search leaves out.
    """

    def __init__(self, tokens: Tokens | None = None) -> None:
        self.hidden: tuple[tuple[int, int], ...] = ()
        given = np.empty(0, np.int32) if tokens is None else np.asarray(tokens, np.int32)
        self._tokens = given.copy()
        self._size = len(given)
        self._sort()

    def __len__(self) -> int:
        return self._size

    @property
    def tokens(self) -> Tokens:
        """All documents; a view that `append` may invalidate."""
        return self._tokens[: self._size]

    @property
    def nbytes(self) -> int:
        """Bytes of the tokens and of the sorted part."""
        return self._tokens.nbytes + sum(part.nbytes for part in self._sorted.values())

    def append(self, document: Tokens) -> tuple[int, int]:
        """Add a document; returns the indices of its first token and after its last."""
        start = self._size + 1
        end = start + len(document)
        if end > len(self._tokens):
            grown = np.empty(max(end, len(self._tokens) + (len(self._tokens) >> 4) + 1024), np.int32)
            grown[: self._size] = self.tokens
            self._tokens = grown
        self._tokens[start - 1] = SEPARATOR
        self._tokens[start:end] = document
        self._size = end
        if end - self._sorted_size > _MERGE_AT:
            self._sort()
            return start, end
        said = document.tolist()
        for order, places in self._recent.items():
            for index in range(order, len(said)):
                places.setdefault(_key(said[index - order : index]), []).append(start + index)
        return start, end

    def places(self, tail: Sequence[int], order: int, limit: int) -> Places:
        """Places after the last `order` tokens of `tail`, the newest first, at most `limit`.

        A place of the sorted part was found by a hash: whoever uses it compares the tokens.
        """
        if len(tail) < order or not self._size:
            return _NOWHERE
        wanted = list(tail[-order:])
        # Hidden documents are few and belong to one conversation; ask for more, so that enough is left.
        ask = 2 * limit if self.hidden else limit
        recent = self._recent[order].get(_key(wanted), [])[: -ask - 1 : -1]
        sorted_part = self._sorted[order]
        hashed = np.uint64(_hash_of(wanted))
        low, high = np.searchsorted(sorted_part, [hashed << _SHIFT, (hashed << _SHIFT) | _LOW])
        found = sorted_part[max(low, high - (ask - len(recent))) : high][::-1] & _LOW
        places = np.concatenate((np.array(recent, np.int64), found.astype(np.int64)))
        for start, end in self.hidden:
            places = places[(places < start) | (places >= end)]
        return places[:limit]

    def _sort(self) -> None:
        """Sort the places of everything: the hash of the tokens before it above, the place itself below."""
        tokens = self.tokens
        self._recent: dict[int, dict[int, list[int]]] = {order: {} for order in MEMORY_ORDERS}
        self._sorted_size = self._size
        self._sorted: dict[int, NDArray[np.uint64]] = {}
        for order in MEMORY_ORDERS:
            if self._size <= order:
                self._sorted[order] = np.empty(0, np.uint64)
                continue
            hashes = np.zeros(self._size - order, np.uint64)
            whole = tokens[order:] != SEPARATOR
            for back in range(order):
                part = tokens[back : back + len(hashes)]
                whole &= part != SEPARATOR
                hashes = _mixed(hashes, part.astype(np.uint64))
            keys = (hashes << _SHIFT) | np.arange(order, self._size, dtype=np.uint64)
            keys = keys[whole]
            keys.sort()
            self._sorted[order] = keys


def _key(tokens: Sequence[int]) -> int:
    key = 0
    for token in tokens:
        key = key << _BITS | token
    return key


_FACTOR = 0x9E3779B1


def _mixed(hashes: NDArray[np.uint64], tokens: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """32-bit hashes with one more token each: multiply and add modulo 2**32, folded once."""
    mixed = (hashes * np.uint64(_FACTOR) + tokens + np.uint64(1)) & _LOW
    return mixed ^ (mixed >> np.uint64(15))


def _hash_of(tokens: Sequence[int]) -> int:
    value = 0
    for token in tokens:
        value = (value * _FACTOR + token + 1) & 0xFFFFFFFF
        value ^= value >> 15
    return value
