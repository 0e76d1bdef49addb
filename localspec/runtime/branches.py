"""The sequences of a cache that hold the branches of a draft tree while a pass verifies it."""

from __future__ import annotations

from typing import Any

from localspec.errors import RollbackRefusedError
from localspec.runtime.library import lib


class Branches:
    """Sequences 1, 2, ... beside sequence 0, which holds what is verified; branch 0 of a tree is on it.

    A token of a tree sees the cells of the sequences that it is put on, so every branch has to hold the
    verified tokens too. They are shared, not copied, but llama.cpp keeps a search tree of the positions of
    every sequence: to share 6000 tokens with three branches takes as long as a pass of a small model. So a
    branch keeps what it holds when the pass is over, and before the next one gets what was verified since.

    Args:
        memory: the context's native memory.
        count: sequences of the context.
    """

    def __init__(self, memory: Any, count: int) -> None:
        self._memory = memory
        self._held = [0] * count
        self._used = 1

    def attach(self, count: int, length: int) -> None:
        """Begin a tree of `count` branches: each gets the first `length` tokens, which sequence 0 holds."""
        self._used = count
        for sequence in range(1, count):
            held = self._held[sequence]
            if held < length:
                lib().llama_memory_seq_cp(self._memory, 0, sequence, held, -1)
                self._held[sequence] = length

    def settle(self, winner: int, start: int, end: int) -> None:
        """End a tree: positions from `start` to `end` of branch `winner` are verified, other nodes dropped.

        Args:
            winner: a branch of the tree; 0 where nothing was accepted.
            start: position after the tree's root, which all branches share.
            end: position after the last node to keep.

        Raises:
            RollbackRefusedError: llama.cpp refused.
        """
        if winner:
            self._drop(0, start)
            lib().llama_memory_seq_cp(self._memory, winner, 0, start, end)
        else:
            self._drop(0, end)
        for sequence in range(1, self._used):
            self._drop(sequence, start)
            self._held[sequence] = start

    def trim(self, length: int) -> None:
        """Let no branch hold more than the first `length` tokens; raises `RollbackRefusedError`."""
        for sequence, held in enumerate(self._held):
            if held > length:
                self._drop(sequence, length)
                self._held[sequence] = length

    def forget(self) -> None:
        """The cache was cleared."""
        self._held = [0] * len(self._held)

    def _drop(self, sequence: int, start: int) -> None:
        if not lib().llama_memory_seq_rm(self._memory, sequence, start, -1):
            raise RollbackRefusedError(f"llama.cpp refused to drop a draft tree from position {start} on.")
