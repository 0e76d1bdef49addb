"""How many CPU threads the next pass should use, learnt from the time of the passes before it.

llama.cpp's threads wait for each other actively at every operation: while another program takes one core, a
pass that counts on all cores waits for the slowest, and one thread fewer can be more than twice as fast. The
governor knows the usual time of a pass for every (threads, width) and how much slower than usual the last
moments were. It tries a neighbouring level for single passes and moves where that is faster. More threads
than there are idle cores can cost seconds for a single pass (each of its thousand operations waits for the
scheduler), so that is tried only where cores are idle.
"""

from __future__ import annotations

import bisect
from collections import deque

_WINDOW_NS = 250_000_000
"""The moments over which slowness is averaged: longer than an app's redraw, shorter than patience."""
_QUICK_NS, _LONG_NS = 200_000_000, 4_000_000_000
"""Pause between two tries of a level, doubled from the first towards the second by each that does not pay."""
_REGULAR_NS = 2_000_000_000
"""How often fewer threads are tried while nothing looks wrong."""
_PASSES_A_TRY, _PASSES_AN_INFORMED_TRY = 30, 5
"""Passes between two tries at least, so that they stay cheap where a pass takes long; fewer lie between
tries of more threads where cores are known to be idle."""
_SLOW, _STALLED = 1.15, 4.0
"""Slowness of the last moments, and of a single pass, that make the governor try fewer threads."""
_WORSE = 1.25
"""A rise of slowness by this factor since the last try ends its pause."""
_GAIN = 0.94
"""Another level must need at most this share of the current level's time."""
_IDLE_SHARE = 0.7
"""Idle cores wanted for each thread more."""
_DRIFT = 1.002
"""How fast the usual time rises, a pass, towards slower ones; it falls at once."""


class _UsualTimes:
    """The usual time of a pass by its width, for one thread count."""

    def __init__(self) -> None:
        self._times: dict[int, float] = {}

    def learn(self, width: int, elapsed: int) -> float:
        """Take in a pass; returns what is usual for its width now."""
        known = self._times.get(width)
        usual = float(elapsed) if known is None else min(float(elapsed), known * _DRIFT)
        self._times[width] = usual
        return usual

    def at(self, width: int) -> float | None:
        """Usual nanoseconds for `width`, linear between known widths; None outside of them."""
        if width in self._times:
            return self._times[width]
        widths = sorted(self._times)
        place = bisect.bisect(widths, width)
        if place in (0, len(widths)):
            return None
        low, high = widths[place - 1], widths[place]
        share = (width - low) / (high - low)
        return self._times[low] + share * (self._times[high] - self._times[low])


class ThreadGovernor:
    """Chooses a thread count for every pass. Pure: it is told times and never reads a clock.

    Args:
        cores: threads that an idle machine should use.
        spare: idle cores beside the one that this process keeps busy; None where that is unknown.
    """

    def __init__(self, cores: int, spare: float | None = None) -> None:
        self._levels = sorted(
            {cores, *(max(1, n) for n in (cores - 1, cores - 2, cores // 2, cores // 4, 1))}
        )
        self._usual = {threads: _UsualTimes() for threads in self._levels}
        fitting = [level for level in self._levels if spare is None or level - 1 <= spare + 1 - _IDLE_SHARE]
        self._place = max(len(fitting) - 1, 0)
        self._probe: int | None = None
        self._recent: deque[tuple[int, int, float]] = deque()
        self._recent_elapsed, self._recent_usual = 0, 0.0
        self._tried_at: int | None = None
        self._pause_up = self._pause_down = _QUICK_NS
        self._slowness_tried = 1.0

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
        if len(self._levels) == 1 or threads not in self._usual:
            return
        usual = self._usual[threads].learn(width, elapsed)
        if self._probe is not None:
            self._judge(self._probe, width, elapsed, now)
            return
        if self._tried_at is None:
            # What is usual here is not known yet: a neighbour may have been there from the start.
            self._tried_at = now - _REGULAR_NS + _QUICK_NS
        self._remember(now, elapsed, usual)
        self._maybe_probe(now, elapsed, stalled=elapsed > usual * _STALLED, spare=spare)

    @property
    def _slowness(self) -> float:
        """Time of the last moments' passes over their usual time, 1 or more."""
        return self._recent_elapsed / self._recent_usual if self._recent_usual else 1.0

    def _remember(self, now: int, elapsed: int, usual: float) -> None:
        self._recent.append((now, elapsed, usual))
        self._recent_elapsed += elapsed
        self._recent_usual += usual
        while len(self._recent) > 1 and now - self._recent[0][0] > _WINDOW_NS:
            _, old_elapsed, old_usual = self._recent.popleft()
            self._recent_elapsed -= old_elapsed
            self._recent_usual -= old_usual

    def _maybe_probe(self, now: int, elapsed: int, *, stalled: bool, spare: float | None) -> None:
        since = now - (self._tried_at or 0)
        slowness = self._slowness
        if self._place > 0:
            if slowness > self._slowness_tried * _WORSE:
                self._pause_down = _QUICK_NS
            slow = slowness > _SLOW and since >= self._pause_down
            regular = since >= max(_REGULAR_NS, _PASSES_A_TRY * elapsed)
            if stalled or slow or regular:
                self._slowness_tried = slowness
                self._start_probe(self._place - 1, now)
                return
        if self._place < len(self._levels) - 1:
            more = self._levels[self._place + 1] - self._levels[self._place]
            idle = spare is None or spare >= _IDLE_SHARE * more
            passes = _PASSES_A_TRY if spare is None else _PASSES_AN_INFORMED_TRY
            if idle and since >= max(self._pause_up, passes * elapsed):
                self._start_probe(self._place + 1, now)

    def _start_probe(self, place: int, now: int) -> None:
        self._probe = place
        self._tried_at = now

    def _judge(self, probed: int, width: int, elapsed: int, now: int) -> None:
        """Move to the probed level if its pass was faster than such a pass was here lately."""
        self._probe = None
        usual = self._usual[self._levels[self._place]].at(width)
        if usual is None:
            return
        if elapsed < usual * self._slowness * _GAIN:
            self._place = probed
            self._tried_at = now
            self._pause_up = self._pause_down = _QUICK_NS
            self._slowness_tried = 1.0
            self._recent.clear()
            self._recent_elapsed, self._recent_usual = 0, 0.0
        elif probed > self._place:
            self._pause_up = min(self._pause_up * 2, _LONG_NS)
        else:
            self._pause_down = min(self._pause_down * 2, _LONG_NS)
