"""How much of the machine other programs leave, from the system's own accounts."""

from __future__ import annotations

import time

import psutil

_WINDOW_NS = 120_000_000
"""Shortest time over which idle time is counted: the system's clock ticks every 1 to 10 ms."""


class SpareCores:
    """Idle cores among those that this process may use, over the last moments."""

    def __init__(self) -> None:
        try:
            self._allowed = sorted(psutil.Process().cpu_affinity() or ())
        except (AttributeError, psutil.Error, OSError):
            self._allowed = []
        self._when = time.perf_counter_ns()
        self._before = self._idle_seconds()
        self._spare: float | None = None

    def read(self, now: int) -> float | None:
        """Idle cores, 0 or more; None before the first window is over.

        Args:
            now: `time.perf_counter_ns()`. Cheap to call often: the system is asked once a window.
        """
        elapsed = now - self._when
        if elapsed >= _WINDOW_NS:
            idle = self._idle_seconds()
            self._spare = max(0.0, (idle - self._before) / (elapsed * 1e-9))
            self._when, self._before = now, idle
        return self._spare

    def _idle_seconds(self) -> float:
        """Idle time of the allowed cores since the system started."""
        times = psutil.cpu_times(percpu=True)
        chosen = [times[cpu] for cpu in self._allowed if cpu < len(times)] or times
        return sum(each.idle + getattr(each, "iowait", 0.0) for each in chosen)
