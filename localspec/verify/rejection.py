"""Rejection sampling (Leviathan et al. 2211.17192; Chen et al. 2302.01318), on chains and on trees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.sampling import Ids, Purpose, Sampler, stream_seed, uniform
from localspec.types import Draft, Rows, Verdict
from localspec.verify.base import (
    DraftProbabilities,
    Probabilities,
    children_of,
    correction_point,
    draft_probabilities_at,
    draft_probability_of,
    draw,
    excess,
    probability_of,
)
from localspec.verify.coupled import CoupledVerifier


@dataclass(slots=True)
class Siblings:
    """One place of the tree while its candidates are tried in turn.

    `probs` is the target's distribution given that the candidates so far were refused; `mass` is what it adds
    up to. `refused` holds their tokens.
    """

    ids: Ids
    probs: Probabilities
    vocabulary: int
    replacement: bool
    mass: float = 1.0
    refused: list[int] = field(default_factory=list)

    def accepts(self, token: int, draft_probs: DraftProbabilities, point: float) -> bool:
        """Accept `token` with min(1, p/q); after a refusal p becomes norm(max(0, p - q))."""
        left = self.left(draft_probs)
        target = probability_of(self.ids, self.probs, token) / self.mass
        if point * draft_probability_of(draft_probs, token) < target * left:
            return True
        self.refuse(token, draft_probs, left)
        return False

    def left(self, draft_probs: DraftProbabilities) -> float:
        """The draft distribution's mass without the tokens that can no longer be drawn."""
        if self.replacement or not self.refused:
            return 1.0
        return max(1.0 - sum(draft_probability_of(draft_probs, token) for token in self.refused), 0.0)

    def refuse(self, token: int, draft_probs: DraftProbabilities, left: float) -> None:
        """Turn p into what remains of it."""
        at_ids = draft_probabilities_at(draft_probs, self.ids, self.vocabulary)
        if left < 1.0:
            for gone in self.refused:
                at_ids[self.ids == gone] = 0.0
            at_ids /= max(left, 1e-300)
        rest, mass = excess(self.probs / self.mass, at_ids)
        # No mass is left only where p equals q but for rounding; a refusal then has that probability too.
        if mass > 0:
            self.probs, self.mass = rest, mass
        self.refused.append(token)


class RejectionVerifier:
    """Accept a token with probability min(1, p/q), else draw from norm(max(0, p - q)).

    p is the target's final distribution after the tokens accepted so far, q the one that the token was drawn
    from. Several children of a node are tried in order, eldest first: after each refusal p becomes
    norm(max(0, p - q)), with the same q where the children are independent draws (SpecInfer, 2305.09781), and
    with the refused tokens taken out of q where they were drawn without replacement (Sequoia, 2402.12374;
    `Draft.replacement`). A leaf that is reached earns a bonus token from p.

    A draft without `probs` has one-hot q: a child is accepted with p(x), and the rest of p decides otherwise.
    That is to draw y from p and to descend if a child carries y, which is what the coupled rule does, so such
    a draft is judged by it and the text is the same. Temperature 0 is exact match, likewise.

    The numbers that decide (accept, correction) come from streams of their own, keyed by (seed, root,
    position). They must not be the noise that the draft was drawn with: given that x was drawn *and* refused,
    that noise is no longer uniform, and a correction made from it would not follow the residual.

    A drafter must not drop a token because of the token's own probability, which would change q; it may stop
    by entropy or by the maximum, which do not depend on what was drawn.
    """

    name = "rejection"
    exact = True
    shares_noise = False

    def __init__(self) -> None:
        self._coupled = CoupledVerifier()

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """See `Verifier.verify`."""
        if not draft.probs or sampler.greedy:
            return self._coupled.verify(draft, rows, sampler, history)
        root, vocabulary = len(history), rows.shape[1]
        accept_seed = stream_seed(sampler.params.seed, Purpose.ACCEPT, root)
        seen = sampler.window(history)
        path: list[int] = []
        node, trial = -1, 0
        while children := children_of(draft, node):
            position = root + len(path)
            ids, probs = sampler.distribution(rows[node + 1], seen)
            siblings = self._siblings(ids, probs, vocabulary, draft.replacement)
            for child in children:
                trial += 1
                if siblings.accepts(draft.tokens[child], draft.probs[child], uniform(accept_seed, trial)):
                    path.append(child)
                    seen.append(draft.tokens[child])
                    node = child
                    break
            else:
                point = correction_point(sampler, root, position)
                token = draw(ids, siblings.probs, siblings.mass, point)
                return Verdict(tuple(path), token, "correction")
        # No draft token stood at this position, so the plain draw's noise is free to be used.
        return Verdict(tuple(path), sampler.sample(rows[node + 1], root + len(path), seen), "bonus")

    def _siblings(self, ids: Ids, probs: Probabilities, vocabulary: int, replacement: bool) -> Siblings:
        return Siblings(ids, probs, vocabulary, replacement)
