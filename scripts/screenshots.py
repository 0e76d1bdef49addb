"""The pictures in docs/pictures, drawn from docs/chat.jsonl: a recorded chat, so no model is needed.

    python scripts/screenshots.py                    draw them
    python scripts/screenshots.py --record smollm2   record the chat anew first, with that model

What is pictured is what `localspec replay docs/chat.jsonl` shows, without the bar of a replay.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from localspec.chat.store import Store
from localspec.client import EngineClient
from localspec.errors import LocalspecError
from localspec.model_choice import resolve
from localspec.model_files import WantedFiles
from localspec.recording import Session, read_session
from localspec.types import DraftOptions, EngineOptions, SamplingParams
from tui.app import LocalspecApp
from tui.compare import Stage
from tui.launch import Launch
from tui.replay import launch_of
from tui.replay_engine import RecordedEngine
from tui.replay_player import Player
from tui.screens.compare import CompareScreen
from tui.screens.tokens import TokenScreen
from tui.token_reading import Figures

ROOT = Path(__file__).resolve().parent.parent
RECORDING = ROOT / "docs" / "chat.jsonl"
PICTURES = ROOT / "docs" / "pictures"

SIZE = (120, 36)
QUESTIONS = (
    "Write a Python class for a bank account with deposit and withdraw.",
    "Add a method that returns the balance. Show the whole class again.",
)

WRITING_S = 8.0

FONTS = "DejaVu Sans Mono, Menlo, Consolas, monospace"
_WEB_FONTS = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


async def draw(session: Session) -> dict[str, str]:
    """Pictures of a recorded chat as SVG, by their names: the chat, its tokens, and the comparison.

    They are drawn at the ends of the three parts of the recording, in this order: chat, tokens, A/B.
    """
    marks = [index for index, item in enumerate(session.items) if item.screen is not None]
    parts = zip(("chat", "tokens", "compare"), (marks[0], marks[1], marks[-1]), strict=True)
    return {name: await _drawn(replace(session, items=session.items[:end]), name) for name, end in parts}


async def _drawn(session: Session, name: str) -> str:
    """The last screen of a session that is played at once."""
    engine = RecordedEngine(session)
    launch = replace(launch_of(session, "localspec-dark"), private=False)
    async with _running(launch, engine) as (app, pilot, store):
        chat = app.chat_screen.chat
        player = Player(session, engine, app.chat_screen, store, speed=math.inf)
        app.run_worker(player.run())
        await _until(pilot, lambda: player.ended and not chat.busy)
        if name == "tokens" and isinstance(app.screen, TokenScreen):
            screen = app.screen
            await _until(pilot, lambda: screen.reading.figures is not Figures.SCORING)
            screen.action_next_draft()
        if name == "compare" and isinstance(app.screen, CompareScreen):
            comparison = app.screen.comparison
            await _until(pilot, lambda: not comparison.running)
        # What was hinted at in passing goes, the last frame comes.
        await pilot.pause(0.3)
        svg = app.export_screenshot(title="localspec", simplify=True)
    # Pictures load nothing from elsewhere.
    return _WEB_FONTS.sub("", svg).replace("Fira Code, monospace", FONTS)


async def record(model: str, file: Path) -> None:
    """Record the chat that is pictured, with a model that is installed, at the pace of a person."""
    options = EngineOptions(context=2048, threads=2, draft=DraftOptions("suffix"), needs_draft=False)
    files = WantedFiles(resolve(model), options)
    sampling = SamplingParams(temperature=0.0, seed=1)
    launch = Launch(files, sampling, max_tokens=140, conversation="new", theme="localspec-dark", record=file)
    async with _running(launch, EngineClient()) as (app, pilot, _):
        chat = app.chat_screen.chat
        await _until(pilot, lambda: chat.ready, 120)
        for question in QUESTIONS:
            # Time in which the engine measures what passes cost, while a person would write.
            await pilot.pause(WRITING_S)
            chat.submit(question)
            await _until(pilot, lambda: chat.ready, 120)
        await pilot.pause(2)
        app.chat_screen.action_tokens()
        await _until(pilot, lambda: isinstance(app.screen, TokenScreen))
        tokens = app.screen
        assert isinstance(tokens, TokenScreen)
        await _until(pilot, lambda: tokens.reading.figures is Figures.KNOWN, 60)
        await pilot.pause(3)
        tokens.action_back()
        await _until(pilot, lambda: app.screen is app.chat_screen)
        await pilot.pause(1)
        app.chat_screen.action_compare()
        await _until(pilot, lambda: isinstance(app.screen, CompareScreen))
        compare = app.screen
        assert isinstance(compare, CompareScreen)
        await pilot.pause(1)
        compare.comparison.start(QUESTIONS[-1])
        await _until(pilot, lambda: compare.comparison.stage is Stage.DONE, 120)
        await pilot.pause(2)
        compare.action_back()
        await _until(pilot, lambda: app.screen is app.chat_screen)


@asynccontextmanager
async def _running(
    launch: Launch, link: EngineClient | RecordedEngine
) -> AsyncIterator[tuple[LocalspecApp, Pilot[Any], Store]]:
    """The app without a terminal; nothing of it is kept."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder) / "conversations.db")
        try:
            app = LocalspecApp(launch, link, store)
            async with app.run_test(size=SIZE) as pilot:
                app.chat_screen.bridge.quick = isinstance(link, RecordedEngine)
                yield app, pilot, store
            app.chat_screen.chat.close()
        finally:
            store.close()


async def _until(pilot: Pilot[Any], condition: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise LocalspecError(f"Still not so after {seconds:g} s: {pilot.app.screen}.")
        await pilot.pause(0.02)


def main(arguments: Sequence[str]) -> int:
    """Draw the pictures; returns the exit status."""
    parser = argparse.ArgumentParser(description="Draw the pictures in docs/pictures from docs/chat.jsonl.")
    parser.add_argument("--record", metavar="MODEL", help="record the chat anew first, with this model")
    given = parser.parse_args(arguments)
    try:
        if given.record:
            asyncio.run(record(given.record, RECORDING))
        # What was compared before is kept in the user's folders otherwise.
        with tempfile.TemporaryDirectory() as folder:
            os.environ["LOCALSPEC_HOME"] = folder
            pictures = asyncio.run(draw(read_session(RECORDING)))
    except LocalspecError as error:
        print(f"screenshots: {error}", file=sys.stderr)
        return error.exit_code
    PICTURES.mkdir(exist_ok=True)
    for name, svg in pictures.items():
        (PICTURES / f"{name}.svg").write_text(svg, encoding="utf-8")
        print(PICTURES / f"{name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
