"""The time that tuning may take, and the stages' shares of it."""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], int]
"""Monotonic nanoseconds."""

_S = 1_000_000_000


class Deadline:
    """An end in time.

    Args:
        clock: tells the time.
        end: in its nanoseconds.
    """

    def __init__(self, clock: Clock, end: int) -> None:
        self._clock = clock
        self._end = end

    @property
    def left_s(self) -> float:
        """Seconds until then; 0 afterwards."""
        return max(self._end - self._clock(), 0) / _S

    def passed(self) -> bool:
        """Whether the time is up."""
        return self._clock() >= self._end

    def share(self, part: float) -> Deadline:
        """An earlier end: after `part` (0 to 1) of what is left now."""
        now = self._clock()
        return Deadline(self._clock, now + round(max(self._end - now, 0) * part))


class TimeBudget(Deadline):
    """The whole time, from now on.

    Args:
        clock: tells the time.
        seconds: that there are, above 0.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._begun = clock()
        self._seconds = seconds
        super().__init__(clock, self._begun + round(seconds * _S))

    @property
    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return (self._clock() - self._begun) / _S

    @property
    def done(self) -> float:
        """Share of the time that is over, 0 to 1."""
        return min(self.spent_s / self._seconds, 1.0)
