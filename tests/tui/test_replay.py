"""Recorded chats are played again in the app, with no model."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from localspec.chat.store import Store
from localspec.recording import Session, read_session
from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine
from tui.replay import ReplayApp, ReplayBar
from tui.widgets.transcript import Transcript


class Playing:
    """A recording being played, and what tests look at."""

    def __init__(self, app: ReplayApp, pilot: Pilot[None]) -> None:
        self.app, self.pilot = app, pilot
        self.player, self.chat = app.player, app.chat_screen.chat

    @property
    def text(self) -> str:
        return self.app.chat_screen.query_one(Transcript).text

    @property
    def bar(self) -> str:
        return self.app.screen.query_one(ReplayBar).text

    async def until(self, predicate: Callable[[], Any], seconds: float = 8.0) -> None:
        deadline = time.monotonic() + seconds
        while not predicate():
            assert time.monotonic() < deadline, f"still not so:\n{self.text}"
            await self.pilot.pause()
            await asyncio.sleep(0.005)


@asynccontextmanager
async def playing(
    session: Session, *, speed: float = math.inf, size: tuple[int, int] = (120, 40)
) -> AsyncIterator[Playing]:
    store = Store(private=True)
    app = ReplayApp(session, store, speed=speed)
    async with app.run_test(size=size) as pilot:
        yield Playing(app, pilot)
    app.chat_screen.chat.close()
    store.close()


async def said(app: Running, text: str) -> None:
    """Send a message and wait for the whole reply."""
    before = len(app.chat.conversation.messages)
    await app.send(text)
    await app.until(lambda: len(app.chat.conversation.messages) > before and not app.chat.busy)


async def test_a_chat_plays_again(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    async with running(ScriptedEngine(["The first answer.", "And a second one."]), record=file) as app:
        await app.ready()
        await said(app, "one")
        await app.pilot.press("f2")
        await app.until(lambda: app.chat.state.speculating is False)
        await said(app, "two")
        shown, tally = app.transcript.text, app.chat.state.reply
    async with playing(read_session(file)) as replay:
        await replay.until(lambda: replay.player.ended and not replay.chat.busy)
        assert replay.text == shown
        assert vars(replay.chat.state.reply) == vars(tally)
        assert replay.chat.state.speculating is False
        assert "RECORDING" in replay.bar
