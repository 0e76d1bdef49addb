"""Editing, answering again and going between versions, in the running app."""

from __future__ import annotations

from functools import partial

from localspec.messages import Generate
from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine


async def said(app: Running, *questions: str) -> None:
    """Ask, and wait for each reply."""
    await app.ready()
    for text in questions:
        wanted = len(asked(app)) + 1
        await app.send(text)
        await app.until(partial(answered, app, wanted))


def answered(app: Running, count: int) -> bool:
    return len(asked(app)) == count and app.chat.ready


def asked(app: Running) -> list[list[str]]:
    return [[message.content for message in one.messages] for one in app.engine.of(Generate)]


def shown(app: Running) -> list[str]:
    return [message.text for message in app.chat.conversation.messages]


async def test_a_reply_is_made_again_and_both_can_be_seen() -> None:
    async with running(ScriptedEngine(["first reply", "second reply"]), fresh_seeds=True) as app:
        await app.pilot.press("ctrl+r")
        assert "no reply yet" in app.activity
        await said(app, "Q")
        assert "‹" not in app.transcript.text
        await app.pilot.press("ctrl+r")
        await app.until(lambda: app.chat.ready and "second reply" in app.transcript.text)
        assert "‹ 2/2 ›" in app.transcript.text
        assert asked(app) == [["Q"], ["Q"]]
        seeds = {one.sampling.seed for one in app.engine.of(Generate)}
        assert len(seeds) == 2
        await app.pilot.press("alt+left")
        assert "first reply" in app.transcript.text
        assert "‹ 1/2 ›" in app.transcript.text
        await app.pilot.press("alt+left")
        assert "This is the first version" in app.activity
        await app.pilot.press("alt+right")
        assert "second reply" in app.transcript.text
        await app.pilot.press("alt+right")
        assert "This is the newest version" in app.activity
        # The figures of both are kept, each with its own.
        kept = app.store.siblings(app.chat.conversation.messages[1].row_id or 0)
        assert [row.content for row in kept] == ["first reply", "second reply"]
        assert all(row.stats for row in kept)


async def test_going_between_versions_stays_at_the_message_that_was_chosen() -> None:
    async with running(ScriptedEngine(["A1", "A1 other", "A2", "A2 other"])) as app:
        await said(app, "Q1")
        await app.pilot.press("ctrl+r")
        await app.until(partial(answered, app, 2))
        await said(app, "Q2")
        await app.pilot.press("ctrl+r")
        await app.until(partial(answered, app, 4))
        assert shown(app) == ["Q1", "A1 other", "Q2", "A2 other"]
        # With none selected it is the last one; with the first reply selected, that one, there and back.
        await app.pilot.press("alt+left")
        assert shown(app)[-1] == "A2"
        while app.transcript.selected != 1:
            await app.pilot.press("alt+up")
        await app.pilot.press("alt+left")
        assert shown(app) == ["Q1", "A1"]
        await app.pilot.press("alt+right")
        assert shown(app) == ["Q1", "A1 other", "Q2", "A2 other"]
        await app.pilot.press("alt+left")
        assert shown(app) == ["Q1", "A1"]


async def test_another_drafter_and_seed_are_those_of_now_and_a_fixed_seed_is_said() -> None:
    async with running(ScriptedEngine(["one", "two"])) as app:
        await said(app, "Q")
        app.chat.set_speculation(enabled=False)
        await app.pilot.press("ctrl+r")
        assert "The seed is still 7" in app.activity
        await app.until(lambda: app.chat.ready and "two" in app.transcript.text)
        first, second = app.engine.of(Generate)
        assert first.sampling == second.sampling


async def test_a_message_is_edited_in_the_prompt_and_asked_as_a_sibling() -> None:
    async with running(ScriptedEngine(["A1", "A2", "A2 anew"])) as app:
        await app.pilot.press("ctrl+t")
        assert "no message to edit" in app.activity
        await said(app, "Q1", "Q2")
        await app.write("a draft")
        await app.pilot.press("ctrl+t")
        assert app.prompt.text == "Q2"
        assert "Editing a message" in app.activity
        await app.write(" better")
        await app.pilot.press("enter")
        await app.until(lambda: app.chat.ready and "A2 anew" in app.transcript.text)
        assert asked(app)[-1] == ["Q1", "A1", "Q2 better"]
        # What was being written comes back.
        assert app.prompt.text == "a draft"
        assert shown(app) == ["Q1", "A1", "Q2 better", "A2 anew"]
        assert "‹ 2/2 ›" in app.transcript.text
        await app.pilot.press("alt+left")
        assert shown(app) == ["Q1", "A1", "Q2", "A2"]
        # What is said now goes on from the branch that is shown.
        app.prompt.text = ""
        await app.send("Q3")
        await app.until(lambda: len(asked(app)) == 4)
        assert asked(app)[-1] == ["Q1", "A1", "Q2", "A2", "Q3"]


async def test_esc_leaves_a_message_as_it_was() -> None:
    async with running(ScriptedEngine(["A1"])) as app:
        await said(app, "Q1")
        await app.write("a draft")
        await app.pilot.press("ctrl+t")
        await app.until(lambda: "esc cancel" in app.keys)
        assert "esc stop" not in app.keys
        await app.write(" changed")
        await app.pilot.press("escape")
        assert app.prompt.text == "a draft"
        assert app.chat.branches.editing is None
        assert "Editing" not in app.activity
        await app.until(lambda: "esc" not in app.keys)
        await app.pilot.press("ctrl+t", "ctrl+n")
        assert app.chat.branches.editing is None
        assert app.prompt.text == "a draft"
        assert shown(app) == []


async def test_nothing_branches_while_a_reply_is_written() -> None:
    async with running() as app:
        await app.ready()
        await app.send("Q")
        await app.step("A")
        for key in ("ctrl+r", "ctrl+t", "alt+left"):
            app.screen.hint("")
            await app.pilot.press(key)
            assert "esc stops it first" in app.activity
        assert len(asked(app)) == 1
        app.engine.finish()
        await app.until(lambda: app.chat.ready)
        await app.pilot.press("alt+left")
        assert "no other versions" in app.activity


async def test_an_engine_that_is_gone_is_started_and_the_text_stays() -> None:
    async with running(ScriptedEngine(["A1"])) as app:
        await said(app, "Q1")
        await app.pilot.press("ctrl+t")
        await app.write(" better")
        app.engine.die()
        await app.until(lambda: app.chat.down)
        await app.pilot.press("enter")
        assert "not ready yet" in app.activity
        assert app.prompt.text == "Q1 better"
        await app.until(lambda: app.chat.ready)
        await app.pilot.press("enter")
        await app.until(lambda: len(asked(app)) == 2)
        assert asked(app)[-1] == ["Q1 better"]


async def test_a_question_that_was_too_long_is_edited_not_repeated() -> None:
    async with running() as app:
        await app.ready()
        await app.send("far too long")
        app.engine.fail("PromptTooLongError", "The message needs 9000 tokens of 8192; shorten it.")
        await app.until(lambda: "shorten it" in app.transcript.text)
        app.prompt.text = ""
        await app.pilot.press("ctrl+r")
        assert "could not be answered" in app.activity
        await app.pilot.press("ctrl+t")
        app.prompt.text = "short"
        await app.pilot.press("enter")
        await app.until(lambda: len(asked(app)) == 2)
        assert asked(app)[-1] == ["short"]


async def test_branches_of_a_private_chat_are_kept_until_it_ends() -> None:
    from localspec.chat.store import Store

    store = Store(private=True)
    async with running(ScriptedEngine(["A1", "A1 again"]), store=store) as app:
        await said(app, "Q1")
        await app.pilot.press("ctrl+r")
        await app.until(lambda: app.chat.ready and "A1 again" in app.transcript.text)
        await app.pilot.press("alt+left")
        assert shown(app) == ["Q1", "A1"]
    store.close()
