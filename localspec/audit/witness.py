"""Verifiers that look on: one remembers the rows of plain decoding, one the pass in which a reply parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.sampling import Ids, Sampler, Values
from localspec.types import Draft, Rows, Verdict
from localspec.verify import Verifier

CONTENDERS = 40
"""Likeliest tokens whose logits are compared: as many as the default top-k leaves."""

KEPT = 128
"""Likeliest tokens of a plain row that are remembered, so that another run's token is among them."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The likeliest tokens of a row, best first; equal logits by lower id."""

    ids: Ids
    logits: Values

    @classmethod
    def of(cls, row: Values, kept: int = KEPT) -> Candidates:
        """The `kept` likeliest tokens of `row`, shape [vocabulary]; copies."""
        kept = min(kept, len(row))
        ids = np.sort(np.argpartition(row, len(row) - kept)[-kept:])
        ids = ids[np.argsort(-row[ids], kind="stable")].astype(np.int64)
        return cls(ids, row[ids])

    def shifts(self, row: Values, token: int | None = None) -> NDArray[np.float64]:
        """How the contenders' logits differ in `row`; that of `token` too, where it is known here."""
        wanted = np.arange(len(self.ids)) < CONTENDERS
        if token is not None:
            wanted |= self.ids == token
        return (row[self.ids] - self.logits)[wanted].astype(np.float64)

    def sparse(self, vocabulary: int) -> Values:
        """A row of shape [vocabulary] that holds these tokens alone."""
        row = np.full(vocabulary, -np.inf, dtype=np.float32)
        row[self.ids] = self.logits
        return row


def gap_shift(shifts: NDArray[np.float64]) -> float:
    """The largest change of a gap between two contenders."""
    return float(shifts.max() - shifts.min())


class _OnLooker:
    """A verifier that passes everything on to another one."""

    def __init__(self, inner: Verifier) -> None:
        self._inner = inner
        self.name = inner.name
        self.exact = inner.exact

    def __getattr__(self, name: str) -> Any:
        # What only some rules have, such as a threshold, or whether a drafter shares the target's noise.
        return getattr(self._inner, name)

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """What the inner rule says."""
        return self._inner.verify(draft, rows, sampler, history)


class PlainRows(_OnLooker):
    """Remembers, for every token of a plain reply, the row that decided on it."""

    def __init__(self, inner: Verifier) -> None:
        super().__init__(inner)
        self.candidates: list[Candidates] = []

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """See `Verifier.verify`."""
        self.candidates.append(Candidates.of(rows[0]))
        return super().verify(draft, rows, sampler, history)


@dataclass(frozen=True, slots=True)
class Parting:
    """The pass in which a reply left the plain one.

    Attributes:
        index: place in the reply.
        token: what was emitted there.
        width: tokens of the pass.
        drawn: what the sampler draws from the row that decided; equals `token` under a rule that promises
            the text.
        shift: the largest change of a gap between contenders against the plain row.
        margin: score of the plain token over the other's on the plain row, in logits; None where the other is
            not among the remembered candidates.
        filters_differ: whether the filters leave other tokens of this row than of the plain one.
    """

    index: int
    token: int
    width: int
    drawn: int
    shift: float
    margin: float | None
    filters_differ: bool


class Witness(_OnLooker):
    """Watches a speculative run for the first token that is not plain decoding's.

    `gap_shifts` has the largest change of a gap between contenders of every row up to there.

    Args:
        inner: the rule that decides.
        prompt: tokens of the prompt.
        said: the plain reply.
        candidates: its rows.
    """

    def __init__(
        self, inner: Verifier, prompt: Sequence[int], said: Sequence[int], candidates: Sequence[Candidates]
    ) -> None:
        super().__init__(inner)
        self._expected = [*prompt, *said]
        self._start = len(prompt)
        self._candidates = candidates
        self.parting: Parting | None = None
        self.gap_shifts: list[float] = []

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """See `Verifier.verify`."""
        verdict = super().verify(draft, rows, sampler, history)
        # A history that is not plain decoding's was not parted from in a pass that could be judged.
        if self.parting is None and list(history) == self._expected[: len(history)]:
            self._look(draft, verdict, rows, sampler, len(history))
        return verdict

    def _look(self, draft: Draft, verdict: Verdict, rows: Rows, sampler: Sampler, position: int) -> None:
        """Follow the emitted tokens along the plain reply."""
        node = -1
        nodes = (*verdict.path, None)
        for child in nodes:
            token = verdict.next_token if child is None else draft.tokens[child]
            if position >= len(self._expected):
                return
            plain = self._candidates[position - self._start]
            self.gap_shifts.append(gap_shift(plain.shifts(rows[node + 1])))
            if token != self._expected[position]:
                self.parting = self._judged(token, rows[node + 1], 1 + len(draft), sampler, position)
                return
            if child is not None:
                node = child
                position += 1

    def _judged(self, token: int, row: Values, width: int, sampler: Sampler, position: int) -> Parting:
        index = position - self._start
        plain = self._candidates[index]
        sparse = plain.sparse(len(row))
        margin = None
        if token in plain.ids:
            margin = sampler.margin(sparse, position, (), self._expected[position], token)
            # Times the temperature: a difference of logits.
            margin *= 1.0 if sampler.greedy else sampler.params.temperature
        kept, plainly_kept = (set(map(int, sampler.distribution(one)[0])) for one in (row, sparse))
        return Parting(
            index=index,
            token=token,
            width=width,
            drawn=sampler.sample(row, position),
            shift=gap_shift(plain.shifts(row, token)),
            margin=margin if margin is not None and math.isfinite(margin) else None,
            filters_differ=not sampler.greedy and kept != plainly_kept,
        )
