"""What a rule of verification is, and the arithmetic that several rules share.

A verifier reads the draft and the target's rows and returns a verdict. Row 0 belongs to the root (the last
verified token), row i + 1 to draft node i. Distributions of the target are sparse, (ids, probabilities) of
the few tokens that the filters leave, so nothing here walks over a whole vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from localspec.errors import BadLogitsError, UsageError
from localspec.sampling import Ids, Purpose, Sampler, stream_seed, uniform
from localspec.types import Draft, Rows, Verdict

Probabilities = NDArray[np.float64]
DraftProbabilities = NDArray[np.float32]


class Verifier(Protocol):
    """A rule of acceptance.

    Attributes:
        name: the value of `--verify`.
        exact: whether the tokens are distributed as the target's own; a rule that is not is "lossy" and is
            labelled so wherever it is named.

    A rule may also say `shares_noise = False` and `needs_probs = True`: see the functions of these names.
    """

    name: str
    exact: bool

    def verify(self, draft: Draft, rows: Rows, sampler: Sampler, history: Sequence[int]) -> Verdict:
        """Judge `draft`.

        Args:
            draft: tree of n nodes.
            rows: the target's logits, shape [n + 1, vocabulary]; not modified.
            sampler: filters and noise.
            history: verified tokens, the root last.

        Raises:
            BadLogitsError: a row that matters holds NaN or forbids every token.
            UsageError: the draft lacks what the rule needs.
        """


def shares_noise(verifier: Verifier) -> bool:
    """Whether a model drafter should draw with the target's own noise, `gumbel_noise(seed, position, ids)`.

    It should under the rules whose verdict is the target's own draw: the same noise makes the same token
    likely. It must not under rejection and block verification, whose proofs need the draft to be independent
    of the draws that judge it; see `drafting_seed`.
    """
    return bool(getattr(verifier, "shares_noise", True))


def needs_probs(verifier: Verifier) -> bool:
    """Whether a draft must carry the distributions of its tokens whatever the temperature."""
    return bool(getattr(verifier, "needs_probs", False))


def drafting_seed(verifier: Verifier, seed: int, root: int) -> int:
    """The seed from which a model drafter's noise `gumbel_noise(drafting_seed, position, ids)` comes.

    Args:
        verifier: the rule that will judge the draft.
        seed: the sampling seed.
        root: number of verified tokens before the step. It is part of the key because block verification
            decides with *all* tokens of a draft, the refused tail included: were their noise used again when
            the next step drafts the same positions, that draft would no longer follow its distribution.
    """
    return seed if shares_noise(verifier) else stream_seed(seed, Purpose.DRAFT, root)


def children_of(draft: Draft, node: int) -> list[int]:
    """The children of `node` (-1: the root), eldest first."""
    return [index for index in range(node + 1, len(draft.tokens)) if draft.parents[index] == node]


def probability_of(ids: Ids, probabilities: Probabilities, token: int) -> float:
    """What the sparse distribution gives to `token`; 0 for a token that was filtered out."""
    place = (ids == token).nonzero()[0]
    return float(probabilities[place[0]]) if len(place) else 0.0


def draft_probability_of(draft_probs: DraftProbabilities, token: int) -> float:
    """What the draft distribution gives to `token`; 0 beyond a reduced vocabulary."""
    return float(draft_probs[token]) if token < len(draft_probs) else 0.0


def draft_probabilities_at(draft_probs: DraftProbabilities, ids: Ids, vocabulary: int) -> Probabilities:
    """The draft distribution at `ids`, 0 beyond a reduced vocabulary; shape [len(ids)]."""
    if len(draft_probs) >= vocabulary:
        return draft_probs[ids].astype(np.float64)
    known = ids < len(draft_probs)
    values = np.zeros(len(ids))
    values[known] = draft_probs[ids[known]]
    return values


def information(probabilities: Probabilities, reference: Probabilities | None = None) -> float:
    """Sum of p ln(p / reference) in nats; without a reference of p ln p, the negative entropy."""
    positive = probabilities > 0
    p = probabilities[positive]
    return float((p * np.log(p if reference is None else p / reference[positive])).sum())


def excess(target_probs: Probabilities, draft_probs: Probabilities) -> tuple[Probabilities, float]:
    """max(0, p - q) on the target's tokens, and its mass. Elsewhere p is 0, so nothing is missing.

    Raises:
        BadLogitsError: the draft distribution is not made of numbers.
    """
    left = np.maximum(target_probs - draft_probs, 0.0)
    mass = float(left.sum())
    if math.isnan(mass):
        raise BadLogitsError(
            "The draft model returned probabilities that are not numbers (NaN); use another --draft, or "
            "--draft none."
        )
    return left, mass


def draw(ids: Ids, weights: Probabilities, mass: float, point: float) -> int:
    """The token at `point` in (0, 1) of the cumulative weights, which add up to `mass`."""
    place = int(np.searchsorted(np.cumsum(weights), point * mass, side="right"))
    return int(ids[min(place, int(weights.nonzero()[0][-1]))])


def correction_point(sampler: Sampler, root: int, position: int) -> float:
    """The uniform number with which the token in place of a refused one is drawn."""
    return uniform(stream_seed(sampler.params.seed, Purpose.CORRECTION, root), position)


def no_distribution(rule: str, source: str) -> UsageError:
    """The error of a rule that compares distributions, met by a drafter that has none."""
    return UsageError(
        f"The rule '{rule}' compares distributions, and the drafter '{source or 'given'}' has no "
        "distribution; choose a draft model with --draft, or another --verify."
    )
