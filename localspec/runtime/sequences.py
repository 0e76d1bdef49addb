"""Several sequences in one context: one pass decodes a piece of each, and each is rolled back alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from localspec.errors import EngineError
from localspec.runtime.context import Batch, LlamaContext
from localspec.target import Outputs
from localspec.types import Rows


class LlamaSequences:
    """A context seen as independent sequences; implements `localspec.target.SequencesContext`.

    The cache is one for all sequences: llama.cpp would cut a pass over separate ones into pieces of equal
    length, and drafts differ in length.

    Args:
        context: made with `sequences=` at least 1; while this view is in use it is the only user.
    """

    def __init__(self, context: LlamaContext) -> None:
        self._context = context
        self._lengths = [0] * context.sequences
        self.sequences = context.sequences
        self.capacity = context.capacity
        self.max_batch = context.max_batch
        self.max_rows = context.max_rows
        self.can_trim = context.can_trim
        context.clear()

    @property
    def threads(self) -> int:
        """CPU threads that the last pass used."""
        return self._context.threads

    def length(self, sequence: int) -> int:
        """Tokens of `sequence` in the cache."""
        return self._lengths[sequence]

    def decode(self, pieces: Mapping[int, Sequence[int]], outputs: Outputs) -> Rows:
        """See `SequencesContext.decode`."""
        tokens: list[int] = []
        positions: list[int] = []
        members: list[tuple[int]] = []
        for sequence, piece in pieces.items():
            if not 0 <= sequence < self.sequences:
                raise EngineError(f"This context holds {self.sequences} sequences, there is no {sequence}.")
            start = self._lengths[sequence]
            tokens += piece
            positions += range(start, start + len(piece))
            members += [(sequence,)] * len(piece)
        held = sum(self._lengths)
        if held + len(tokens) > self.capacity:
            raise EngineError(f"A pass of {len(tokens)} tokens does not fit beside {held} in the cache.")
        rows = self._context.decode_batch(Batch(tokens, positions, members, [outputs == "all"] * len(tokens)))
        for sequence, piece in pieces.items():
            self._lengths[sequence] += len(piece)
        return rows

    def keep(self, sequence: int, length: int) -> None:
        """Drop all of `sequence` after its first `length` tokens; raises `RollbackRefusedError`."""
        if length >= self._lengths[sequence]:
            return
        self._context.keep_sequence(sequence, length)
        self._lengths[sequence] = length

    def clear(self) -> None:
        """Empty the cache of every sequence."""
        self._context.clear()
        self._lengths = [0] * self.sequences

    def close(self) -> None:
        """Free cache and buffers."""
        self._context.close()
