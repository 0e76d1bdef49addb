"""T(n) of the model in use: from the last time, from idle moments, and from the passes of replies."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from localspec.calibration.idle import IdleCalibration
from localspec.calibration.store import CurveStore, Measured, plausible
from localspec.control.live_cost import LiveCost
from localspec.cost import CostCurve
from localspec.target import TargetContext

logger = logging.getLogger(__name__)

BUCKETS = (512, 2048, 8192)
"""Tokens in the cache at which another curve begins: reading the cache is a part of every pass."""

SOME_TEXT = "The ferry leaves the island at seven, long before the shops on the quay open. "
"""What passes are measured with while nothing has been said."""

_MOST_TOKENS = 256
"""Of the text that passes take their tokens from, the newest."""

_SURE = 8
"""Passes of a width after which what they show is kept."""


class PassCosts:
    """The curve for the present length of text, corrected by the passes that are made.

    Args:
        likely: T(n) where nothing has been measured, in any unit.
        store: keeps what was measured; None keeps nothing.

    Attributes:
        live: what controllers ask; always the same object.
    """

    def __init__(self, likely: CostCurve, store: CurveStore | None = None) -> None:
        self._likely = likely
        self._store = store
        self._measured = store.load() if store else {}
        self._bucket = 0
        self._calibration: tuple[int, IdleCalibration] | None = None
        self._finished: set[int] = set()
        curve = self._curve()
        self._in_seconds = curve is not None
        self.live = LiveCost(curve or likely, curve(1) if curve else None)
        if store:
            self.live.drafting = store.drafting

    def at(self, length: int) -> None:
        """A reply begins after `length` tokens."""
        bucket = bucket_of(length)
        if bucket == self._bucket:
            return
        self._take_refined()
        self._bucket = bucket
        self._go_on()

    def measure(self, context: TargetContext, tokens: Sequence[int]) -> bool:
        """Make one pass of what is still to be measured; returns whether there is more.

        Args:
            context: its cache is afterwards as it was before.
            tokens: what the pass takes its tokens from, at least one.

        Raises:
            EngineError: the pass or its roll back failed; the cache is to be cleared.
        """
        bucket = bucket_of(context.length)
        if bucket in self._finished or (bucket in self._measured and self._measured[bucket].complete):
            return False
        if self._calibration is None or self._calibration[0] != bucket:
            self._calibration = (bucket, IdleCalibration(context, tokens[-_MOST_TOKENS:]))
        calibration = self._calibration[1]
        calibration.step()
        if not calibration.done:
            return True
        self._calibration = None
        self._finished.add(bucket)
        points = calibration.points
        if len(points) > 1 and plausible(points):
            self._measured[bucket] = Measured(points, calibration.threads, complete=True)
            logger.info("T(n) with %d threads: %s", calibration.threads, points)
            if self._store:
                self._store.save(self._measured)
            # What replies have shown so far was about another curve; the height is fresh as well.
            curve = self._curve()
            assert curve is not None  # noqa: S101 - something is measured now
            self._in_seconds = True
            self.live.use(curve, curve(1))
        return False

    def save(self) -> None:
        """Keep what the passes of replies have shown."""
        self._take_refined()
        self._go_on()
        if self._store and self._measured:
            self._store.save(self._measured)

    # --- inner steps

    def _curve(self) -> CostCurve | None:
        """In seconds, of the present bucket or of the nearest one that was measured; None without any."""
        if not self._measured:
            return None
        nearest = min(
            self._measured,
            key=lambda bucket: (abs(bucket - self._bucket), not self._measured[bucket].complete),
        )
        measured = self._measured[nearest]
        if measured.complete:
            return CostCurve(measured.points)
        # Replies show only the widths that they use; for others the likely shape has to do.
        scaled = self._likely.scaled(measured.points[1] / self._likely(1))
        return CostCurve(scaled.points | measured.points)

    def _go_on(self) -> None:
        curve = self._curve()
        if curve is None:
            return
        self.live.use(curve, None if self._in_seconds else curve(1))
        self._in_seconds = True

    def _take_refined(self) -> None:
        """Take over what the passes of replies say about the shape of the present curve."""
        refined = self.live.refined(_SURE)
        known = self._measured.get(self._bucket)
        if known is not None:
            # The height is that of the moment's load and is not kept.
            points = known.points | {n: seconds for n, seconds in refined.items() if n > 1}
            complete, threads = known.complete, known.threads
        elif len(refined) > 1 and 1 in refined and not self._in_seconds:
            points = {n: shape * self.live.height for n, shape in refined.items()}
            complete, threads = False, 0
        else:
            return
        if plausible(points):
            self._measured[self._bucket] = Measured(points, threads, complete)


def bucket_of(length: int) -> int:
    """Number of the bucket for `length` tokens in the cache."""
    return sum(length >= limit for limit in BUCKETS)
