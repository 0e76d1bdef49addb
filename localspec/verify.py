"""Verification: which draft tokens the target agrees with, and what it says next.

A verifier is pure: it reads the draft and the target's rows and returns a verdict. Row 0 belongs to the
root (the last verified token), row i + 1 to draft node i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from localspec.sampling import Sampler
from localspec.types import Draft, Rows, Verdict


class Verifier(Protocol):
    """A rule of acceptance."""

    name: str
    exact: bool

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """Judge `draft`.

        Args:
            draft: tree of n nodes.
            rows: the target's logits, shape [n + 1, vocabulary].
            sampler: filters and noise.
            history: verified tokens, the root last.
        """


class CoupledVerifier:
    """The target draws its own token at every node, with noise that the draft cannot influence.

    If a child carries that token the walk descends, else it ends there. Exact for any drafter and any tree,
    and the text depends on the seed alone, not on what was drafted.
    """

    name = "coupled"
    exact = True

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """See `Verifier.verify`."""
        # A penalty at a node has seen the accepted tokens before it, and none that was refused.
        seen = list(history) if sampler.penalizes else []
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
        has_children = any(parent == node for parent in draft.parents[node + 1 :])
        return Verdict(tuple(path), token, "correction" if has_children else "bonus")
