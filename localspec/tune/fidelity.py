"""How near a copy of a model is to the file that it was made from, on recorded replies."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from localspec.bench.driver import Driver
from localspec.bench.pooling import total
from localspec.tune.budget import Deadline
from localspec.tune.records import Fidelity
from localspec.tune.rivals import Asked
from localspec.types import Rows

_WIDTH = 16
"""Tokens of a pass. Both files take the same widths: rounding must not count as a difference."""

_DIVERGENCES = (0.01, 0.1, 0.5)
"""Mean divergences in nats up to which replies are hardly, somewhat, and clearly different."""
_AGREEMENTS = (0.95, 0.9, 0.8)
"""Shares of equal favourites down to which they are; what says worse counts."""
_WORDS = (
    "its replies are hardly to be told apart from those of your file",
    "its replies differ in wording here and there",
    "its replies often differ from those of your file",
    "it is another model in effect",
)


def fidelity(original: Driver, copy: Driver, asked: Sequence[Asked], deadline: Deadline) -> Fidelity | None:
    """Divergence and agreement over the recorded replies, as many as there is time for; None for none.

    Args:
        original: of the file.
        copy: of another quantization; its vocabulary is the same.
        asked: prompts with replies.
        deadline: after which no other reply is looked at.

    Raises:
        EngineError: a pass failed.
    """
    found: list[float] = []
    same = 0
    for one in asked:
        if deadline.passed():
            break
        # What follows the last token of the prompt is the first distribution of the reply.
        tokens = [one.reply.prompt[-1], *(one.reply.forced or ())][:-1]
        pieces = [tokens[start : start + _WIDTH] for start in range(0, len(tokens), _WIDTH)]
        sides = (original.passes(one.reply.prompt, pieces), copy.passes(one.reply.prompt, pieces))
        for rows, others in zip(*sides, strict=True):
            found += divergences(rows, others)
            same += int(np.count_nonzero(rows.argmax(axis=1) == others.argmax(axis=1)))
    found = [value for value in found if math.isfinite(value)]
    if not found:
        return None
    return Fidelity(tokens=len(found), divergence=total(found) / len(found), agreement=same / len(found))


def divergences(rows: Rows, others: Rows) -> list[float]:
    """Kullback-Leibler divergence from each row's distribution to the other's, in nats.

    Args:
        rows: logits, shape [n, vocabulary].
        others: the same of another model.
    """
    one, other = _log_softmax(rows), _log_softmax(others)
    # A masked token has probability 0 in both, and minus infinity less itself is no number.
    difference = np.subtract(one, other, out=np.zeros_like(one), where=~np.isneginf(one))
    return [float(max(value, 0.0)) for value in (np.exp(one) * difference).sum(axis=1)]


def _log_softmax(rows: Rows) -> NDArray[np.float64]:
    shifted = rows.astype(np.float64)
    shifted -= shifted.max(axis=1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True)))


def in_words(found: Fidelity) -> str:
    """What it means for a reader of replies."""
    level = max(
        sum(found.divergence > limit for limit in _DIVERGENCES),
        sum(found.agreement < limit for limit in _AGREEMENTS),
    )
    others = round((1 - found.agreement) * 100)
    places = "at no place of 100" if others == 0 else f"at {others} of 100 places"
    return f"{places} it prefers another token: {_WORDS[level]}"
