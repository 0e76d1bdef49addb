"""The A/B screen on the real model: the same text both ways, a measured ratio, and a chat that goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from localspec.chat.store import Store
from localspec.client import EngineClient
from localspec.model_files import WantedFiles
from localspec.models.registry import resolve
from localspec.types import DraftOptions, EngineOptions, SamplingParams
from tests.tui.helpers import Running
from tui.app import LocalspecApp
from tui.compare import Stage
from tui.launch import Launch
from tui.screens.compare import CompareScreen
from tui.widgets.rows import Rows

pytestmark = pytest.mark.model

PROMPT = "Repeat three times: the keeper lights the lamp at dusk and puts it out at dawn."


@asynccontextmanager
async def chatting(model: Path, folder: Path) -> AsyncIterator[Running]:
    """The app over a real engine, which remembers in `folder`."""
    draft = DraftOptions("suffix", 6, policy="fixed")
    options = EngineOptions(context=512, threads=1, draft=draft, needs_draft=False, memory=str(folder))
    sampling = SamplingParams(temperature=0.8, seed=5)
    files = WantedFiles(resolve(str(model)), options, {})
    launch = Launch(files, sampling, conversation="new", max_tokens=40)
    store = Store(folder / "conversations.db")
    app = LocalspecApp(launch, EngineClient(log_path=folder / "engine.log"), store)
    try:
        async with app.run_test(size=(120, 36)) as pilot:
            found = Running(app, pilot, None, store)
            await found.until(lambda: found.chat.ready, 60)
            yield found
    finally:
        app.chat_screen.chat.close()
        store.close()


async def said(app: Running, text: str) -> str:
    """The chat's reply."""
    await app.send(text)
    await app.until(lambda: not app.chat.ready)
    await app.until(lambda: app.chat.ready, 60)
    return app.chat.conversation.last_reply()


async def test_both_ways_say_the_same_and_the_chat_does_not_notice(
    smollm2_path: Path, tmp_path: Path
) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    async with chatting(smollm2_path, one) as app:
        undisturbed = [await said(app, PROMPT), await said(app, "And once more.")]
    async with chatting(smollm2_path, other) as app:
        assert await said(app, PROMPT) == undisturbed[0]
        (memory,) = other.glob("*.tokens")
        remembered = memory.read_bytes()
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        screen = app.app.screen
        assert isinstance(screen, CompareScreen)
        comparison = screen.comparison
        await app.pilot.press("enter")
        await app.until(lambda: comparison.stage is Stage.DONE, 60)
        await app.pilot.press("ctrl+r")
        await app.until(lambda: comparison.rounds == 2 and comparison.stage is Stage.DONE, 60)
        await app.pilot.pause()

        assert comparison.identical is True
        assert {run.text for run in comparison.runs} == {undisturbed[0]}
        assert comparison.ratio is not None
        words = " ".join(screen.query_one("#verdict", Rows).text.split())
        # On a busy machine the rounds may not agree; then the range is told.
        shown = [comparison.ratio, *comparison.ratios]
        assert any(f"{ratio:.2f}×" in words for ratio in shown)
        count = len(comparison.runs[0].token_ids)
        assert f"Same text: all {count} tokens are identical." in words
        plain, drafted, again = comparison.runs[0], comparison.runs[1], comparison.runs[2]
        assert plain.tally.drafted == 0
        assert drafted.tally.drafted > 0
        # No run was drafted from the one before, nor from the chat's own reply.
        assert again.tally.steps == drafted.tally.steps
        assert memory.read_bytes() == remembered

        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen is app.screen)
        assert await said(app, "And once more.") == undisturbed[1]
        assert len(memory.read_bytes()) > len(remembered)
