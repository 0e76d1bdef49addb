"""Measuring T(n): the time of target passes over n tokens, after the same text."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import cycle, islice

from localspec.errors import UsageError
from localspec.target import TargetContext

SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 28, 32, 48, 64)
"""Tokens of the passes that are measured."""

_WARM_UP = 1
_BUDGET_S = 30.0
"""A large model on a slow machine is measured in fewer rounds: nobody waits minutes for a curve."""


def measure_passes(
    context: TargetContext,
    tokens: Sequence[int],
    sizes: Sequence[int] = SIZES,
    *,
    repeats: int = 5,
    budget_s: float = _BUDGET_S,
    progress: Callable[[float], None] | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> dict[int, float]:
    """T(n): milliseconds of one target pass over n tokens with the rows of all of them, by n.

    `tokens` are read into the cache first, and every pass starts from there. The sizes take turns, narrow and
    wide ones alternating and back again in the next round, so that a disturbance of the machine hits them
    alike; a round of warm-up does not count, and each figure is a median. Right before a pass that counts
    comes another of its size, because an engine that repeats a size reuses what it has prepared for it, as it
    does in plain decoding. What was in the cache before is lost; afterwards it is empty.

    Args:
        context: with a fixed number of threads, or T(n) mixes several.
        tokens: a text's, at least one. The passes take theirs from it too: other ones in every round, for a
            model whose experts depend on the token.
        sizes: tokens of a pass; those that the context has no room for are left out.
        repeats: passes of each size that count.
        budget_s: seconds after which no other round is begun; one round beside the warm-up is always made.
        progress: called with the fraction done, 0 to 1.
        clock: monotonic nanoseconds.

    Raises:
        UsageError: no tokens, no repeats, or no room for any size after `tokens`.
        EngineError: a pass failed.
    """
    room = min(context.max_rows, context.max_batch, context.capacity - len(tokens))
    order = _alternating([size for size in sorted(set(sizes)) if 1 <= size <= room])
    if not tokens or not order or repeats < 1:
        raise UsageError(
            f"T(n) cannot be measured after {len(tokens)} tokens in a context of {context.capacity}; raise "
            "--context."
        )
    times: dict[int, list[int]] = {size: [] for size in order}
    rounds = _WARM_UP + repeats
    start = clock()
    try:
        context.clear()
        _read(context, tokens)
        for turn in range(rounds):
            spent = (clock() - start) * 1e-9
            if turn > _WARM_UP and spent * (turn + 1) / turn > budget_s:
                break
            for visit, size in enumerate(order if turn % 2 == 0 else order[::-1]):
                first, second = pieces(tokens, turn * max(order), size)
                context.decode(first, "all")
                _roll_back(context, tokens)
                began = clock()
                context.decode(second, "all")
                times[size].append(clock() - began)
                _roll_back(context, tokens)
                if progress:
                    progress((turn + (visit + 1) / len(order)) / rounds)
    finally:
        context.clear()
    return {size: statistics.median(times[size][_WARM_UP:]) * 1e-6 for size in sorted(times)}


def _alternating(sizes: Sequence[int]) -> list[int]:
    """Smallest, largest, second smallest, second largest, ... of ascending sizes."""
    half = (len(sizes) + 1) // 2
    small, large = list(sizes[:half]), list(reversed(sizes[half:]))
    mixed = [size for pair in zip(small, large, strict=False) for size in pair]
    return mixed + small[len(large) :]


def pieces(tokens: Sequence[int], start: int, size: int) -> tuple[list[int], list[int]]:
    """Two different runs of `size` tokens, from the text as if it began again at its end."""
    start %= len(tokens)
    drawn = list(islice(cycle(tokens), start, start + 2 * size))
    return drawn[:size], drawn[size:]


def _read(context: TargetContext, tokens: Sequence[int]) -> None:
    for start in range(0, len(tokens), context.max_batch):
        context.decode(tokens[start : start + context.max_batch], "none")


def _roll_back(context: TargetContext, tokens: Sequence[int]) -> None:
    """Back to `tokens`; a context that cannot drop its tail reads them again."""
    if context.can_trim_far:
        context.keep(len(tokens))
    else:
        context.clear()
        _read(context, tokens)
