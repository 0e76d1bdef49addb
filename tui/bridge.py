"""From the engine's pipe to the screen: one message a frame, at a pace that leaves the CPU to the model."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable

from localspec.client import EngineLink
from tui.chat import Chat
from tui.messages import EngineFrame
from tui.state import Phase

FIRST_TOKEN_S = 1 / 30
"""While a prompt is read: the first token is shown at once."""

WRITING_CPU_S = 0.22
"""While a reply is written on the CPU, which the model shares with the app."""

WRITING_GPU_S = 1 / 18

COMING_UP_S = 0.1

IDLE_S = 0.25

LONGEST_S = 1.0

EAGER_FRAMES = 8
"""Frames at the quick pace after a command."""

SHARE = 0.09
"""Share of one core that the app may use while a reply is written; beyond it, frames get rarer."""


class Pacer:
    """Time until the next frame, from what the engine does and from what the last frames cost."""

    def __init__(
        self,
        wall: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._wall, self._cpu = wall, cpu
        self._last_wall, self._last_cpu = wall(), cpu()
        self._stretch = 1.0

    def delay(self, chat: Chat) -> float:
        """Seconds to wait before the next frame."""
        wall, cpu = self._wall(), self._cpu()
        elapsed, used = wall - self._last_wall, cpu - self._last_cpu
        self._last_wall, self._last_cpu = wall, cpu
        match chat.state.phase:
            case Phase.PREFILL:
                return FIRST_TOKEN_S
            case Phase.WRITING:
                base = WRITING_GPU_S if chat.state.on_gpu else WRITING_CPU_S
                if elapsed > 0:
                    # Half-way to the delay at which the last frame would have cost the share allowed.
                    wanted = used / SHARE / base
                    self._stretch = max((self._stretch + wanted) / 2, 1.0)
                return min(base * self._stretch, LONGEST_S)
            case Phase.STARTING | Phase.LOADING:
                return COMING_UP_S
            case Phase.READY | Phase.DOWN:
                self._stretch = 1.0
                return COMING_UP_S if chat.setup.finder.running else IDLE_S


class Bridge:
    """Drains the link and the model's finder, and posts what they said, a frame at a time.

    Attributes:
        quick: always look at the quickest pace, whatever it costs.
        frames: frames posted so far.
    """

    def __init__(self, chat: Chat, link: EngineLink, pacer: Pacer | None = None) -> None:
        self._chat, self._link = chat, link
        self._pacer = pacer or Pacer()
        self._wake = asyncio.Event()
        self._eager = 0
        self.quick = False
        self.frames = 0

    def hurry(self) -> None:
        """Look more often for a moment: a command was sent and its effect should be seen at once."""
        self._eager = EAGER_FRAMES
        self._wake.set()

    async def run(self, post: Callable[[EngineFrame], object]) -> None:
        """Post frames until cancelled."""
        while True:
            delay = self._pacer.delay(self._chat)
            if self._eager or self.quick:
                self._eager = max(self._eager - 1, 0)
                delay = min(delay, FIRST_TOKEN_S)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), delay)
            self._wake.clear()
            # A comparison's models come and go: another one for the chat waits for its end.
            found = () if self._chat.desk.errand else self._chat.setup.finder.drain()
            events = (*found, *self._link.drain())
            if events:
                self.frames += 1
                post(EngineFrame(events))
