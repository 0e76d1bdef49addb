"""Running the app in tests: no bare sleeps, one way to wait."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from localspec.chat.store import Store
from localspec.models.registry import Resolved
from localspec.types import DraftOptions, EngineOptions, SamplingParams
from tests.tui.scripted import Finding, Scripted, ScriptedEngine
from tui.app import LocalspecApp
from tui.chat import Chat
from tui.launch import Launch
from tui.screens.chat import ChatScreen
from tui.state import Phase
from tui.widgets.bars import ActivityBar, KeyBar, TitleBar
from tui.widgets.panel import LiveLine, LivePanel
from tui.widgets.prompt import Prompt
from tui.widgets.transcript import Transcript

OPTIONS = EngineOptions(draft=DraftOptions("ngram"), needs_draft=False)
FILES = Scripted(Resolved("scripted", Path("model.gguf"), None), OPTIONS)
LAUNCH = Launch(FILES, SamplingParams(seed=7))


class Running:
    """A running app, and what tests look at."""

    def __init__(self, app: LocalspecApp, pilot: Pilot[None], engine: ScriptedEngine, store: Store) -> None:
        self.app, self.pilot, self.engine, self.store = app, pilot, engine, store

    @property
    def screen(self) -> ChatScreen:
        return self.app.chat_screen

    @property
    def chat(self) -> Chat:
        return self.screen.chat

    @property
    def transcript(self) -> Transcript:
        return self.screen.query_one(Transcript)

    @property
    def prompt(self) -> Prompt:
        return self.screen.query_one(Prompt)

    @property
    def activity(self) -> str:
        return self.screen.query_one(ActivityBar).text

    @property
    def title(self) -> str:
        return self.screen.query_one(TitleBar).text

    @property
    def keys(self) -> str:
        return self.screen.query_one(KeyBar).text

    @property
    def panel(self) -> LivePanel:
        return self.screen.query_one(LivePanel)

    @property
    def line(self) -> LiveLine:
        return self.screen.query_one(LiveLine)

    async def until(self, predicate: Callable[[], Any], seconds: float = 30.0) -> None:
        """Wait until something is so; fails with the screen's text when it never is."""
        deadline = time.monotonic() + seconds
        while not predicate():
            assert time.monotonic() < deadline, f"still not so:\n{self.activity}\n{self.transcript.text}"
            await self.pilot.pause()
            await asyncio.sleep(0.005)

    async def ready(self) -> None:
        """Wait until the model is loaded."""
        await self.until(lambda: self.chat.state.phase is Phase.READY)

    async def write(self, text: str) -> None:
        """Put text into the prompt, as a paste does."""
        self.prompt.insert(text)
        await self.pilot.pause()

    async def send(self, text: str) -> None:
        """Write a message and press Enter."""
        await self.write(text)
        await self.pilot.press("enter")

    async def step(self, text: str, **counters: Any) -> None:
        """One step of the engine, seen by the app."""
        before = self.chat.state.reply.steps
        self.engine.step(text, **counters)
        await self.until(lambda: self.chat.state.reply.steps == before + 1)


@asynccontextmanager
async def running(
    engine: ScriptedEngine | None = None,
    *,
    store: Store | None = None,
    size: tuple[int, int] = (120, 40),
    options: EngineOptions = OPTIONS,
    finding: Finding | None = None,
    **launch: Any,
) -> AsyncIterator[Running]:
    """The app with a scripted engine; by default a manual one whose model is loaded at once."""
    launch = {"files": replace(FILES, options=options, finding=finding), **launch}
    engine = engine or ScriptedEngine()
    own = store or Store()
    try:
        app = LocalspecApp(replace(LAUNCH, **launch), engine, own)
        async with app.run_test(size=size) as pilot:
            # A test has the processor to itself: frames follow each other closely.
            app.chat_screen.bridge.quick = True
            await pilot.pause()
            yield Running(app, pilot, engine, own)
        app.chat_screen.chat.close()
    finally:
        if store is None:
            own.close()
