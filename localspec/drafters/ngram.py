"""N-gram drafting (prompt lookup): copy what followed the same words before.

Saxena, "Prompt Lookup Decoding", 2023; vLLM's `ngram` method has the same parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from localspec.drafters.base import Needs
from localspec.errors import UsageError
from localspec.types import EMPTY_DRAFT, Budget, Draft, Outcome


class NgramDrafter:
    """Finds the longest match of the trailing tokens in prompt and reply, and copies on from there.

    Among matches of one length the most recent wins. The index is a dictionary from every n-gram to the
    position after its last occurrence: appending a token costs `max - min + 1` insertions, a look-up at
    most as many reads, whatever the length of the context.

    Args:
        shortest: fewest trailing tokens that count as a match.
        longest: most trailing tokens looked for.

    Raises:
        UsageError: lengths that are not 1 <= shortest <= longest.
    """

    name = "ngram"
    needs = Needs.TOKENS
    remembers = False

    def __init__(self, shortest: int = 2, longest: int = 5) -> None:
        if not 1 <= shortest <= longest:
            raise UsageError(
                f"N-gram lengths must satisfy 1 <= min <= max, not min {shortest}, max {longest}."
            )
        self._lengths = range(longest, shortest - 1, -1)
        self._shortest = shortest
        self._log: list[int] = []
        self._index: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    def begin(self, tokens: Sequence[int]) -> None:
        """Index the prompt; only what is new where it extends what is known."""
        known = len(self._log)
        if known > len(tokens) or list(tokens[:known]) != self._log:
            self._log = []
            self._index.clear()
            self._indexed = 0
        self._log.extend(tokens[len(self._log) :])
        self._catch_up()

    def propose(self, tokens: Sequence[int], budget: Budget) -> Draft:  # noqa: ARG002 - it keeps its own log
        """See `Drafter.propose`; the draft's confidence is left to whoever counts acceptance."""
        log, size = self._log, len(self._log)
        for length in self._lengths:
            if length >= size:
                continue
            start = self._index.get(tuple(log[size - length :]))
            if start is None:
                continue
            draft = log[start : start + budget.tokens]
            # The copy ran into the end of the text: the text repeats itself with this period.
            period = size - start
            while len(draft) < budget.tokens:
                draft.append(draft[len(draft) - period])
            return Draft.chain(draft, source=self.name, match_length=length)
        return EMPTY_DRAFT

    def commit(self, outcome: Outcome) -> None:
        """Append the verified tokens and index them."""
        self._log.extend(outcome.tokens)
        self._catch_up()

    def close(self) -> None:
        """Forget everything."""
        self._log = []
        self._index = {}
        self._indexed = 0

    def _catch_up(self) -> None:
        """Index every n-gram that has a continuation: those ending before the last token."""
        log, index = self._log, self._index
        for end in range(max(self._indexed, self._shortest), len(log)):
            for length in self._lengths:
                if length <= end:
                    index[tuple(log[end - length : end])] = end
        self._indexed = max(len(log), self._shortest)
