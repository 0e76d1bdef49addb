"""What theory says of a fixed draft length: tokens a pass, speed-up, the best length, break-even acceptance.

Every draft token is taken to be accepted with one chance alpha, given that those before it were
(Leviathan et al., arXiv 2211.17192). Costs are a curve T(n) of any kind that can be called.
"""

from __future__ import annotations

from collections.abc import Callable

Cost = Callable[[int], float]
"""T(n): what a target pass over n tokens takes, in any unit."""

_HALVINGS = 50


def expected_tokens(alpha: float, gamma: int) -> float:
    """Tau: tokens that a pass emits on average, (1 - alpha^(gamma+1)) / (1 - alpha), equation 1.

    Args:
        alpha: conditional acceptance, 0 to 1.
        gamma: draft tokens of a step.
    """
    return float(gamma + 1) if alpha == 1 else (1 - alpha ** (gamma + 1)) / (1 - alpha)


def expected_speedup(alpha: float, gamma: int, cost: Cost, draft: float = 0.0) -> float:
    """Speed over plain decoding: tau / (T(1 + gamma)/T(1) + draft/T(1)).

    Args:
        alpha: conditional acceptance.
        gamma: draft tokens of a step.
        cost: T(n).
        draft: what making the draft takes, in the unit of `cost`.
    """
    return expected_tokens(alpha, gamma) * cost(1) / (cost(1 + gamma) + draft)


def best_gamma(alpha: float, cost: Cost, longest: int, draft: float = 0.0) -> int:
    """The draft length up to `longest` that promises most, the shorter of equals; 0: plain decoding.

    Every length is tried: the curve need not rise evenly.
    """
    best, best_speedup = 0, 1.0
    for gamma in range(1, longest + 1):
        speedup = expected_speedup(alpha, gamma, cost, draft)
        if speedup > best_speedup:
            best, best_speedup = gamma, speedup
    return best


def acceptance_for(tokens: float, gamma: int) -> float | None:
    """The alpha at which drafts of `gamma` emit `tokens` a pass; None where no alpha gives so many."""
    if tokens > gamma + 1 or gamma < 1:
        return None
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if expected_tokens(middle, gamma) < tokens:
            low = middle
        else:
            high = middle
    return high


def break_even(gamma: int, cost: Cost, draft: float = 0.0) -> float | None:
    """The smallest alpha at which drafts of `gamma` are no slower than plain decoding; None: at none."""
    return acceptance_for((cost(1 + gamma) + draft) / cost(1), gamma)
