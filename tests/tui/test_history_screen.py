"""The screen of earlier conversations, by keyboard alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from textual.widgets import Input, OptionList, Static

from localspec.chat.store import ConversationRow, Store
from localspec.memory.files import log_path
from localspec.memory.log import TokenLog
from localspec.memory.records import Record
from localspec.paths import memory_dir
from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine
from tui.screens.history import HistoryScreen


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def filled(store: Store, count: int = 3) -> list[ConversationRow]:
    rows = [store.create(model="m", title=f"Title {number}") for number in range(1, count + 1)]
    for row in rows:
        store.add_message(row.id, "user", f"Question of {row.id} about sourdough\x1b[31m")
        store.add_message(row.id, "assistant", f"Answer {row.id}")
    return rows


def remember(row: ConversationRow) -> TokenLog:
    log = TokenLog(log_path(memory_dir(), "1" * 32), "1" * 32)
    log.append([Record(np.arange(40, dtype=np.int32), row.memory_name, 1.7e9)])
    return log


class Opened:
    """The app with the screen on top, and what a person sees of it."""

    def __init__(self, app: Running) -> None:
        self.app = app

    @property
    def screen(self) -> HistoryScreen:
        assert isinstance(self.app.app.screen, HistoryScreen)
        return self.app.app.screen

    @property
    def said(self) -> str:
        return str(self.screen.query_one("#history-said", Static).visual)

    @property
    def text(self) -> str:
        options = self.screen.query_one(OptionList).options
        return "\n".join(str(option.prompt) for option in options)

    @property
    def marked(self) -> int:
        options = self.screen.query_one(OptionList)
        assert options.highlighted is not None
        return self.screen.listed[options.highlighted]

    async def press(self, *keys: str) -> None:
        await self.app.pilot.press(*keys)
        await self.app.pilot.pause()

    async def search(self, text: str, wanted: Callable[[], bool]) -> None:
        self.screen.query_one("#filter", Input).value = text
        await self.app.until(wanted)


async def opened(app: Running) -> Opened:
    await app.pilot.press("ctrl+o")
    await app.until(lambda: isinstance(app.app.screen, HistoryScreen))
    await app.pilot.pause()
    return Opened(app)


async def test_typing_searches_titles_and_texts_and_enter_opens() -> None:
    async with running() as app:
        filled(app.store)
        now = await opened(app)
        assert now.screen.listed == (3, 2, 1)
        assert "3 · just now · 2 messages · m" in now.text
        await now.search("sourd", lambda: "+" not in now.text and "sourdough" in now.text)
        assert now.screen.listed == (3, 2, 1)
        assert "\x1b" not in now.text
        await now.search("answer 2", lambda: now.screen.listed == (2,))
        await now.search("nothing such", lambda: now.screen.listed == ())
        assert now.said == "nothing found"
        await now.press("enter", "delete", "f2", "f3")
        # Enter opens what was typed, not what the list showed a moment before.
        now.screen.query_one("#filter", Input).value = "title 1"
        await now.press("enter")
        assert app.chat.conversation.id == 1
        assert [message.text for message in app.chat.conversation.messages][1] == "Answer 1"


async def test_enter_twice_at_once_opens_once_and_the_chat_stays() -> None:
    async with running() as app:
        filled(app.store)
        now = await opened(app)
        screen = now.screen
        narrow = screen.query_one("#filter", Input)
        screen.post_message(Input.Submitted(narrow, ""))
        screen.post_message(Input.Submitted(narrow, ""))
        await app.until(lambda: app.chat.conversation.id == 3)
        await app.pilot.pause()
        assert len(app.app.screen_stack) == 2
        assert app.prompt.has_focus


async def test_an_empty_list_says_so_and_esc_goes_back() -> None:
    async with running() as app:
        now = await opened(app)
        assert now.said == "no earlier chats yet"
        await now.press("ctrl+z")
        assert "Nothing was deleted" in now.said
        await now.press("down", "delete", "f2", "f3", "f4", "enter", "escape")
        assert not isinstance(app.app.screen, HistoryScreen)


async def test_f2_renames_what_is_marked() -> None:
    async with running() as app:
        filled(app.store)
        await app.until(lambda: app.chat.conversation is not None)
        app.chat.open(2)
        now = await opened(app)
        await now.press("down", "f2")
        editor = now.screen.query_one("#rename", Input)
        assert (editor.value, editor.has_focus) == ("Title 2", True)
        editor.value = "   "
        await now.press("enter")
        assert "needs a character" in now.said
        # The keys of the list do nothing to the list while a title is edited.
        await now.press("f3", "down", "ctrl+z", "escape")
        assert now.screen.query_one("#filter", Input).has_focus
        assert now.marked == 2
        assert not list(Path.cwd().iterdir())
        await now.press("f2")
        editor.value = " Better \x1b[31m title "
        await now.press("enter")
        assert "Renamed to “Better ␛[31m title”." in now.said
        assert now.marked == 2
        await now.press("escape")
        assert app.chat.conversation.title.startswith("Better")


async def test_what_is_deleted_comes_back_with_its_memory_until_the_app_ends() -> None:
    async with running() as app:
        rows = filled(app.store)
        log = remember(rows[1])
        now = await opened(app)
        await now.press("down", "delete")
        assert now.screen.listed == (3, 1)
        assert "ctrl+z brings it back" in now.said
        assert now.marked == 1
        await app.until(lambda: log.reread().records == [])
        await now.press("delete")
        assert now.screen.listed == (3,)
        await now.press("ctrl+z", "ctrl+z")
        assert now.screen.listed == (3, 2, 1)
        assert now.marked == 2
        assert app.store.get(2) == rows[1] or app.store.messages(2)
        await app.until(lambda: [one.conversation for one in log.reread().records] == [rows[1].memory_name])
        await now.press("delete", "escape")
        assert app.store.get(2) is None
        await app.until(lambda: log.reread().records == [])
        again = await opened(app)
        await again.press("ctrl+z")
        assert again.screen.listed == (3, 2, 1)
        await app.until(lambda: [one.conversation for one in log.reread().records] == [rows[1].memory_name])
        await again.press("ctrl+z")
        assert "Nothing was deleted" in again.said


async def test_deleting_the_conversation_on_screen_begins_a_new_one() -> None:
    async with running() as app:
        filled(app.store)
        app.chat.open(3)
        now = await opened(app)
        assert "• Title 3" in now.text
        await now.press("delete", "ctrl+z", "escape")
        assert app.chat.conversation.id == 3
        now = await opened(app)
        await now.press("delete", "escape")
        assert app.chat.conversation.id is None
        assert app.chat.conversation.messages == []


async def test_a_conversation_that_is_being_answered_is_not_deleted() -> None:
    async with running(ScriptedEngine()) as app:
        await app.ready()
        await app.send("Hello")
        await app.until(lambda: app.chat.replying)
        now = await opened(app)
        await now.press("delete")
        assert "A reply is being written" in now.said
        assert len(app.store.conversations()) == 1


async def test_exports_lie_in_the_current_folder_and_take_no_files_place() -> None:
    async with running() as app:
        filled(app.store, 1)
        now = await opened(app)
        await now.press("f3")
        assert "Written: 1-title-1.md in " in now.said
        await now.press("f3", "f4")
        assert sorted(path.name for path in Path.cwd().iterdir()) == [
            "1-title-1-2.md",
            "1-title-1.json",
            "1-title-1.md",
        ]
        assert Path("1-title-1.md").read_text().startswith("# Title 1")
        told = json.loads(Path("1-title-1.json").read_text())
        assert len(told["conversations"][0]["messages"]) == 2


async def test_what_another_window_deletes_is_said() -> None:
    async with running() as app:
        filled(app.store)
        now = await opened(app)
        for number in (3, 2):
            app.store.delete(number)
        await now.press("f3")
        assert "deleted elsewhere" in now.said
        await now.press("delete")
        assert "deleted elsewhere already" in now.said
        assert now.screen.listed == (1,)


async def test_a_store_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    async with running() as app:
        filled(app.store)
        now = await opened(app)
        app.store._database.execute("PRAGMA query_only = ON")
        await now.press("delete")
        assert "Cannot write" in now.said
        await now.press("f2")
        now.screen.query_one("#rename", Input).value = "x"
        await now.press("enter")
        assert "Cannot write" in now.said
        assert now.screen.listed == (3, 2, 1)
        app.store._database.execute("PRAGMA query_only = OFF")


async def test_private_conversations_have_no_memory_to_forget() -> None:
    store = Store(private=True)
    async with running(store=store) as app:
        filled(store)
        now = await opened(app)
        await now.press("delete", "ctrl+z")
        assert now.screen.listed == (3, 2, 1)
    store.close()
    assert not memory_dir().exists()


@pytest.mark.parametrize("size", [(40, 10), (60, 20), (80, 24), (160, 45)])
async def test_every_size_has_room_for_it(size: tuple[int, int]) -> None:
    async with running(size=size) as app:
        filled(app.store)
        now = await opened(app)
        await now.search("sourdough", lambda: "sourdough" in now.text)
        frame = now.screen.query_one("#history").region
        assert frame.width <= size[0]
        assert now.screen.query_one(OptionList).region.height >= (1 if size[1] < 20 else 4)
        hint = now.screen.query_one("#history-hint").region
        assert hint.bottom <= frame.bottom
