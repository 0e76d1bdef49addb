"""How many CPU threads the next pass should use, learnt from the time of the passes before it.

llama.cpp's threads wait for each other actively at every operation: while another program takes one core, a
pass that counts on all cores waits for the slowest, and one thread fewer can be more than twice as fast.
The governor keeps a recent time per (threads, width of the pass), tries a neighbouring level for single
passes, and moves when that is faster. More threads than there are idle cores can cost seconds for a single
pass (each of its thousand operations waits for the scheduler), so that is tried only where cores are idle.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field

_PROBE_UP_NS = 200_000_000
"""How often more threads are tried while cores are idle; each try that does not pay doubles the pause."""
_LONGEST_PAUSE_NS = 5_000_000_000
_IDLE_SHARE = 0.7
"""Idle cores wanted for each thread more."""
_PROBE_DOWN_NS = 2_000_000_000
"""How often fewer threads are tried while nothing looks wrong."""
_PASSES_A_PROBE = 30
"""Passes between two probes at least, so that probing stays cheap where a pass takes long."""
_STALE_NS = 1_500_000_000
"""Times older than this say nothing about the machine now."""
_SLOW, _STALLED = 1.35, 4.0
"""Two passes or a single one that take so much longer than usual make the governor try fewer at once."""
_GAIN = 0.94
"""Another level must need at most this share of the current level's time."""
_WEIGHT = 0.4


@dataclass(slots=True)
class _Level:
    """Recent times of one thread count: width of the pass -> (nanoseconds, when)."""

    times: dict[int, tuple[float, int]] = field(default_factory=dict)

    def observe(self, width: int, elapsed: int, now: int, *, alone: bool) -> None:
        """Take in one pass; a probe stands `alone`: what was true at the last one may be long over."""
        known = self.times.get(width)
        if known is None or alone or now - known[1] > _STALE_NS:
            self.times[width] = (float(elapsed), now)
        else:
            self.times[width] = (known[0] + _WEIGHT * (elapsed - known[0]), now)

    def predict(self, width: int, now: int) -> float | None:
        """Time of a pass of `width`, linear between known widths; None without fresh knowledge around it."""
        fresh = sorted(w for w, (_, when) in self.times.items() if now - when <= _STALE_NS)
        if not fresh:
            return None
        place = bisect.bisect_left(fresh, width)
        if place < len(fresh) and fresh[place] == width:
            return self.times[width][0]
        if place in (0, len(fresh)):
            return None
        low, high = fresh[place - 1], fresh[place]
        share = (width - low) / (high - low)
        return self.times[low][0] + share * (self.times[high][0] - self.times[low][0])


class ThreadGovernor:
    """Chooses a thread count for every pass. Pure: it is told times and never reads a clock.

    Args:
        cores: threads that an idle machine should use.
        spare: idle cores beside the one that this process keeps busy; None where that is unknown.
    """

    def __init__(self, cores: int, spare: float | None = None) -> None:
        self._levels = sorted(
            {cores, max(1, cores - 1), max(1, cores - 2), max(1, cores // 2), max(1, cores // 4), 1}
        )
        self._known = {threads: _Level() for threads in self._levels}
        self._usual: dict[tuple[int, int], float] = {}
        fitting = [level for level in self._levels if spare is None or level - 1 <= spare + 1 - _IDLE_SHARE]
        self._place = max(len(fitting) - 1, 0)
        self._probe: int | None = None
        self._slow_passes = 0
        self._last_up = self._last_down = 0
        self._pause_up = _PROBE_UP_NS
        self._started = False

    @property
    def threads(self) -> int:
        """Threads for the next pass."""
        return self._levels[self._place if self._probe is None else self._probe]

    def observe(self, threads: int, width: int, elapsed: int, now: int, spare: float | None = None) -> None:
        """Learn from a pass.

        Args:
            threads: what `threads` said before the pass.
            width: tokens of the pass.
            elapsed: its time in nanoseconds.
            now: nanoseconds of the clock at its end.
            spare: idle cores lately, None where that is unknown.
        """
        if len(self._levels) == 1 or threads not in self._known:
            return
        if not self._started:
            # Let the first passes be usual ones before trying fewer threads.
            self._started = True
            self._last_up = now
            self._last_down = now - _PROBE_DOWN_NS + _PROBE_UP_NS
        self._known[threads].observe(width, elapsed, now, alone=self._probe is not None)
        slow = self._is_slow(threads, width, elapsed)
        if self._probe is not None:
            self._judge(width, now)
            return
        self._slow_passes = self._slow_passes + slow if slow else 0
        self._maybe_probe(now, _PASSES_A_PROBE * elapsed, spare)

    def _is_slow(self, threads: int, width: int, elapsed: int) -> int:
        """1 for a pass that took clearly longer than usual, 2 for one that stalled, else 0.

        The usual time rises slowly and falls at once.
        """
        usual = self._usual.get((threads, width))
        if usual is None or elapsed < usual:
            self._usual[threads, width] = float(elapsed)
            return 0
        self._usual[threads, width] = usual * 1.002
        return (elapsed > usual * _SLOW) + (elapsed > usual * _STALLED)

    def _maybe_probe(self, now: int, pause: int, spare: float | None) -> None:
        top = len(self._levels) - 1
        due = now - self._last_down >= max(_PROBE_DOWN_NS, pause)
        if self._place > 0 and (due or self._slow_passes >= 2):
            self._last_down = now
            self._start_probe(self._place - 1)
        elif self._place < top and now - self._last_up >= max(self._pause_up, pause):
            more = self._levels[self._place + 1] - self._levels[self._place]
            if spare is None or spare >= _IDLE_SHARE * more:
                self._last_up = now
                self._start_probe(self._place + 1)

    def _start_probe(self, place: int) -> None:
        self._slow_passes = 0
        self._probe = place

    def _judge(self, width: int, now: int) -> None:
        """Move to the probed level if its pass was faster than one of that width is here."""
        probed = self._probe
        assert probed is not None  # noqa: S101 - for the type checker
        self._probe = None
        here = self._known[self._levels[self._place]]
        there = self._known[self._levels[probed]]
        current, other = here.predict(width, now), there.predict(width, now)
        if current is not None and other is not None and other < current * _GAIN:
            self._place = probed
            self._last_up = self._last_down = now
            self._pause_up = _PROBE_UP_NS
        elif probed > self._place and current is not None:
            self._pause_up = min(self._pause_up * 2, _LONGEST_PAUSE_NS)
