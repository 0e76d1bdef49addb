"""The coupled rule: the target draws its own token at every node; a child that carries it is accepted."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.sampling import Sampler
from localspec.types import Draft, Rows, Verdict
from localspec.verify.base import children_of


class CoupledVerifier:
    """The target draws its own token at every node, with noise that the draft cannot influence.

    If a child carries that token the walk descends, else it ends there. Exact for any drafter and any tree,
    and the text depends on the seed alone, not on what was drafted (Daliri, Musco, Suresh, arXiv 2408.07978).
    """

    name = "coupled"
    exact = True
    shares_noise = True

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """See `Verifier.verify`."""
        # A penalty at a node has seen the accepted tokens before it, and none that was refused.
        seen = sampler.window(history)
        position = len(history)
        path: list[int] = []
        node = -1
        while True:
            token = sampler.sample(rows[node + 1], position, seen)
            child = draft.child_with(node, token)
            if child < 0:
                break
            path.append(child)
            node = child
            position += 1
            seen.append(token)
        return Verdict(tuple(path), token, "correction" if children_of(draft, node) else "bonus")
