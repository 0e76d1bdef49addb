"""Successive halving: every round the slower half leaves, so that the time goes to those that may win."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from localspec.tune.budget import Deadline

FINALISTS = 2
"""So many stay to the end: the fastest may turn out not to be the best."""
ROUNDS = 8
"""Rounds at most."""
SURE = 0.012
"""Once the finalists' speeds are known within this share, further rounds would change nothing."""
LEAST_ROUNDS = 3
"""Rounds from which on a candidate can win."""


def contest(
    candidates: Sequence[str],
    always: Sequence[str],
    visit: Callable[[Sequence[str], int], bool],
    rank: Callable[[str], float | None],
    within: Callable[[str], float | None],
    deadline: Deadline,
    most: int = ROUNDS,
) -> int:
    """Make rounds until the time is over or nothing more is to be learnt.

    Args:
        candidates: who can win.
        always: who is in every round, to be compared with.
        visit: makes round `number` of these rivals; False where the time ended within it.
        rank: how good a candidate is so far, None for one that cannot be used: it leaves.
        within: how far that may be off, as a share.
        deadline: after which no round begins; nor does one that would not end before it.
        most: rounds at most.

    Returns:
        Rounds that were begun.
    """
    alive = list(candidates)
    for number in range(most):
        left = deadline.left_s
        if left <= 0 or not visit([*always, *alive], number):
            return number + (left > 0)
        taken = left - deadline.left_s
        ranked = sorted(
            (name for name in alive if rank(name) is not None), key=lambda name: -(rank(name) or 0.0)
        )
        if not ranked:
            return number + 1
        before = len(alive)
        alive = ranked[: max(FINALISTS, math.ceil(len(ranked) / 2))]
        known = [within(name) for name in alive]
        if number + 1 >= LEAST_ROUNDS and all(each is not None and each <= SURE for each in known):
            return number + 1
        # The next round is shorter by those that left.
        expected = taken * (len(always) + len(alive)) / max(len(always) + before, 1)
        if deadline.left_s < expected:
            return number + 1
    return most
