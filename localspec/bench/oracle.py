"""The best that any drafter could reach on a text, from what passes of the model cost."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from functools import lru_cache

from localspec.cost import CostCurve
from localspec.stats.theory import expected_tokens

LONGEST = 128


def pass_time(pass_ms: Mapping[int, float], tokens: int) -> float | None:
    """T(n): milliseconds of a pass over `tokens` tokens, on a straight line between measured points.

    None beyond the largest and below the smallest measured point: nothing is extrapolated.
    """
    if tokens in pass_ms:
        return pass_ms[tokens]
    points = sorted(pass_ms)
    above = bisect_left(points, tokens)
    if above in (0, len(points)):
        return None
    low, high = points[above - 1], points[above]
    share = (tokens - low) / (high - low)
    return pass_ms[low] + share * (pass_ms[high] - pass_ms[low])


def pass_cost(pass_ms: Mapping[int, float], tokens: int) -> float | None:
    """T(n)/T(1); None where either is not known, or where that is no finite number."""
    one, many = pass_ms.get(1), pass_time(pass_ms, tokens)
    ratio = many / one if one and many is not None else math.inf
    return ratio if math.isfinite(ratio) else None


def predicted_speedup(
    alpha: float, length: int, pass_ms: Mapping[int, float], drafting: float = 1.0
) -> float | None:
    """Speed over plain decoding that theory gives for a fixed draft length and a draft that costs nothing.

    None where T(1 + length) is not known, or `alpha` or `drafting` is no share.

    Args:
        alpha: conditional acceptance.
        length: draft tokens of a step that drafts.
        pass_ms: T(n) in milliseconds, by n.
        drafting: share of the steps that draft; the others are plain ones.
    """
    if not (0 <= alpha <= 1 and 0 <= drafting <= 1):
        return None
    cost = pass_cost(pass_ms, length + 1)
    if not cost:
        return None
    plain = 1 - drafting
    return (drafting * expected_tokens(alpha, length) + plain) / (drafting * cost + plain)


def speedup_on(curve: CostCurve, tau: float, lengths: Sequence[int], drafting: float) -> float | None:
    """Speed over plain decoding that the same drafts would give where a pass costs what `curve` says.

    None without steps.

    Args:
        curve: T(n) there, in any unit.
        tau: tokens that a step emits on average.
        lengths: draft tokens of each step.
        drafting: what drafting takes a step, in passes over one token.
    """
    if not lengths:
        return None
    passes = sum(curve(1 + length) for length in lengths) / len(lengths) / curve(1)
    return tau / (passes + drafting)


def oracle_speedup(tokens: int, pass_ms: Mapping[int, float], longest: int = LONGEST) -> float | None:
    """Speed over plain decoding with the text known: every draft right and every length the best one.

    A pass over n tokens emits n. Lengths go up to the largest measured one, and to `longest`.

    Args:
        tokens: how many are to be emitted.
        pass_ms: T(n) in milliseconds, by n; must hold n = 1.
        longest: widest pass that is considered, in tokens.

    Returns:
        At least 1; None where T(1) is unknown or a time is not a positive number.
    """
    best = oracle_ms(tokens, pass_ms, longest)
    return tokens * pass_ms[1] / best if best else None


def oracle_ms(tokens: int, pass_ms: Mapping[int, float], longest: int = LONGEST) -> float | None:
    """Milliseconds of the cheapest passes that emit `tokens` tokens; see `oracle_speedup`."""
    usable = 1 in pass_ms and all(math.isfinite(ms) and ms > 0 for ms in pass_ms.values())
    if tokens < 1 or longest < 1 or not usable:
        return None
    return _cheapest(tokens, tuple(sorted(pass_ms.items())), longest)


@lru_cache(maxsize=1024)
def _cheapest(tokens: int, points: tuple[tuple[int, float], ...], longest: int) -> float:
    pass_ms = dict(points)
    widest = min(longest, points[-1][0], tokens)
    cost = [pass_time(pass_ms, width) or math.inf for width in range(1, widest + 1)]
    best = [0.0]
    for emitted in range(1, tokens + 1):
        best.append(min(ms + best[emitted - width] for width, ms in enumerate(cost[:emitted], start=1)))
    return best[tokens]


def best_length(pass_ms: Mapping[int, float], longest: int = LONGEST) -> int | None:
    """The constant draft length that is best when every draft is right: the most (1 + k) / T(1 + k).

    0 means that drafting never pays; the shortest of equals; None where T(1) is unknown.
    """
    if 1 not in pass_ms:
        return None
    best, best_rate = None, 0.0
    for width in range(1, min(longest, max(pass_ms)) + 1):
        ms = pass_time(pass_ms, width)
        if ms and math.isfinite(ms) and width / ms > best_rate:
            best, best_rate = width - 1, width / ms
    return best
