"""What a chat lets be remembered: its own conversation, or nothing."""

from __future__ import annotations

from pathlib import Path

from localspec.chat.store import Store
from localspec.messages import Generate
from tests.tui.helpers import running
from tests.tui.scripted import ScriptedEngine


async def test_replies_are_remembered_under_their_conversation() -> None:
    engine = ScriptedEngine(["One.", "Two.", "Three."])
    async with running(engine) as app:
        await app.ready()
        await app.send("first")
        await app.until(lambda: "One." in app.transcript.text and not app.chat.busy)
        await app.send("second")
        await app.until(lambda: "Two." in app.transcript.text and not app.chat.busy)
        await app.pilot.press("ctrl+n")
        await app.send("third")
        await app.until(lambda: "Three." in app.transcript.text and not app.chat.busy)
        names = [command.conversation for command in engine.of(Generate)]
        assert names[0] == names[1] != names[2]
        for name, title in ((names[0], "first"), (names[2], "third")):
            row = app.store.remembered_as(name)
            assert row is not None
            assert row.title == title
        assert "private" not in app.title
        await app.pilot.press("ctrl+o")
        await app.pilot.pause()
        shown = app.app.screen.query_one("#conversations").get_option_at_index(1)
        assert "\n  1 · " in str(shown.prompt)


async def test_a_private_chat_leaves_nothing(private_home: Path) -> None:
    engine = ScriptedEngine(["A secret."])
    store = Store(private=True)
    async with running(engine, store=store, private=True, conversation="new") as app:
        await app.ready()
        await app.send("whisper")
        await app.until(lambda: "A secret." in app.transcript.text and not app.chat.busy)
        assert "private" in app.title
        assert [command.conversation for command in engine.of(Generate)] == [""]
        assert len(store.messages(app.chat.conversation.id or 0)) == 2
    store.close()
    assert not list(private_home.rglob("*"))


def test_names_are_unique_whatever_the_database(tmp_path: Path) -> None:
    names = set()
    for number in range(2):
        store = Store(tmp_path / f"{number}.db")
        names |= {store.create(model="m").memory_name for _ in range(2)}
        store.close()
    assert len(names) == 4


def test_an_older_database_gets_its_names(tmp_path: Path) -> None:
    import sqlite3

    from localspec.chat import database

    path = tmp_path / "old.db"
    raw = sqlite3.connect(path)
    raw.executescript(database.MIGRATIONS[0])
    raw.execute("PRAGMA user_version = 1")
    columns = "title, model, system_prompt, created, updated"
    for _ in range(2):
        raw.execute(f"INSERT INTO conversation ({columns}) VALUES ('t', 'm', '', 1, 1)")
    raw.commit()
    raw.close()
    store = Store(path)
    first, second = store.get(1), store.get(2)
    assert first is not None
    assert second is not None
    assert first.memory_name != second.memory_name
    assert store.remembered_as(first.memory_name) == first
    assert store.remembered_as("chat-") is None
    store.close()
