"""The rows of a head's pass: a native batch that may hold tokens, states, or both."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.runtime.library import lib

_SECTIONS = 4
"""Positions that some models want for a row of states (M-RoPE): time, height and width alike, then 0."""


class HeadRows:
    """A native batch over arrays of our own: filling it costs microseconds."""

    def __init__(self, size: int, width: int, sequences: int) -> None:
        self._tokens = np.zeros(size, np.int32)
        self._states = np.zeros(size * width, np.float32)
        self._positions = np.zeros(_SECTIONS * size, np.int32)
        self._counts = np.ones(size, np.int32)
        self._members = np.zeros((size, max(sequences, 1)), np.int32)
        self._outputs = np.zeros(size, np.int8)
        self._ramp = np.arange(size, dtype=np.int32)
        row = self._members.strides[0]
        base = self._members.ctypes.data
        pointers = [ctypes.cast(base + place * row, ctypes.POINTER(ctypes.c_int32)) for place in range(size)]
        self._pointers = (ctypes.POINTER(ctypes.c_int32) * size)(*pointers)
        self._batch: Any = lib().llama_batch()
        self._batch.pos = _pointer(self._positions, ctypes.c_int32)
        self._batch.n_seq_id = _pointer(self._counts, ctypes.c_int32)
        self._batch.seq_id = self._pointers
        self._batch.logits = _pointer(self._outputs, ctypes.c_int8)
        self._token_pointer = _pointer(self._tokens, ctypes.c_int32)
        self._state_pointer = _pointer(self._states, ctypes.c_float)

    def fill(
        self,
        start: int,
        tokens: Sequence[int] | None,
        states: NDArray[np.float32] | None,
        *,
        outputs: bool,
        sequences: Sequence[int] | None = None,
    ) -> Any:
        """The batch of rows of the text at `start` and on, or of nodes that stand at `start` all together."""
        count = len(tokens) if tokens is not None else len(states) if states is not None else 0
        batch = self._batch
        batch.n_tokens = count
        if tokens is None:
            batch.token = None
        else:
            self._tokens[:count] = tokens
            batch.token = self._token_pointer
        if states is None:
            batch.embd = None
        else:
            self._states[: states.size] = states.reshape(-1)
            batch.embd = self._state_pointer
        positions = self._positions
        if sequences is None:
            np.add(self._ramp[:count], start, out=positions[:count])
        else:
            positions[:count] = start
        self._members[:count, 0] = 0 if sequences is None else sequences
        if tokens is None:
            for section in range(1, _SECTIONS):
                there = positions[section * count : (section + 1) * count]
                there[:] = positions[:count] if section < _SECTIONS - 1 else 0
        self._outputs[:count] = outputs
        return batch


def _pointer(array: NDArray[Any], kind: Any) -> Any:
    return array.ctypes.data_as(ctypes.POINTER(kind))
