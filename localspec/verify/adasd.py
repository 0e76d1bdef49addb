"""AdaSD (2512.11280): acceptance by the distance of two distributions, lossy; and its rule of stopping.

The rule of verification is in use (`--verify adasd`). `EntropyStop`, its other half, is here for study: how
far drafts go is the policy's choice, which knows costs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from localspec.errors import UsageError
from localspec.sampling import Ids, Sampler
from localspec.types import Draft, Rows, Verdict
from localspec.verify.base import (
    DraftProbabilities,
    Probabilities,
    children_of,
    information,
    no_distribution,
    probability_of,
)


class RunningThreshold:
    """A threshold between the means of a statistic over accepted and over refused tokens.

    The midpoint of the two running means; none until each has a value, so there is nothing to tune.
    """

    def __init__(self) -> None:
        self._sums = {True: 0.0, False: 0.0}
        self._counts = {True: 0, False: 0}

    @property
    def value(self) -> float | None:
        """The threshold, or None while either kind of token is still to be seen."""
        if not self._counts[True] or not self._counts[False]:
            return None
        return sum(self._sums[kind] / self._counts[kind] for kind in (True, False)) / 2

    def add(self, statistic: float, *, accepted: bool) -> None:
        """Take in one judged token; a statistic that is not finite is left out."""
        if math.isfinite(statistic):
            self._sums[accepted] += statistic
            self._counts[accepted] += 1


class EntropyStop:
    """When a model drafter should stop: where it is less certain than it usually is of tokens that are kept.

    The drafter asks `stops` with the entropy of its distribution *before* it draws from it, so the decision
    does not depend on the token and exact rules stay exact. After the verdict it tells `update` the entropies
    of the tokens it drafted and how many were accepted: those, and the first refused one, move the threshold.
    """

    def __init__(self) -> None:
        self._threshold = RunningThreshold()

    @property
    def threshold(self) -> float | None:
        """Entropy in nats beyond which drafting stops; None: not yet known, do not stop."""
        return self._threshold.value

    def stops(self, entropy: float) -> bool:
        """Whether to stop before a token drawn from a distribution of this entropy."""
        threshold = self.threshold
        return threshold is not None and entropy > threshold

    def update(self, entropies: Sequence[float], accepted: int) -> None:
        """Learn from one draft: entropies of its tokens in order, of which the first `accepted` were kept."""
        for place, entropy in enumerate(entropies[: accepted + 1]):
            self._threshold.add(entropy, accepted=place < accepted)


def jensen_shannon_distance(
    ids: Ids, target_probs: Probabilities, draft_probs: DraftProbabilities | Probabilities
) -> float:
    """Square root of the Jensen-Shannon divergence, to base 2: 0 for equal distributions, 1 for disjoint.

    Args:
        ids: the target's tokens.
        target_probs: their probabilities, shape [len(ids)].
        draft_probs: the draft's distribution, shape [vocabulary].
    """
    drafted = draft_probs[ids].astype(np.float64)
    middle = (target_probs + drafted) / 2
    bits = (information(target_probs, middle) + information(drafted, middle)) / math.log(2)
    # Where the target has nothing, the mixture is half the draft: one bit for each unit of its mass.
    bits += max(1.0 - float(drafted.sum()), 0.0)
    return math.sqrt(min(max(bits / 2, 0.0), 1.0))


class AdaSDVerifier:
    """Accept a token that the target draws too, or where the two distributions are close.

    **Lossy**: where the Jensen-Shannon distance between draft and target is at most a threshold, the draft's
    token stands although the target drew another. The threshold is the midpoint of the running means of the
    distance over accepted and over refused tokens, and until both are known only the target's own draw is
    accepted. The paper says that its thresholds follow run-time statistics; its update equations were not to
    be had when this was written, so the running means stand in for them. A token that the filters forbid is
    never accepted. At temperature 0 both distributions count as they are given (a greedy draft is one-hot).

    The threshold is state: make one verifier a reply where the reply is to depend on its seed alone.
    """

    name = "adasd"
    exact = False
    shares_noise = True
    needs_probs = True

    def __init__(self) -> None:
        self._threshold = RunningThreshold()

    @property
    def threshold(self) -> float | None:
        """The distance up to which a token is accepted; None: not yet known."""
        return self._threshold.value

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """See `Verifier.verify`.

        Raises:
            UsageError: the draft has no distributions, or of another vocabulary.
        """
        if draft.tokens and not draft.probs:
            raise no_distribution(self.name, draft.source)
        if draft.probs and len(draft.probs[0]) != rows.shape[1]:
            raise UsageError(
                f"The rule '{self.name}' compares distributions, and those of '{draft.source}' are "
                "over another vocabulary than the model's; choose another --draft or --verify."
            )
        seen = sampler.window(history)
        path: list[int] = []
        node = -1
        while True:
            token = sampler.sample(rows[node + 1], len(history) + len(path), seen)
            children = children_of(draft, node)
            if not children:
                return Verdict(tuple(path), token, "bonus")
            child = draft.child_with(node, token)
            ids, probs = sampler.distribution(rows[node + 1], seen)
            distance = jensen_shannon_distance(ids, probs, draft.probs[children[0] if child < 0 else child])
            threshold = self.threshold
            if child < 0 and threshold is not None and distance <= threshold:
                likely = {index: probability_of(ids, probs, draft.tokens[index]) for index in children}
                best = max(likely, key=lambda index: (likely[index], -index))
                child = best if likely[best] > 0 else -1
            self._threshold.add(distance, accepted=child >= 0)
            if child < 0:
                return Verdict(tuple(path), token, "correction")
            path.append(child)
            seen.append(draft.tokens[child])
            node = child
