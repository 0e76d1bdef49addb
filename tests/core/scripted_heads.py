"""A target whose hidden states name the text before them, and a head that keeps what it is given."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.errors import EngineError
from localspec.target import Outputs
from localspec.testing import ScriptedModel
from localspec.types import Draft, Rows

States = NDArray[np.float32]


def state_of(text: Sequence[int]) -> tuple[float, float]:
    """The state of the last position of `text`, which no other text has."""
    return float(zlib.crc32(repr(list(text)).encode()) % 2**20), float(len(text) - 1)


class TappedModel(ScriptedModel):
    """The scripted target with the states of its newest pass."""

    states: States = np.zeros((0, 2), np.float32)

    def decode(self, tokens: Sequence[int], outputs: Outputs) -> Rows:
        before = list(self.cached)
        rows = super().decode(tokens, outputs)
        self.states = _states([before + list(tokens[: place + 1]) for place in range(len(tokens))])
        return rows

    def decode_tree(self, root: int, draft: Draft) -> Rows:
        stem = [*self.cached, root]
        rows = super().decode_tree(root, draft)
        paths = [(), *map(draft.path_to, range(len(draft)))]
        self.states = _states([[*stem, *(draft.tokens[node] for node in path)] for path in paths])
        return rows


class ScriptedTap:
    """The states of a `TappedModel` while they are wanted; counts the rows that were copied."""

    width = 2

    def __init__(self, model: TappedModel) -> None:
        self._model = model
        self.copied = self.users = 0
        self._void: States | None = None

    def resume(self) -> None:
        self.users += 1
        if self.users == 1:
            self._void = self._model.states

    def pause(self) -> None:
        self.users -= 1
        assert self.users >= 0

    def rows(self, rows: Sequence[int] | slice) -> States:
        # Those of a pass that was made before they were wanted are not there.
        assert self.users > 0
        assert self._model.states is not self._void
        found = self._model.states[rows if isinstance(rows, slice) else list(rows)].copy()
        self.copied += len(found)
        return found

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Cell:
    """What a row of the head's cache was made of."""

    token: int | None
    state: tuple[float, ...] | None


class ScriptedHead:
    """Keeps what it is given, and answers as it is told.

    Args:
        answer: logits of a row of a pass, from the position of its first row and its tokens.
        confidence: first value of a row's state, likewise.
    """

    def __init__(
        self,
        answer: Callable[[int, Sequence[int], int], States] | None = None,
        confidence: Callable[[int, Sequence[int], int], float] | None = None,
        max_batch: int = 16,
    ) -> None:
        self._answer = answer
        self._confidence = confidence
        self.max_batch = max_batch
        self.cells: list[Cell] = []
        self.start = 0
        self.passes: list[tuple[int, tuple[int, ...] | None, int, Outputs]] = []
        self._newest: tuple[int, Sequence[int]] = (0, ())

    @property
    def length(self) -> int:
        return len(self.cells)

    def encode(self, features: States) -> States:
        return features * 2

    def decode(
        self, start: int, tokens: Sequence[int] | None, states: States | None, outputs: Outputs
    ) -> None:
        count = len(tokens) if tokens is not None else len(states if states is not None else ())
        if states is not None:
            assert len(states) == count
        if not 0 < count <= self.max_batch:
            raise EngineError(f"a pass of {count} rows")
        if self.cells and start != self.start + len(self.cells):
            raise EngineError(f"a gap: {start} after {self.start} and {len(self.cells)} rows")
        if not self.cells:
            self.start = start
        for row in range(count):
            self.cells.append(
                Cell(
                    None if tokens is None else tokens[row],
                    None if states is None else tuple(states[row].tolist()),
                )
            )
        self.passes.append((start, None if tokens is None else tuple(tokens), count, outputs))
        self._newest = (start, tokens or ())

    def logits(self, row: int) -> States:
        assert self._answer is not None
        assert self.passes[-1][3] == "all"
        start, tokens = self._newest
        return self._answer(start, tokens, row)

    def state(self, row: int) -> States:
        assert self._confidence is not None
        assert self.passes[-1][3] == "all"
        start, tokens = self._newest
        return np.full(4, self._confidence(start, tokens, row), np.float32)

    def use_layer(self, number: int) -> None:
        if number:
            raise EngineError("one layer")

    def keep(self, end: int) -> None:
        del self.cells[max(end - self.start, 0) :]

    def clear(self) -> None:
        self.cells = []


def _states(texts: Sequence[Sequence[int]]) -> States:
    return np.array([state_of(text) for text in texts], np.float32).reshape(len(texts), 2)
