"""From a row of logits to a token: llama.cpp's filters, then a draw whose noise is a pure function.

The draw is the Gumbel-max rule, argmax of log p + G. The noise G depends on (seed, position, token id) only
(a counter-based generator, as in Salmon et al., SC 2011), so the token at a position is a function of the
row and the seed, whatever was drafted before it: this is the *coupled* rule (Daliri, Musco, Suresh, arXiv
2408.07978). Temperature 0 is its limit, the argmax.

Filters run in llama.cpp's default order: logit bias, penalties, top-k, top-p, min-p, temperature. All look
at what the filter before left, so top-p's mass is that of the top-k tokens, at temperature 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from localspec.errors import BadLogitsError, UsageError
from localspec.types import SamplingParams

Ids = NDArray[np.int64]
Values = NDArray[np.float32]

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_TWO_TO_MINUS_53 = 2.0**-53
# Built once: making a numpy scalar costs as much as an operation on the few tokens that filters leave.
_SHIFT_11, _SHIFT_27, _SHIFT_30, _SHIFT_31 = (np.uint64(shift) for shift in (11, 27, 30, 31))
_FACTOR_0, _FACTOR_1, _FACTOR_2 = (
    np.uint64(factor) for factor in (_GOLDEN, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
NEAR = np.float32(8.0)
"""Distance from the maximum, in logits, within which a peaked row has all that top-p keeps."""
_WEIGHT_BEYOND = math.exp(-8.0)
_FAR = np.float32(1e9)
_MANY = 32
"""Tokens for each one wanted, above which a flat row is narrowed down first."""
_SAMPLE = 4096
"""Logits below the maximum at which the search for the top k starts; adapts to the model."""


def _mix(value: int) -> int:
    """SplitMix64's finalizer (Steele, Lea, Flood, OOPSLA 2014) on one integer."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def _mix_array(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The same on an array, in place."""
    values ^= values >> _SHIFT_30
    values *= _FACTOR_1
    values ^= values >> _SHIFT_27
    values *= _FACTOR_2
    values ^= values >> _SHIFT_31
    return values


def gumbel_noise(seed: int, position: int, ids: Ids) -> NDArray[np.float64]:
    """Standard Gumbel noise of shape [len(ids)] that depends on (seed, position, token id) only."""
    key = _mix((_mix((seed + _GOLDEN) & _MASK) + position * _GOLDEN) & _MASK)
    offset = np.uint64(key)
    counters = ids.astype(np.uint64)
    counters *= _FACTOR_0
    counters += offset
    bits = _mix_array(counters)
    bits ^= offset
    uniforms = (_mix_array(bits) >> _SHIFT_11).astype(np.float64)
    uniforms += 0.5
    uniforms *= _TWO_TO_MINUS_53
    noise: NDArray[np.float64] = -np.log(-np.log(uniforms))
    return noise


class Purpose(IntEnum):
    """What a stream of random numbers beside the target's own draws is for; part of its key."""

    DRAFT = 1
    ACCEPT = 2
    CORRECTION = 3


def stream_seed(seed: int, purpose: Purpose, root: int) -> int:
    """Seed of a stream that is independent of `seed`'s own noise and of every other purpose and root.

    Args:
        seed: the sampling seed.
        purpose: what the numbers are for.
        root: number of verified tokens when the step began; it never repeats within a reply, so no number
            is used in two steps.
    """
    return _mix(_mix((_mix((seed + _GOLDEN) & _MASK) ^ (purpose * _GOLDEN)) & _MASK) + root * _GOLDEN & _MASK)


def uniform(seed: int, counter: int) -> float:
    """A number in (0, 1), never its ends, that depends on (seed, counter) only."""
    key = _mix(seed & _MASK)
    bits = _mix(_mix(key + counter * _GOLDEN & _MASK) ^ key)
    return ((bits >> 11) + 0.5) * _TWO_TO_MINUS_53


def check_params(params: SamplingParams) -> None:
    """Raise `UsageError` for a value outside its range."""
    checks = (
        (math.isfinite(params.temperature) and params.temperature >= 0, "temperature must be 0 or more"),
        (params.top_k >= 0, "top-k must be 0 (off) or more"),
        (0 < params.top_p <= 1, "top-p must be above 0 and at most 1"),
        (0 <= params.min_p <= 1, "min-p must lie between 0 and 1"),
        (
            math.isfinite(params.repeat_penalty) and params.repeat_penalty > 0,
            "repeat-penalty must be above 0",
        ),
        (math.isfinite(params.presence_penalty), "presence-penalty must be a number"),
        (math.isfinite(params.frequency_penalty), "frequency-penalty must be a number"),
        (params.penalty_last_n >= -1, "penalty-last-n must be -1 (all), 0 (off) or more"),
    )
    for holds, sentence in checks:
        if not holds:
            raise UsageError(f"The {sentence}.")


class Sampler:
    """Turns rows into tokens; the same row, position and history always give the same one.

    Args:
        params: filters, temperature and seed.
        bias: token id -> number added to its logit; `-inf` forbids a token.

    Raises:
        UsageError: a parameter outside its range.

    Attributes:
        reply_start: index in the session of the reply's first token; whoever extends a session sets it.
    """

    def __init__(self, params: SamplingParams, bias: Mapping[int, float] | None = None) -> None:
        check_params(params)
        self.params = params
        self.reply_start = 0
        self.greedy = params.temperature == 0
        self.penalizes = params.penalty_last_n != 0 and (
            params.repeat_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0
        )
        self._bias_ids = np.fromiter(bias or {}, dtype=np.int64)
        self._bias_values = np.fromiter((bias or {}).values(), dtype=np.float32)

    def window(self, history: Sequence[int]) -> list[int]:
        """A new list of the last tokens of `history`, as many as the penalties look at; empty without any.

        A verifier appends the tokens that it accepts and hands the list to `sample` and `distribution`.
        """
        if not self.penalizes:
            return []
        count = self.params.penalty_last_n
        return list(history if count < 0 else history[-count:])

    def sample(self, row: Values, position: int, history: Sequence[int] = ()) -> int:
        """The token for `position` (its index in the session).

        Args:
            row: logits, shape [vocabulary]; not modified.
            position: index that the token will have.
            history: the tokens before it; read only when a penalty is on.

        Raises:
            BadLogitsError: the row holds NaN or forbids every token.
        """
        ids, logits = self._candidates(row, history)
        if len(ids) == 1:
            # Nothing to draw.
            return int(ids[0])
        scores = logits.astype(np.float64) / self.params.temperature
        scores += gumbel_noise(self.params.seed, position, ids)
        return int(ids[scores.argmax()])

    def distribution(self, row: Values, history: Sequence[int] = ()) -> tuple[Ids, NDArray[np.float64]]:
        """The final distribution p as (ids, probabilities), most likely first; one-hot when greedy."""
        ids, logits = self._candidates(row, history)
        if len(ids) == 1:
            return ids, np.ones(1)
        scaled = logits.astype(np.float64) / self.params.temperature
        weights = np.exp(scaled - scaled[0])
        return ids, weights / weights.sum()

    def margin(self, row: Values, position: int, history: Sequence[int], token: int, other: int) -> float:
        """How far the score of `token` lies above that of `other` at `position`, noise included.

        In units of logits divided by the temperature (of logits where greedy). Filters are left out: they
        remove tokens and do not change scores.
        """
        row = self._adjusted(row, history)
        distance = float(row[token]) - float(row[other])
        if self.greedy:
            return distance
        noise = gumbel_noise(self.params.seed, position, np.array([token, other], dtype=np.int64))
        return distance / self.params.temperature + float(noise[0] - noise[1])

    def admitted(self, row: Values, history: Sequence[int] = ()) -> Values:
        """The row after bias and penalties, `-inf` where a token is forbidden; the row itself without any."""
        return self._adjusted(row, history)

    def _candidates(self, row: Values, history: Sequence[int]) -> tuple[Ids, Values]:
        """Ids and logits of what may be drawn, most likely first; one token when greedy."""
        row = self._adjusted(row, history)
        return self._best_of(row) if self.greedy else self._filtered(row)

    def _best_of(self, row: Values) -> tuple[Ids, Values]:
        best = row.argmax()
        _check_maximum(float(row[best]))
        return np.array([best]), row[best : best + 1]

    def _adjusted(self, row: Values, history: Sequence[int]) -> Values:
        """The row after bias and penalties; the row itself when neither is on."""
        penalized = self.penalizes and len(history) > 0
        if not penalized and not len(self._bias_ids):
            return row
        row = row.copy()
        row[self._bias_ids] += self._bias_values
        if penalized:
            params = self.params
            recent = history if params.penalty_last_n < 0 else history[-params.penalty_last_n :]
            ids, counts = np.unique(np.asarray(recent, dtype=np.int64), return_counts=True)
            values = row[ids]
            repeat = np.float32(params.repeat_penalty)
            values = np.where(values > 0, values / repeat, values * repeat)
            values -= (counts * params.frequency_penalty + params.presence_penalty).astype(np.float32)
            row[ids] = values
        return row

    def _filtered(self, row: Values, whole_row: Callable[[], Values] | None = None) -> tuple[Ids, Values]:
        """Ids and logits that survive top-k, top-p and min-p, best first; equal logits by lower id.

        Args:
            row: logits, `-inf` where forbidden, and with `whole_row` also beyond `NEAR` of the maximum.
            whole_row: makes the row as it is beyond, for where the near tokens do not decide.
        """
        params = self.params
        maximum = row.max()
        _check_maximum(float(maximum))
        floor = maximum + np.float32(math.log(params.min_p)) if params.min_p > 0 else np.float32(-np.inf)
        top_k_on = 0 < params.top_k < len(row)
        if whole_row is not None and not top_k_on and (params.top_p < 1 or floor < maximum - NEAR):
            row = whole_row()
        if top_k_on:
            ids, logits, whole = self._near(row, maximum)
            if not whole:
                kept = self._certain(logits, maximum, floor)
                if kept is not None:
                    return _above(ids[:kept], logits[:kept], floor)
                ids, logits = self._wide(row if whole_row is None else whole_row(), maximum)
            total = None
        else:
            # Whatever top-p keeps, min-p then cuts at `floor`: only tokens above it need sorting.
            ids = np.flatnonzero(row >= floor) if params.min_p > 0 else np.flatnonzero(row > -np.inf)
            logits = row[ids]
            order = np.argsort(-logits, kind="stable")
            ids, logits = ids[order], logits[order]
            total = float(np.exp(row - maximum).sum(dtype=np.float64)) if params.top_p < 1 else None
        if params.top_p < 1:
            mass = np.cumsum(np.exp(logits - maximum), dtype=np.float64)
            mass /= mass[-1] if total is None else total
            kept = int(np.searchsorted(mass, params.top_p, side="left")) + 1
            ids, logits = ids[:kept], logits[:kept]
        return _above(ids, logits, floor) if params.min_p > 0 else (ids, logits)

    def _near(self, row: Values, maximum: np.float32) -> tuple[Ids, Values, bool]:
        """The tokens within `NEAR` of the maximum, best first, k at most; and whether these are the top k.

        A threshold with at least k tokens above it cannot lose one of them.
        """
        k = self.params.top_k
        ids = np.flatnonzero(row >= maximum - NEAR)
        if len(ids) > _MANY * k:
            # A flat row: a sample of it tells about where its largest begin.
            stride = max(len(row) // _SAMPLE, 1)
            sample = row[::stride]
            rank = min(max(8 * k // stride, 2), len(sample))
            above = np.flatnonzero(row >= np.partition(sample, -rank)[-rank])
            ids = above if len(above) >= k else ids
        return *_best(ids, row[ids], k), len(ids) >= k

    def _wide(self, row: Values, maximum: np.float32) -> tuple[Ids, Values]:
        """Exactly the k largest where some lie far below the maximum."""
        k, span = self.params.top_k, NEAR
        while True:
            span *= np.float32(2)
            ids = np.flatnonzero(row >= maximum - span) if span < _FAR else np.flatnonzero(row > -np.inf)
            if len(ids) >= k or span >= _FAR:
                return _best(ids, row[ids], k)

    def _certain(self, logits: Values, maximum: np.float32, floor: np.float32) -> int | None:
        """How many of a peaked row's near tokens top-p keeps, where that is sure without the far ones.

        The others of the top k together weigh at most (k - n) exp(-NEAR). When top-p cuts at the same place
        whether they weigh that or nothing, they need not be found.

        Args:
            logits: all within `NEAR` of the maximum, fewer than k, best first.
            maximum: the largest.
            floor: what min-p keeps.
        """
        params = self.params
        if params.top_p >= 1:
            return len(logits) if floor >= maximum - NEAR else None
        mass = np.cumsum(np.exp(logits - maximum), dtype=np.float64)
        most = mass[-1] + (params.top_k - len(logits)) * _WEIGHT_BEYOND
        # A hair's breadth on both sides, so that rounding cannot tell the two ways apart.
        bounds = (params.top_p * mass[-1] * (1 - 1e-9), params.top_p * most * (1 + 1e-9))
        fewest, furthest = np.searchsorted(mass, bounds, side="left")
        return int(fewest) + 1 if fewest == furthest < len(logits) else None


def _best(ids: Ids, logits: Values, k: int) -> tuple[Ids, Values]:
    """The k largest of `logits`, best first; equal ones at the border by lower id."""
    if len(ids) > 4 * k:
        border = np.partition(logits, -k)[-k]
        above = np.flatnonzero(logits >= border)
        ids, logits = ids[above], logits[above]
    order = np.argsort(-logits, kind="stable")[:k]
    return ids[order], logits[order]


def _above(ids: Ids, logits: Values, floor: np.float32) -> tuple[Ids, Values]:
    """The part of sorted logits that lies at or above `floor`."""
    kept = int(np.searchsorted(-logits, -floor, side="right"))
    return ids[:kept], logits[:kept]


def _check_maximum(value: float) -> None:
    if math.isnan(value):
        raise BadLogitsError(
            "The model returned logits that are not numbers (NaN); its file or the GPU driver is likely at "
            "fault."
        )
    if value == -math.inf:
        raise BadLogitsError("Every token is forbidden here; relax the bias or the grammar.")
