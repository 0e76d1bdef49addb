"""Draws under a constraint: a grammar's mask, looked at only where it matters.

The mask comes after bias and penalties and before every filter, as if the tokens that the grammar forbids
had no logit at all: p is what the filters leave of the allowed tokens. So the distribution is one and the
same for plain decoding and for every rule of verification. (llama-server draws first and masks only when the
drawn token is refused, which is another distribution.)

To ask the grammar about a whole vocabulary takes milliseconds, far longer than a draw. Tokens are therefore
asked about from the most likely downwards, until all within `NEAR` of the best allowed one are known; as a
rule these decide, and if not, the whole row is asked about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from localspec.errors import DeadEndError
from localspec.sampling import NEAR, Ids, Sampler, Values
from localspec.target import Constraint
from localspec.types import SamplingParams

_FAR = np.float32(1e9)
_NOTHING = np.float32(-np.inf)


class ConstrainedSampler(Sampler):
    """A sampler whose tokens keep to a constraint from `reply_start` on.

    Args:
        params: filters, temperature and seed.
        constraint: what the reply may say.
        bias: token id -> number added to its logit; `-inf` forbids a token.

    Raises:
        UsageError: a parameter outside its range.
        DeadEndError: from `sample`, `distribution` and `admitted`, where the constraint forbids every token.
    """

    def __init__(
        self, params: SamplingParams, constraint: Constraint, bias: Mapping[int, float] | None = None
    ) -> None:
        super().__init__(params, bias)
        self._constraint = constraint

    def window(self, history: Sequence[int]) -> list[int]:
        """A new list of all of `history`: what may follow depends on everything that the reply has said."""
        return list(history)

    def admitted(self, row: Values, history: Sequence[int] = ()) -> Values:
        """See `Sampler.admitted`; of a long row, only the tokens near the best allowed one are kept."""
        return self._near_allowed(self._adjusted(row, history), history[self.reply_start :])

    def _candidates(self, row: Values, history: Sequence[int]) -> tuple[Ids, Values]:
        row = self._adjusted(row, history)
        said = history[self.reply_start :]
        near = self._near_allowed(row, said)
        if self.greedy:
            return self._best_of(near)
        return self._filtered(near, lambda: self._masked(row, said, np.flatnonzero(row > _NOTHING)))

    def _masked(self, row: Values, said: Sequence[int], ids: Ids) -> Values:
        """The row with nothing but the allowed ones of `ids`."""
        masked = np.full_like(row, _NOTHING)
        kept = ids[self._constraint.allowed(said, ids)]
        masked[kept] = row[kept]
        return masked

    def _near_allowed(self, row: Values, said: Sequence[int]) -> Values:
        """The row with nothing but allowed tokens: all within `NEAR` of the best of them, and a few more.

        When greedy that best one is enough.
        """
        maximum = row.max()
        if not maximum > _NOTHING:
            # NaN, or a row that the bias alone forbids: the sampler says so.
            return row
        near = np.full_like(row, _NOTHING)
        best, span = _NOTHING, NEAR
        upper, lower = np.float32(np.inf), maximum - NEAR
        while True:
            ids = np.flatnonzero((row >= lower) & (row < upper))
            kept = ids[self._constraint.allowed(said, ids)]
            if len(kept):
                near[kept] = row[kept]
                best = max(best, row[kept].max())
            upper = lower
            if best > _NOTHING:
                if self.greedy or best - NEAR >= lower:
                    return near
                lower = best - NEAR
            elif lower == _NOTHING:
                raise _dead_end(len(said))
            else:
                span *= np.float32(2)
                lower = maximum - span if span < _FAR else _NOTHING


def _dead_end(count: int) -> DeadEndError:
    where = "as the first of the reply" if count == 0 else f"after {count} tokens of the reply"
    return DeadEndError(f"The grammar forbids every token {where}; correct it.")
