"""What the app says by itself: when, and for how long."""

from __future__ import annotations

from localspec.messages import Generate
from tests.tui.helpers import running
from tests.tui.scripted import ScriptedEngine


async def test_what_two_windows_write_in_one_conversation_is_all_kept() -> None:
    async with running(ScriptedEngine(["One.", "Three."])) as first:
        await first.ready()
        await first.send("one")
        await first.until(lambda: "One." in first.transcript.text and not first.chat.busy)
        async with running(ScriptedEngine(["Two."])) as second:
            await second.ready()
            assert second.chat.conversation.id == first.chat.conversation.id
            await second.send("two")
            await second.until(lambda: "Two." in second.transcript.text and not second.chat.busy)
            assert "another window" not in second.transcript.text
        await first.send("three")
        await first.until(lambda: "Three." in first.transcript.text and not first.chat.busy)
        assert first.transcript.text.count("another window") == 1
        kept = first.store.messages(first.chat.conversation.id or 0)
        assert [row.content for row in kept] == ["one", "One.", "two", "Two.", "three", "Three."]


async def test_a_hint_about_a_waiting_message_goes_with_it() -> None:
    async with running() as app:
        await app.ready()
        for text in ("one", "two", "three"):
            await app.send(text)
        await app.until(lambda: "waiting already" in app.activity)
        await app.pilot.press("escape")
        assert "waiting already" not in app.activity


async def test_the_greeting_goes_with_the_first_message_and_notes_stay() -> None:
    async with running() as app:
        await app.ready()
        assert "Chat with scripted" in app.transcript.text
        app.engine.die("The engine was ended by SIGSEGV.")
        await app.until(lambda: "SIGSEGV" in app.transcript.text)
        await app.send("one")
        await app.until(lambda: app.engine.of(Generate))
        assert "Chat with scripted" not in app.transcript.text
        assert "SIGSEGV" in app.transcript.text


async def test_thinking_is_asked_for_as_at_the_start() -> None:
    for think in (None, False):
        async with running(think=think) as app:
            await app.ready()
            await app.send("one")
            await app.until(lambda app=app: app.engine.of(Generate))
            assert app.engine.of(Generate)[0].think is think
