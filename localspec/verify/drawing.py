"""How a draft model draws, to suit the rule that will judge its tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from localspec.errors import BadLogitsError, DeadEndError
from localspec.sampling import Ids, Sampler, Values, gumbel_noise
from localspec.types import Drawn
from localspec.verify.base import Probabilities, Verifier, drafting_seed, needs_probs, shares_noise


class RuleDrawing:
    """Draws from a draft model's row through the target's own filters; see `localspec.types.Drawing`.

    Under the rules whose verdict is the target's own draw, the draft draws with the target's own noise, which
    lifts acceptance to at least (1 - TV)/(1 + TV) (Daliri, Musco, Suresh, arXiv 2408.07978). The chance of a
    candidate is its softmax among the scores with that noise: the target adds the same, so what counts is by
    how much a candidate leads.

    Under the others the noise is independent, and the distribution is handed out. A chance then must not
    depend on the token that was drawn, or a draft that is cut by it no longer follows that distribution: the
    best candidate's probability is given instead.

    Further candidates come next by score: Gumbel top-k, which is a draw without replacement (Kool et al.,
    arXiv 1903.06059).

    Args:
        sampler: the target's.
        verifier: the rule.
    """

    def __init__(self, sampler: Sampler, verifier: Verifier) -> None:
        self._sampler = sampler
        self._verifier = verifier
        self._shared = shares_noise(verifier)
        self._probs = needs_probs(verifier) or not (self._shared or sampler.greedy)

    def draw(self, row: Values, tokens: Sequence[int], drafted: Sequence[int], count: int) -> Drawn:
        """See `Drawing.draw`.

        Raises:
            BadLogitsError: the row holds NaN or forbids every token.
        """
        try:
            return self._drawn(row, tokens, drafted, count)
        except DeadEndError:
            # The target may have what the drafter lacks: heads draft a part of the vocabulary.
            return Drawn((), ())

    def _drawn(self, row: Values, tokens: Sequence[int], drafted: Sequence[int], count: int) -> Drawn:
        sampler = self._sampler
        seen = sampler.window(tokens)
        if seen:
            seen.extend(drafted)
        if sampler.greedy:
            found = _likeliest(sampler.admitted(row, seen), count)
            # A greedy draw has all its mass on one token.
            whole = _dense(np.array(found.tokens[:1]), np.ones(1), len(row)) if self._probs else None
            return replace(found, probs=whole)
        ids, probs = sampler.distribution(row, seen)
        position = len(tokens) + len(drafted)
        seed = drafting_seed(self._verifier, sampler.params.seed, len(tokens))
        scores = np.log(probs) + gumbel_noise(seed, position, ids)
        order = np.argsort(-scores)[:count] if count > 1 else np.array([scores.argmax()])
        if self._shared:
            weights = np.exp(scores - scores[order[0]])
            chances = weights[order] / weights.sum()
        else:
            # Most likely first, whichever of them were drawn.
            chances = probs[: len(order)]
        whole = _dense(ids, probs, len(row)) if self._probs else None
        return Drawn(tuple(ids[order].tolist()), tuple(chances.tolist()), whole)


class GreedyDrawing:
    """Takes the likeliest tokens: for rows over another vocabulary than the target's."""

    def draw(self, row: Values, tokens: Sequence[int], drafted: Sequence[int], count: int) -> Drawn:  # noqa: ARG002
        """See `Drawing.draw`."""
        return _likeliest(row, count)


def _likeliest(row: Values, count: int) -> Drawn:
    """The largest logits, with their softmax."""
    best = np.array([row.argmax()]) if count == 1 else np.argpartition(-row, count - 1)[:count]
    best = best[np.argsort(-row[best])]
    top = row[best[0]]
    if not top > -np.inf:
        raise BadLogitsError("The draft model returned logits that are not numbers; use another --draft.")
    chances = np.exp(row[best] - top) / np.exp(row - top).sum(dtype=np.float64)
    return Drawn(tuple(best.tolist()), tuple(chances.tolist()))


def _dense(ids: Ids, probs: Probabilities, size: int) -> Values:
    whole = np.zeros(size, np.float32)
    whole[ids] = probs
    return whole
