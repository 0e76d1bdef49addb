"""T(n) measured while nobody waits: one pass at a time, after whatever the cache holds."""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence

from localspec.calibration.passes import pieces
from localspec.cost import CostCurve
from localspec.target import TargetContext

KEY_SIZES = (1, 2, 4, 8, 9, 16, 32)
"""Widths without which there is no curve: kernels change their path between some of them."""
_SIZES = (1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24, 32, 49)

_ROUNDS, _MOST_ROUNDS = 2, 6
_BUDGET_S = 2.0
"""Time after which nothing more is measured, once the key widths have had their rounds."""
_LONGEST_S, _LONGEST_PASSES = 1.0, 4.0
"""Seconds, or passes over one token where that is more, beyond which a pass is not made: a message that comes
meanwhile waits for it."""
_FORGOTTEN_S = 0.5
"""After such a pause the engine has lost what it prepared for a width."""


class IdleCalibration:
    """Measures T(n) after the tokens that are in the cache, and leaves the cache as it was.

    Every width is visited once a round, from narrow to wide and back in the next; a visit is a pass that does
    not count, for which the engine prepares, and one that does. Passes with another number of threads than
    most do not count either.

    Args:
        context: has to be able to trim.
        tokens: what passes take their tokens from, at least one.
        clock: monotonic nanoseconds.
    """

    def __init__(
        self,
        context: TargetContext,
        tokens: Sequence[int],
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        self._context = context
        self._tokens = tokens
        self._clock = clock
        self._times: dict[int, dict[int, list[int]]] = {}
        self._round = 0
        # A pass has to leave no trace.
        self._waiting: list[int] = list(KEY_SIZES) if context.can_trim_far else []
        self._spent = 0
        self._passes = 0
        self._ready: tuple[int, int] | None = None

    @property
    def done(self) -> bool:
        """Whether all has been measured that is going to be."""
        return not self._waiting

    @property
    def threads(self) -> int:
        """Threads of the passes that count; 0 before the first."""
        counts = Counter({n: sum(map(len, times.values())) for n, times in self._times.items()})
        return counts.most_common(1)[0][0] if counts else 0

    @property
    def points(self) -> dict[int, float]:
        """T(n) in seconds by n, so far."""
        times = self._times.get(self.threads, {})
        return {size: statistics.median(times[size]) * 1e-9 for size in sorted(times)}

    def step(self) -> None:
        """Make one pass.

        Raises:
            EngineError: the pass or its roll back failed; the cache is to be cleared.
        """
        context, size = self._context, self._next_size()
        if size is None:
            return
        held, began = context.length, self._clock()
        prepared = self._ready is not None and (
            self._ready[0] == size and began - self._ready[1] < _FORGOTTEN_S * 1e9
        )
        # Other tokens in every pass, for a model whose experts depend on them.
        tokens, _ = pieces(self._tokens, self._passes * size, size)
        context.decode(tokens, "all")
        elapsed = self._clock() - began
        context.keep(held)
        self._passes += 1
        self._spent += elapsed
        if prepared:
            self._times.setdefault(context.threads, {}).setdefault(size, []).append(elapsed)
            self._waiting.pop(0)
            self._ready = None
        else:
            self._ready = (size, self._clock())
        if not self._waiting:
            self._next_round()
        if self._round >= _ROUNDS and self._spent >= _BUDGET_S * 1e9:
            self._waiting = []

    # --- inner steps

    def _next_size(self) -> int | None:
        """The first waiting width that there is room and time for; those before it are left out."""
        context, points = self._context, self.points
        room = min(context.max_rows, context.max_batch, context.capacity - context.length)
        longest = max(_LONGEST_S, _LONGEST_PASSES * points.get(1, 0.0))
        likely = CostCurve(points) if 1 in points else None
        while self._waiting and (
            self._waiting[0] > room or (likely is not None and likely(self._waiting[0]) > longest)
        ):
            self._waiting.pop(0)
        return self._waiting[0] if self._waiting else None

    def _next_round(self) -> None:
        self._round += 1
        if self._round >= _MOST_ROUNDS:
            return
        sizes = KEY_SIZES if self._round < _ROUNDS else _SIZES
        self._waiting = sorted(sizes, reverse=self._round % 2 == 1)
        self._next_size()
