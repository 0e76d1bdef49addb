"""A scripted head that drafts token by token and tree by tree, with as many layers as are wanted."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np

from localspec.errors import EngineError
from localspec.target import Outputs
from tests.core.scripted_heads import Cell, ScriptedHead, States, TappedModel, state_of


class GrowingHead(ScriptedHead):
    """Often says what the target would say, by the tokens that it has read; its states tell their place.

    Args:
        layers: prediction layers, each of which keeps what it has read.
        sequences: branches of a tree at most.
        max_batch: rows of a pass at most.
    """

    max_nodes = 64

    def __init__(self, *, layers: int = 1, sequences: int = 1, max_batch: int = 7) -> None:
        super().__init__(max_batch=max_batch)
        self.sequences = sequences
        self.layers: list[list[Cell]] = [[] for _ in range(layers)]
        self.levels: list[list[tuple[Cell, ...]]] = []
        self._layer = 0
        self._rows: list[tuple[Cell, ...]] = []
        self._target = TappedModel(order=1, spread=6.0)

    def decode(
        self, start: int, tokens: Sequence[int] | None, states: States | None, outputs: Outputs
    ) -> None:
        assert not self.levels
        assert tokens is not None
        assert states is not None
        before = len(self.cells)
        super().decode(start, tokens, states, outputs)
        layer = self.layers[self._layer]
        # What it has not read of the text would be missing for good.
        assert len(layer) >= before
        layer[before:] = self.cells[before:]
        rows = range(before + 1, len(self.cells) + 1)
        self._rows = [tuple(self.cells[:row]) for row in rows] if outputs == "all" else []

    def decode_nodes(self, tokens: Sequence[int], states: States, parents: Sequence[int]) -> None:
        assert len(tokens) == len(parents) == len(states) <= self.sequences
        above = self.levels[-1] if self.levels else [tuple(self.cells)]
        assert all(parent == -1 for parent in parents) or self.levels
        self._rows = [
            (*above[parent], Cell(token, tuple(state.tolist())))
            for token, state, parent in zip(tokens, states, parents, strict=True)
        ]
        self.levels.append(self._rows)

    def logits(self, row: int) -> States:
        read = [cell.token for cell in self._rows[row]]
        last = read[-1]
        assert last is not None
        wrong = zlib.crc32(repr(read[-3:]).encode()) % 3 == 0
        return self._target.row([last + 1 if wrong else last])

    def state(self, row: int) -> States:
        return np.array(head_state(self._rows[row]), np.float32)

    def use_layer(self, number: int) -> None:
        if not 0 <= number < len(self.layers):
            raise EngineError("no such layer")
        self._layer = number

    def keep(self, end: int) -> None:
        super().keep(end)
        self.levels = []
        self._rows = []

    def clear(self) -> None:
        super().clear()
        self.layers = [[] for _ in self.layers]
        self.levels = []
        self._rows = []


def head_state(read: Sequence[Cell]) -> tuple[float, float]:
    """The head's own state after what it has read."""
    return state_of([-1 if cell.token is None else cell.token for cell in read])
