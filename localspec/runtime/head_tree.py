"""The sequences of a head's cache that hold the branches of a draft tree while it grows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.errors import EngineError, RollbackRefusedError
from localspec.runtime.library import lib


class HeadTree:
    """A tree that grows by a level a pass, behind the text, which sequence 0 holds.

    A node sees the cells of its sequence: the text, and the path down to it. The first node behind another
    goes on in the other's sequence; each further one gets a sequence of its own, to which the path is copied
    first. Cells are shared, not copied, and what a sequence holds of the text it keeps from tree to tree, for
    llama.cpp takes long to share many of them.

    Args:
        memory: the context's native memory.
        count: sequences of the context.
    """

    def __init__(self, memory: Any, count: int) -> None:
        self._memory = memory
        self._held = [0] * count
        self._newest: list[int] = []
        self._used: set[int] = set()
        self._start = 0
        self.depth = 0

    @property
    def grows(self) -> bool:
        """Whether a tree stands behind the text."""
        return self.depth > 0

    def level(self, parents: Sequence[int], end: int) -> list[int]:
        """The sequences of the nodes of a further level.

        Args:
            parents: for each node the place of its parent in the level before; -1 in the first level.
            end: position after the text.

        Raises:
            EngineError: too many nodes, or no such parents.
        """
        if not 0 < len(parents) <= len(self._held):
            raise EngineError(f"A pass takes up to {len(self._held)} nodes of a tree, not {len(parents)}.")
        lowest, highest = (0, len(self._newest) - 1) if self.grows else (-1, -1)
        if min(parents) < lowest or max(parents) > highest:
            raise EngineError(f"Nodes of a tree have no parents {min(parents)} to {max(parents)} above them.")
        if not self.grows:
            self._start = end
        above = [self._newest[parent] if parent >= 0 else 0 for parent in parents]
        free = [number for number in range(len(self._held)) if number not in above]
        taken: set[int] = set()
        found = []
        for source in above:
            number = source
            if source in taken:
                number = free.pop(0)
                self._copy(source, number)
            taken.add(number)
            found.append(number)
        self._newest = found
        self._used |= taken
        self.depth += 1
        return found

    def drop(self, end: int) -> None:
        """End the tree, and let no branch hold anything from the position `end` on.

        Raises:
            RollbackRefusedError: llama.cpp refused.
        """
        for number, held in enumerate(self._held):
            if number in self._used or (number and held > end):
                self._cut(number, min(end, self._start) if self.grows else end)
                self._held[number] = min(held, end)
        self._end()

    def forget(self) -> None:
        """The cache was cleared."""
        self._held = [0] * len(self._held)
        self._end()

    def _end(self) -> None:
        self._newest = []
        self._used = set()
        self.depth = 0

    def _copy(self, source: int, number: int) -> None:
        """Let the sequence `number`, whose branch has ended, hold the text and the path of `source`."""
        self._cut(number, self._start)
        if number and self._held[number] < self._start:
            lib().llama_memory_seq_cp(self._memory, 0, number, self._held[number], self._start)
            self._held[number] = self._start
        if self.grows:
            lib().llama_memory_seq_cp(self._memory, source, number, self._start, -1)

    def _cut(self, number: int, start: int) -> None:
        if not lib().llama_memory_seq_rm(self._memory, number, start, -1):
            raise RollbackRefusedError(f"llama.cpp refused to drop a head's tree from position {start} on.")
