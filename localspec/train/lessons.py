"""Lessons put together: which texts are held out, which tokens are drafted, and batches of like lengths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from localspec.train.features import Lesson
from localspec.train.sizes import BATCH, DRAFTED

_AHEAD = 8
"""Places behind a batch's texts, so that later steps need no case of their own."""
_SKIPPED = 4
"""Tokens at the beginning of a text from which nothing is learnt: they are the template's."""
_OF_PROMPTS = 0.25
"""Share of a prompt's places that are learnt from: a draft never stands there, but what it continues does."""
_SAMPLED = 20_000


@dataclass(frozen=True, slots=True)
class Batch:
    """Some texts of like length, filled up to the longest.

    Attributes:
        states: of the target, divided by their scale, shape [texts, tokens, layers x width].
        tokens: shape [texts, tokens + ahead]; `likeliest` likewise, the target's after each of them.
        final: the target's last state, normed, shape [texts, tokens + ahead, width].
        counts: places from which something is learnt, or which are judged; shape [texts, tokens + ahead].
    """

    states: Tensor
    tokens: Tensor
    likeliest: Tensor
    final: Tensor
    counts: Tensor


class Lessons:
    """All texts of a run.

    Args:
        pieces: as they were read.
        held_out: share of the texts that are judged by and not learnt from.

    Attributes:
        scale: size of each value of the target's states, shape [layers x width].
        learnt: numbers of the texts that are learnt from; `judged` of the others.
    """

    def __init__(self, pieces: Sequence[Lesson], held_out: float = 0.04) -> None:
        self._pieces = pieces
        self._places = [
            (piece, text) for piece, lesson in enumerate(pieces) for text in range(len(lesson.answers))
        ]
        every = max(2, round(1 / held_out))
        numbers = range(len(self._places))
        self.judged = [number for number in numbers if number % every == 0]
        self.learnt = [number for number in numbers if number % every]
        self.tokens = sum(len(piece.tokens) for piece in pieces)
        self.scale = self._scale()

    def frequencies(self, vocabulary: int) -> NDArray[np.int64]:
        """How often each token stands in the texts or is the target's own choice."""
        seen = np.zeros(vocabulary, np.int64)
        for piece in self._pieces:
            np.add.at(seen, piece.tokens, 1)
            np.add.at(seen, piece.likeliest, 1)
        return seen

    def chosen(self, vocabulary: int, count: int = DRAFTED) -> NDArray[np.int64]:
        """The tokens to draft, ascending: the most frequent ones."""
        # Of those that never occurred the lower ones: vocabularies begin with what is frequent in general.
        ordered = np.argsort(-self.frequencies(vocabulary), kind="stable")
        return np.sort(ordered[: min(count, vocabulary)]).astype(np.int64)

    def sample(self, count: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """States of about `count` positions over all texts, divided by their scale, and tokens.

        Returns:
            The states, shape [positions, layers x width], and the tokens there and before them, shape
            [positions, 2].
        """
        step = max(1, self.tokens // count)
        states: list[NDArray[np.float64]] = []
        tokens: list[NDArray[np.int32]] = []
        for piece in self._pieces:
            places = np.arange(step // 2, len(piece.tokens), step)
            # The first token of a text has huge states, and the last one none.
            places = places[~np.isin(places, piece.starts) & ~np.isin(places + 1, piece.starts)]
            states.append(np.asarray(piece.states[places], np.float64) / self.scale)
            tokens.append(np.stack([piece.tokens[places], piece.tokens[places - 1]], 1))
        return np.concatenate(states), np.concatenate(tokens).astype(np.int64)

    def batches(self, numbers: Sequence[int], random: np.random.Generator | None) -> Iterator[list[int]]:
        """Texts of like length together, in random order where `random` is given."""
        jitter = random.random(len(self._places)) * 20 if random is not None else np.zeros(len(self._places))
        ordered = sorted(numbers, key=lambda number: self._length(number) + jitter[number])
        groups: list[list[int]] = [[]]
        longest = 0
        for number in ordered:
            longest = max(longest, self._length(number))
            if groups[-1] and longest * (len(groups[-1]) + 1) > BATCH:
                groups.append([])
                longest = self._length(number)
            groups[-1].append(number)
        if random is not None:
            random.shuffle(groups)
        yield from (group for group in groups if group)

    def batch(
        self, numbers: Sequence[int], *, judged: bool, random: np.random.Generator | None = None
    ) -> Batch:
        """The texts `numbers`, which count where they answer; to learn from, parts of prompts do too.

        Args:
            numbers: of the texts.
            judged: whether they are judged, or learnt from.
            random: draws the places of the prompts.
        """
        texts, longest = len(numbers), max(self._length(number) for number in numbers)
        wide, narrow = self._pieces[0].states.shape[1], self._pieces[0].final.shape[1]
        states = np.zeros((texts, longest, wide), np.float32)
        tokens = np.zeros((texts, longest + _AHEAD), np.int64)
        likeliest = np.zeros((texts, longest + _AHEAD), np.int64)
        final = np.zeros((texts, longest + _AHEAD, narrow), np.float32)
        counts = np.zeros((texts, longest + _AHEAD), bool)
        for row, number in enumerate(numbers):
            piece, start, end, answer = self._place(number)
            length = end - start
            states[row, :length] = piece.states[start:end]
            tokens[row, :length] = piece.tokens[start:end]
            likeliest[row, :length] = piece.likeliest[start:end]
            final[row, :length] = piece.final[start:end]
            counts[row, max(1, answer - 1) : length - 1] = True
            if not judged and random is not None:
                asked = slice(_SKIPPED, max(_SKIPPED, answer - 1))
                counts[row, asked] = random.random(asked.stop - asked.start) < _OF_PROMPTS
        states /= self.scale
        return Batch(*(torch.from_numpy(array) for array in (states, tokens, likeliest, final, counts)))

    def _place(self, number: int) -> tuple[Lesson, int, int, int]:
        index, text = self._places[number]
        piece = self._pieces[index]
        return piece, int(piece.starts[text]), int(piece.starts[text + 1]), int(piece.answers[text])

    def _length(self, number: int) -> int:
        _, start, end, _ = self._place(number)
        return end - start

    def _scale(self) -> NDArray[np.float32]:
        """Root mean squares. The first token of a text is left out: its states are huge."""
        squares = np.zeros(self._pieces[0].states.shape[1], np.float64)
        count = 0
        for piece in self._pieces:
            keep = np.ones(len(piece.tokens), bool)
            keep[piece.starts[:-1]] = False
            places = np.flatnonzero(keep)
            places = places[:: max(1, len(places) * len(self._pieces) // _SAMPLED)]
            part = np.asarray(piece.states[places], np.float32)
            squares += (part.astype(np.float64) ** 2).sum(axis=0)
            count += len(part)
        scale: NDArray[np.float32] = (np.sqrt(squares / max(count, 1)) + 1e-6).astype(np.float32)
        return scale
