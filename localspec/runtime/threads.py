"""How many CPU threads the next pass should use, learnt from the time of the passes before it.

llama.cpp's threads wait for each other actively at every operation: while another program takes one core, a
pass that counts on all cores waits for the slowest, and one thread fewer can be more than twice as fast. The
governor knows the usual time of a pass for every (threads, width). It tries a neighbouring level for single
passes, of each width that matters in turn, and moves where the last moments' passes would have taken less
time. More threads than there are idle cores can cost seconds for a single pass (each of its thousand
operations waits for the scheduler), so that is tried only where cores are idle.
"""

from __future__ import annotations

import bisect
from collections import deque
from dataclasses import dataclass

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
_MATTERS = 0.15
"""Share of the last moments' time that makes a width worth trying by itself."""
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


@dataclass(frozen=True, slots=True)
class _Pass:
    """One of the last moments' passes: its end, width, time, and what was usual."""

    when: int
    width: int
    elapsed: int
    usual: float


@dataclass(frozen=True, slots=True)
class _Probe:
    """A level to be tried at the next pass of `width`, None for any."""

    place: int
    width: int | None
    since: int


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
        self._recent: deque[_Pass] = deque()
        self._probe: _Probe | None = None
        self._probed_at: dict[tuple[int, int], int] = {}
        self._tried_at: int | None = None
        self._pause_up = self._pause_down = _QUICK_NS
        self._slowness_tried = 1.0

    def threads_for(self, width: int) -> int:
        """Threads for the next pass, which has `width` tokens."""
        probe = self._probe
        if probe is not None and probe.width in (None, width):
            return self._levels[probe.place]
        return self._levels[self._place]

    def observe(self, threads: int, width: int, elapsed: int, now: int, spare: float | None = None) -> None:
        """Learn from a pass.

        Args:
            threads: what `threads_for` said before the pass.
            width: tokens of the pass.
            elapsed: its time in nanoseconds.
            now: nanoseconds of the clock at its end.
            spare: idle cores lately, None where that is unknown.
        """
        if len(self._levels) == 1 or threads not in self._usual:
            return
        usual = self._usual[threads].learn(width, elapsed)
        if self._probe is not None and threads == self._levels[self._probe.place]:
            self._judge(self._probe.place, width, elapsed / usual, now)
            return
        if self._tried_at is None:
            # What is usual here is not known yet: a neighbour may have been there from the start.
            self._tried_at = now - _REGULAR_NS + _QUICK_NS
        self._recent.append(_Pass(now, width, elapsed, usual))
        while len(self._recent) > 1 and now - self._recent[0].when > _WINDOW_NS:
            self._recent.popleft()
        if self._probe is None:
            self._maybe_probe(now, elapsed, stalled=elapsed > usual * _STALLED, spare=spare)
        elif now - self._probe.since > _WINDOW_NS:
            # No pass of the wanted width came: any will do.
            self._probe = _Probe(self._probe.place, None, now)

    def _maybe_probe(self, now: int, elapsed: int, *, stalled: bool, spare: float | None) -> None:
        since = now - (self._tried_at or 0)
        if self._place > 0:
            slowness = sum(p.elapsed for p in self._recent) / sum(p.usual for p in self._recent)
            if slowness > self._slowness_tried * _WORSE:
                self._pause_down = _QUICK_NS
            slow = slowness > _SLOW and since >= self._pause_down
            regular = since >= max(_REGULAR_NS, _PASSES_A_TRY * elapsed)
            if stalled or slow or regular:
                self._slowness_tried = slowness
                self._start_probe(self._place - 1, now, any_width=stalled)
                return
        if self._place < len(self._levels) - 1:
            more = self._levels[self._place + 1] - self._levels[self._place]
            idle = spare is None or spare >= _IDLE_SHARE * more
            passes = _PASSES_A_TRY if spare is None else _PASSES_AN_INFORMED_TRY
            if idle and since >= max(self._pause_up, passes * elapsed):
                self._start_probe(self._place + 1, now)

    def _start_probe(self, place: int, now: int, *, any_width: bool = False) -> None:
        """Try `place` at the next pass of a width that takes time, the one tried longest ago."""
        times: dict[int, int] = {}
        for past in self._recent:
            times[past.width] = times.get(past.width, 0) + past.elapsed
        matter = [width for width, time in times.items() if time >= _MATTERS * sum(times.values())]
        wanted = min(matter, key=lambda width: self._probed_at.get((place, width), -1), default=None)
        self._probe = _Probe(place, None if any_width else wanted, now)
        self._tried_at = now

    def _judge(self, probed: int, width: int, slowness: float, now: int) -> None:
        """Move to the probed level if the last moments' passes would have taken less time there.

        Args:
            probed: the level's place.
            width: tokens of the pass that was tried.
            slowness: its time over what is usual there, taken for that of every width.
            now: nanoseconds of the clock.
        """
        self._probe = None
        self._probed_at[probed, width] = now
        here, there = self._usual[self._levels[self._place]], self._usual[self._levels[probed]]
        usual_here, usual_there = here.at(width), there.at(width)
        if usual_here is None or usual_there is None:
            return
        ratio = usual_there / usual_here
        spent = sum(past.elapsed for past in self._recent)
        expected = slowness * sum(there.at(past.width) or past.usual * ratio for past in self._recent)
        if expected < spent * _GAIN:
            self._place = probed
            self._tried_at = now
            self._pause_up = self._pause_down = _QUICK_NS
            self._slowness_tried = 1.0
            self._recent.clear()
        elif probed > self._place:
            self._pause_up = min(self._pause_up * 2, _LONG_NS)
        else:
            self._pause_down = min(self._pause_down * 2, _LONG_NS)
