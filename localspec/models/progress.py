"""How far a download is, as plain values."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from localspec.models.disk import readable_size

_WINDOW_S = 5.0
_INTERVAL_S = 0.1


@dataclass(frozen=True, slots=True)
class PullProgress:
    """How far a pull is.

    Attributes:
        stage: "waiting" (for another process), "connecting", "downloading", "retrying", "paused" (because the
            server asked for it), "unpacking" or "verifying".
        done_bytes: bytes of this stage that are done, resumed ones included.
        total_bytes: bytes of this stage, None while nobody has told them.
        rate: bytes a second over the last seconds, None before there is a measurement.
    """

    stage: str
    done_bytes: int
    total_bytes: int | None
    rate: float | None

    @property
    def remaining_s(self) -> float | None:
        """Seconds left in this stage at the present rate, None if unknown."""
        if self.total_bytes is None or not self.rate:
            return None
        return max(self.total_bytes - self.done_bytes, 0) / self.rate

    @property
    def text(self) -> str:
        """One line for people: stage, bytes, rate and time left, as far as they are known."""
        parts = [self.stage]
        if self.done_bytes or self.total_bytes:
            of = f" of {readable_size(self.total_bytes)}" if self.total_bytes else ""
            parts.append(f"{readable_size(self.done_bytes)}{of}")
        if self.rate:
            parts.append(f"{readable_size(self.rate)}/s")
        left = self.remaining_s
        if left:
            minutes, seconds = divmod(round(left), 60)
            parts.append(f"{minutes}:{seconds:02d} left")
        return "  ".join(parts)


OnProgress = Callable[[PullProgress], None]


class Meter:
    """Turns byte counts into progress reports, ten a second at most."""

    def __init__(self, report: OnProgress | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._report = report
        self._clock = clock
        self._stage = ""
        self._total: int | None = None
        self._samples: deque[tuple[float, int]] = deque()
        self._last_report = -_INTERVAL_S

    def begin(self, stage: str, done: int = 0, total: int | None = None) -> None:
        """Start a stage at `done` bytes; the rate starts anew, so resumed bytes never count as fast ones."""
        self._stage, self._total = stage, total
        self._samples.clear()
        self.at(done, force=True)

    def follow(self, stage: str, done: int, total: int | None) -> None:
        """Note where something that is watched from outside stands; another stage is begun."""
        if (stage, total) == (self._stage, self._total):
            self.at(done)
        else:
            self.begin(stage, done, total)

    def at(self, done: int, *, force: bool = False) -> None:
        """Note that `done` bytes of the stage are done."""
        now = self._clock()
        if not force and now - self._last_report < _INTERVAL_S:
            return
        self._last_report = now
        self._samples.append((now, done))
        while now - self._samples[0][0] > _WINDOW_S and len(self._samples) > 2:
            self._samples.popleft()
        if self._report is not None:
            self._report(PullProgress(self._stage, done, self._total, self._rate()))

    def _rate(self) -> float | None:
        (first_time, first), (last_time, last) = self._samples[0], self._samples[-1]
        elapsed = last_time - first_time
        return max(last - first, 0) / elapsed if elapsed > 0 else None
