"""Pacing: the app draws as often as the machine can spare, and never per token."""

from __future__ import annotations

import time
from dataclasses import replace

from localspec.messages import Loaded
from tests.tui.helpers import running
from tests.tui.scripted import INFO, MEMORY, ScriptedEngine
from tui.bridge import LONGEST_S, WRITING_CPU_S, WRITING_GPU_S, Pacer
from tui.chat import Chat
from tui.state import LiveState, Phase


class FakeChat:
    """What the pacer looks at."""

    def __init__(self, phase: Phase, gpu_layers: int = 0) -> None:
        self.state = LiveState(speculation=True, draft="ngram")
        self.state.apply(Loaded(replace(INFO, gpu_layers=gpu_layers), 0.1, MEMORY))
        self.state.phase = phase
        self.finder = type("Finder", (), {"running": False})()


def delays(chat: FakeChat, cpu_per_frame: float, frames: int = 12) -> list[float]:
    """Delays between frames that each cost some CPU seconds."""
    wall, cpu = 0.0, 0.0
    pacer = Pacer(lambda: wall, lambda: cpu)
    found: list[float] = []
    for _ in range(frames):
        delay = pacer.delay(chat)
        found.append(delay)
        wall += delay
        cpu += cpu_per_frame
    return found


def test_frames_are_rare_where_the_model_shares_the_processor() -> None:
    assert delays(FakeChat(Phase.WRITING), 0.005)[-1] == WRITING_CPU_S
    assert delays(FakeChat(Phase.WRITING, gpu_layers=30), 0.001)[-1] == WRITING_GPU_S
    assert 4 <= 1 / WRITING_CPU_S <= 5
    assert 15 <= 1 / WRITING_GPU_S <= 20


def test_costly_frames_get_rarer_until_they_are_cheap_enough() -> None:
    found = delays(FakeChat(Phase.WRITING), 0.045)
    assert 0.045 / found[-1] < 0.1
    assert delays(FakeChat(Phase.WRITING), 5.0)[-1] == LONGEST_S


def test_the_first_token_is_looked_for_often() -> None:
    assert delays(FakeChat(Phase.PREFILL), 0.005)[-1] < 0.05


async def test_a_long_fast_reply_is_drawn_in_few_frames_and_typing_goes_on() -> None:
    """3,000 tokens in bursts of 20 at 1,500 tokens a second: the frames follow the clock, not the tokens."""
    reply = "\n\n".join(
        f"Paragraph {n} with **bold** text and `code`.\n\n```python\nx{n} = {n}\n```" for n in range(180)
    )
    engine = ScriptedEngine([reply], rate=1500.0, burst=20)
    async with running(engine) as app:
        await app.ready()
        app.screen.bridge.quick = False
        await app.send("go")
        before, started = app.screen.bridge.frames, time.monotonic()
        await app.until(lambda: app.chat.state.phase is Phase.WRITING)
        pressed = time.monotonic()
        await app.pilot.press("h", "i")
        assert app.prompt.text == "hi"
        assert time.monotonic() - pressed < 1.0
        await app.until(lambda: not app.chat.busy, seconds=60)
        elapsed = time.monotonic() - started
        assert app.screen.bridge.frames - before <= elapsed / WRITING_CPU_S + 20
        assert app.chat.conversation.last_reply() == reply
        assert "x179 = 179" in app.transcript.text
        assert isinstance(app.chat, Chat)
