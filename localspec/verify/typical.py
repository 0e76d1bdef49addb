"""Typical acceptance (Medusa, 2401.10774): lossy."""

from __future__ import annotations

import math
from collections.abc import Sequence

from localspec.sampling import Sampler
from localspec.types import Draft, Rows, Verdict
from localspec.verify.base import children_of, information, probability_of

EPSILON = 0.09
DELTA = 0.3


class TypicalVerifier:
    """Accept a token that the target finds plausible: p(x) > min(epsilon, delta * exp(-H(p))).

    **Lossy**: tokens are accepted by a threshold, not by chance, so the text is not distributed as the
    target's own. p is the target's final distribution (Medusa's code has temperature alone), H its entropy in
    nats. A token that the filters forbid is never accepted.

    The longest accepted path of a tree wins, the likelier one among equals. Medusa accepts the first token of
    a step unconditionally and takes it greedily from the target; that token is this verdict's `next_token`,
    which therefore is the most likely one. Without a draft it is the sampler's draw, so that plain decoding
    stays plain. At temperature 0 the rule is exact match.

    Args:
        epsilon: the largest threshold, Medusa's `posterior_threshold`.
        delta: scale of the entropy-dependent threshold, Medusa's `posterior_alpha`.
    """

    name = "typical"
    exact = False
    shares_noise = True

    def __init__(self, epsilon: float = EPSILON, delta: float = DELTA) -> None:
        self._epsilon = epsilon
        self._delta = delta

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """See `Verifier.verify`."""
        window = sampler.window(history)
        if not draft.tokens:
            return Verdict((), sampler.sample(rows[0], len(history), window), "bonus")
        # Accepted nodes and the root: (depth, log-likelihood), and what the target says next.
        scores: dict[int, tuple[int, float]] = {-1: (0, 0.0)}
        says: dict[int, int] = {}
        open_nodes = [-1]
        while open_nodes:
            node = open_nodes.pop()
            path = draft.path_to(node)
            seen = [*window, *(draft.tokens[index] for index in path)]
            ids, probs = sampler.distribution(rows[node + 1], seen)
            says[node] = int(ids[0])
            depth, likelihood = scores[node]
            threshold = min(self._epsilon, self._delta * math.exp(information(probs)))
            for child in children_of(draft, node):
                probability = probability_of(ids, probs, draft.tokens[child])
                if probability > threshold:
                    scores[child] = (depth + 1, likelihood + math.log(probability))
                    open_nodes.append(child)
        best = max(scores, key=lambda node: (*scores[node], -node))
        refused = bool(children_of(draft, best))
        return Verdict(draft.path_to(best), says[best], "correction" if refused else "bonus")
