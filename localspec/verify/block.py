"""Block verification (Sun et al., 2403.10444): the tokens of a chain are judged together."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.sampling import Purpose, Sampler, stream_seed, uniform
from localspec.types import Draft, Rows, Verdict
from localspec.verify.base import (
    correction_point,
    draft_probabilities_at,
    draft_probability_of,
    draw,
    excess,
    probability_of,
)
from localspec.verify.coupled import CoupledVerifier


class BlockVerifier:
    """Keep the longest prefix that a joint test accepts: exact, and never shorter on average than rejection.

    With P_0 = 1 and P_i = min(1, P_{i-1} p(x_i) / q(x_i)), let S_i = sum of max(0, P_i p - q) over the next
    token. Prefix i passes if u_i <= h_i, with h_i = S_i / (S_i + 1 - P_i), and h_n = P_n for the whole draft.
    The longest prefix that passes is kept, whatever became of shorter ones; the next token is drawn in
    proportion to max(0, P_i p - q), or from p after the whole draft (algorithm 2 of the paper).

    Of a tree with `probs` only the eldest chain is judged (each node's first child); choosing a chain by how
    likely its tokens are would change what they were drawn from. A draft without `probs`, where judging the
    block gains nothing over token by token, and temperature 0 go to the coupled rule, on all branches.

    The verdict depends on every token of the draft, those after the kept prefix included. Hence every stream,
    the drafter's too (`drafting_seed`), is keyed by the root: no number that decided in one step is used in
    the next.
    """

    name = "block"
    exact = True
    shares_noise = False

    def __init__(self) -> None:
        self._coupled = CoupledVerifier()

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """See `Verifier.verify`."""
        if not draft.probs or sampler.greedy:
            return self._coupled.verify(draft, rows, sampler, history)
        root, vocabulary = len(history), rows.shape[1]
        accept_seed = self._accept_seed(sampler, root)
        seen = sampler.window(history)
        chain = draft.eldest_path()
        kept, joint, node = 0, 1.0, -1
        for length, child in enumerate(chain):
            token, draft_probs = draft.tokens[child], draft.probs[child]
            ids, probs = sampler.distribution(rows[node + 1], seen)
            rest, mass = excess(joint * probs, draft_probabilities_at(draft_probs, ids, vocabulary))
            # At joint 1 the prefix passes for certain; that also covers 0/0, where p equals q.
            if (
                length == 0
                or joint >= 1.0
                or uniform(accept_seed, root + length) * (mass + 1 - joint) <= mass
            ):
                kept, residual = length, (ids, rest, mass) if mass > 0 else (ids, probs, 1.0)
            target, drafted = probability_of(ids, probs, token), draft_probability_of(draft_probs, token)
            joint = min(1.0, joint * target / drafted) if drafted > 0 else float(target > 0)
            if joint == 0:
                break
            seen.append(token)
            node = child
        else:
            if uniform(accept_seed, root + len(chain)) <= joint:
                # No draft token stood at this position, so the plain draw's noise is free to be used.
                return Verdict(chain, sampler.sample(rows[node + 1], root + len(chain), seen), "bonus")
        token = draw(*residual, correction_point(sampler, root, root + kept))
        return Verdict(chain[:kept], token, "correction")

    def _accept_seed(self, sampler: Sampler, root: int) -> int:
        return stream_seed(sampler.params.seed, Purpose.ACCEPT, root)
