"""Recorded chats are played again in the app, with no model."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual.pilot import Pilot

from localspec.chat.store import Store
from localspec.messages import Generate
from localspec.models.registry import Resolved
from localspec.recording import Session, read_session
from localspec.types import DraftOptions
from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine
from tui.replay import ReplayApp, ReplayBar
from tui.screens.compare import CompareScreen
from tui.screens.tokens import TokenScreen
from tui.widgets.bars import ActivityBar, TitleBar
from tui.widgets.prompt import Prompt
from tui.widgets.transcript import Transcript


class Playing:
    """A recording being played, and what tests look at."""

    def __init__(self, app: ReplayApp, pilot: Pilot[None], store: Store) -> None:
        self.app, self.pilot, self.store = app, pilot, store
        self.player, self.chat = app.player, app.chat_screen.chat

    @property
    def text(self) -> str:
        return self.app.chat_screen.query_one(Transcript).text

    @property
    def bar(self) -> str:
        return self.app.screen.query_one(ReplayBar).text

    async def until(self, predicate: Callable[[], Any], seconds: float = 30.0) -> None:
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
        yield Playing(app, pilot, store)
    app.chat_screen.chat.close()
    store.close()


async def said(app: Running, text: str) -> None:
    """Send a message and wait for the whole reply."""
    before = len(app.chat.conversation.messages)
    await app.send(text)
    await app.until(lambda: len(app.chat.conversation.messages) > before and not app.chat.busy)


def shape(store: Store, conversation: int) -> tuple[str, list[tuple[int | None, str, str]], int | None]:
    """A conversation's title and its tree, by the order in which the messages were said."""
    tree = store.tree(conversation)
    assert tree is not None
    place = {one.id: number for number, one in enumerate(tree.messages)}
    parents = [place[one.parent_id] if one.parent_id is not None else None for one in tree.messages]
    said = [(one.role, one.content) for one in tree.messages]
    rows: list[tuple[int | None, str, str]] = [
        (parent, *words) for parent, words in zip(parents, said, strict=True)
    ]
    return tree.row.title, rows, place[tree.active] if tree.active is not None else None


def asked(file: Path) -> list[str]:
    """The last message of every request in a recording."""
    commands = (item.command for item in read_session(file).items)
    return [command.messages[-1].content for command in commands if isinstance(command, Generate)]


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


async def test_new_chats_and_stopped_replies_play_again(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    async with running(ScriptedEngine(), record=file, system_prompt="Be brief.") as app:
        await app.ready()
        await app.send("one")
        await app.step("half of")
        await app.pilot.press("escape")
        await app.until(lambda: not app.chat.busy)
        await app.pilot.press("ctrl+n")
        await app.send("two")
        await app.step("all of it")
        app.engine.finish()
        await app.until(lambda: not app.chat.busy)
        shown = app.transcript.text
    async with playing(read_session(file)) as replay:
        await replay.until(lambda: replay.player.ended and not replay.chat.busy)
        assert replay.text == shown
        assert [row.title for row in replay.store.conversations()] == ["two", "one"]
        assert replay.chat.conversation.history()[0].content == "Be brief."


async def test_another_branch_and_an_opened_chat_play_as_a_chat_of_the_same_turns(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    store = Store()
    row = store.create(model="scripted", title="old")
    store.add_message(row.id, "user", "before")
    store.add_message(row.id, "assistant", "long ago")
    async with running(ScriptedEngine(["Now."]), store=store, record=file) as app:
        await app.ready()
        await said(app, "again")
        turns = app.chat.conversation.history()
    store.close()
    async with playing(read_session(file)) as replay:
        await replay.until(lambda: replay.player.ended and not replay.chat.busy)
        assert replay.chat.conversation.history() == turns


async def test_a_comparison_and_the_token_view_play_again(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    engine = ScriptedEngine(["A first answer.", *["Both say this."] * 4])
    async with running(engine, record=file) as app:
        await app.ready()
        await said(app, "one")
        await app.pilot.press("f4")
        await app.until(lambda: isinstance(app.app.screen, TokenScreen))
        await app.pilot.press("f4")
        await app.until(lambda: app.app.screen is app.screen)
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        look = app.app.screen
        assert isinstance(look, CompareScreen)
        await app.pilot.press("enter")
        await app.until(lambda: look.comparison.can_repeat)
        await app.pilot.press("ctrl+r")
        await app.until(lambda: look.comparison.rounds == 2 and look.comparison.can_repeat)
        await app.pilot.press("f3")
        await app.until(lambda: app.app.screen is app.screen)
    screens = [item.screen for item in read_session(file).items if item.screen]
    assert screens == ["tokens", "chat", "compare", "chat"]

    session = read_session(file)
    shortened = replace(session, items=session.items[:-1])
    assert session.items[-1].screen == "chat"
    async with playing(shortened) as replay:
        await replay.until(lambda: replay.player.ended and not replay.chat.busy)
        screen = replay.app.screen
        assert isinstance(screen, CompareScreen)
        assert screen.comparison.rounds == 2
        assert screen.comparison.identical
        assert [one.draft.spec for one in screen.comparison.contenders] == ["none", "ngram"]
        assert "RECORDING" in replay.bar
        await replay.pilot.press("f3")
        await replay.until(lambda: replay.app.screen is replay.app.chat_screen)


async def test_another_model_and_drafter_play_again(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    async with running(ScriptedEngine(["One.", "Two."]), record=file) as app:
        await app.ready()
        await said(app, "one")
        app.chat.setup.choose_drafter(DraftOptions("suffix"))
        await app.until(lambda: app.chat.state.draft == "suffix")
        app.chat.choose_model(Resolved("other", tmp_path / "other.gguf", None))
        await app.until(lambda: app.chat.setup.name == "other" and app.chat.ready)
        await said(app, "two")
        shown = app.transcript.text
    assert str(tmp_path) not in file.read_text()
    async with playing(read_session(file)) as replay:
        await replay.until(lambda: replay.player.ended and not replay.chat.busy)
        assert replay.text == shown
        assert (replay.chat.setup.name, replay.chat.state.draft) == ("other", "suffix")


async def test_an_engine_that_died_plays_again(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    async with running(ScriptedEngine(), record=file) as app:
        await app.ready()
        await app.send("one")
        await app.step("half")
        app.engine.die()
        await app.until(lambda: not app.chat.busy)
        await app.send("two")
        await app.until(lambda: app.chat.busy)
        await app.step("whole")
        app.engine.finish()
        await app.until(lambda: not app.chat.busy)
        shown = app.transcript.text
    async with playing(read_session(file)) as replay:
        await replay.until(lambda: replay.player.ended and not replay.chat.busy)
        assert replay.text == shown


async def test_keys_of_a_replay(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    async with running(ScriptedEngine(["One.", "Two."]), record=file) as app:
        await app.ready()
        await said(app, "one")
        await said(app, "two")
    lines = file.read_text().splitlines()
    # The second message an hour later: rests are shortened.
    later = [json.loads(line) for line in lines]
    second = max(i for i, one in enumerate(later) if one.get("command", {}).get("type") == "generate")
    for one in later[second:]:
        one["at"] += 3600
    file.write_text("\n".join(map(json.dumps, later)))
    async with playing(read_session(file), speed=1.0) as replay:
        assert replay.player.length < 10
        await replay.until(lambda: replay.chat.ready)
        await replay.pilot.press("space")
        await replay.until(lambda: "paused" in replay.bar)
        position = replay.player.position
        await asyncio.sleep(0.1)
        assert replay.player.position == position
        await replay.pilot.press("plus", "plus", "minus")
        await replay.until(lambda: "speed 2" in replay.bar)
        await replay.pilot.press("enter", "x", "f2", "f7", "ctrl+n")
        await replay.until(
            lambda: "This is a recording" in replay.app.chat_screen.query_one(ActivityBar).text
        )
        assert replay.app.screen is replay.app.chat_screen
        assert replay.app.chat_screen.query_one(Prompt).text == ""
        await replay.pilot.press("space", *["plus"] * 6)
        await replay.until(lambda: replay.player.ended)
        assert "Two." in replay.text
        await replay.pilot.press("f1")
        await replay.until(lambda: replay.app.screen is not replay.app.chat_screen)
        await replay.pilot.press("escape")
        await replay.until(lambda: replay.app.screen is replay.app.chat_screen)
        await replay.pilot.press("q")
        assert replay.app.return_code == 0


async def test_what_was_not_recorded_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    async with running(ScriptedEngine(["One."]), record=file) as app:
        await app.ready()
        await said(app, "one")
    async with playing(read_session(file)) as replay:
        await replay.until(lambda: replay.player.ended and not replay.chat.busy)
        replay.chat.submit("something else")
        await replay.until(lambda: "This is a recording" in replay.text and not replay.chat.busy)
        replay.chat.choose_model(Resolved("other", tmp_path / "other.gguf", None))
        await replay.until(lambda: replay.text.count("This is a recording") == 2)
        assert replay.chat.setup.name == "scripted"
        await replay.pilot.press("f4")
        await replay.until(lambda: isinstance(replay.app.screen, TokenScreen))


async def test_a_replay_is_not_called_private(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    async with running(ScriptedEngine(["One."]), record=file) as app:
        await app.ready()
        await said(app, "one")
        title = app.title
    async with playing(read_session(file)) as replay:
        await replay.until(lambda: replay.player.ended and not replay.chat.busy)
        assert replay.app.chat_screen.query_one(TitleBar).text == title
        assert "private" not in title


async def test_branches_play_again_as_branches(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    engine = ScriptedEngine(["A1", "A2", "A2 anew", "A1 anew", "B1", "B2", "A3", "A2 other"])
    async with running(engine, record=file) as app:
        await app.ready()
        await said(app, "Q1")
        await said(app, "Q2")
        # Both replies again, the older one by being selected.
        await app.pilot.press("ctrl+r")
        await app.until(lambda: app.chat.ready and "A2 anew" in app.transcript.text)
        while app.transcript.selected != 1:
            await app.pilot.press("alt+up")
        await app.pilot.press("ctrl+r")
        await app.until(lambda: app.chat.ready and "A1 anew" in app.transcript.text)
        # The first question in other words, and one more behind it.
        await app.pilot.press("ctrl+t")
        await app.write(" edited")
        await app.pilot.press("enter")
        await app.until(lambda: app.chat.ready and "B1" in app.transcript.text)
        await said(app, "R2")
        # Back in the first branch, where the conversation goes on.
        while app.transcript.selected != 0:
            await app.pilot.press("alt+up")
        await app.pilot.press("alt+left", "escape")
        while app.transcript.selected != 1:
            await app.pilot.press("alt+up")
        await app.pilot.press("alt+left", "escape")
        await app.until(lambda: "A2 anew" in app.transcript.text)
        await said(app, "Q3")
        await app.pilot.press("ctrl+r")
        await app.until(lambda: app.chat.ready and "A2 other" in app.transcript.text)
        shown, title = app.transcript.text, app.title
        recorded = [shape(app.store, row.id) for row in app.store.conversations()]
    async with playing(read_session(file)) as replay:
        await replay.until(lambda: replay.player.ended and not replay.chat.busy)
        assert replay.text == shown
        assert [shape(replay.store, row.id) for row in replay.store.conversations()] == recorded
        assert replay.app.chat_screen.query_one(TitleBar).text == title
    assert len(recorded) == 1
    assert "‹ 2/2 ›" in shown


async def test_chats_that_one_goes_back_to_play_again_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    async with running(ScriptedEngine(["A1", "B1", "A2"]), record=file) as app:
        await app.ready()
        await said(app, "one")
        first = app.chat.conversation.id
        await app.pilot.press("ctrl+n")
        # The same words in another chat are no branch of the first.
        await said(app, "one")
        app.chat.open(first or 0)
        await said(app, "two")
        shown = app.transcript.text
        recorded = [shape(app.store, row.id) for row in app.store.conversations()]
    async with playing(read_session(file)) as replay:
        await replay.until(lambda: replay.player.ended and not replay.chat.busy)
        assert replay.text == shown
        assert [shape(replay.store, row.id) for row in replay.store.conversations()] == recorded
    assert len(recorded) == 2


async def test_a_question_that_got_no_answer_goes_along_in_a_replay_too(tmp_path: Path) -> None:
    file = tmp_path / "chat.jsonl"
    async with running(ScriptedEngine(), record=file) as app:
        await app.ready()
        await app.send("one")
        await app.until(lambda: app.chat.busy)
        await app.pilot.press("escape")
        await app.until(lambda: app.chat.ready)
        for key, text in (("", "Two."), ("ctrl+r", "Two again.")):
            await (app.pilot.press(key) if key else app.send("two"))
            await app.until(lambda: app.chat.busy)
            await app.step(text)
            app.engine.finish()
            await app.until(lambda: app.chat.ready)
        shown = app.transcript.text
        recorded = [shape(app.store, row.id) for row in app.store.conversations()]
    assert asked(file) == ["one", "one\n\ntwo", "one\n\ntwo"]
    async with playing(read_session(file)) as replay:
        await replay.until(lambda: replay.player.ended and not replay.chat.busy)
        assert replay.text == shown
        assert [shape(replay.store, row.id) for row in replay.store.conversations()] == recorded
