"""Log-probabilities of emitted tokens, from the rows that verified them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from localspec.errors import UsageError
from localspec.messages import TokenLogprob, TokenLogprobs

MOST_LOGPROBS = 20
"""Alternatives of a token at most."""


def check_logprobs(count: int) -> None:
    """Raise `UsageError` for a number of alternatives that is out of range."""
    if not 0 <= count <= MOST_LOGPROBS:
        raise UsageError(f"--logprobs must lie between 0 and {MOST_LOGPROBS}.")


def token_logprobs(
    row: NDArray[np.float32], token: int, count: int, text: Callable[[int], str]
) -> TokenLogprobs:
    """Log-probability of `token`, and the `count` most likely tokens of the row.

    Args:
        row: the model's own logits, shape [vocabulary].
        token: the token that was emitted.
        count: how many others; equal ones by lower id.
        text: the text of a token.
    """
    maximum = float(row.max())
    total = maximum + float(np.log(np.exp(row - maximum, dtype=np.float64).sum()))
    count = min(count, len(row))
    best: list[int] = []
    if count:
        ids = np.flatnonzero(row >= np.partition(row, -count)[-count])
        best = ids[np.argsort(-row[ids], kind="stable")[:count]].tolist()
    return TokenLogprobs(
        text(token),
        float(row[token]) - total,
        tuple(TokenLogprob(other, text(other), float(row[other]) - total) for other in best),
    )
