"""The app with a scripted engine: what users do, and what they see."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.chat.store import Store
from localspec.errors import DownloadError
from localspec.messages import Cancel, EngineExited, Generate, Load, SetSpeculation
from localspec.models.sources import PullProgress
from tests.tui.helpers import running
from tests.tui.scripted import ScriptedEngine
from tui.state import Phase


async def test_two_turns_are_sent_shown_and_kept() -> None:
    engine = ScriptedEngine(["The **first** reply.", "The second."])
    async with running(engine) as app:
        await app.ready()
        await app.send("one")
        await app.until(lambda: "tok/s ·" in app.transcript.text)
        await app.send("two")
        await app.until(lambda: "The second." in app.transcript.text and not app.chat.busy)

        assert "The first reply." in app.transcript.text
        first, second = engine.of(Generate)
        assert [(m.role, m.content) for m in first.messages] == [("user", "one")]
        assert [(m.role, m.content) for m in second.messages] == [
            ("user", "one"),
            ("assistant", "The **first** reply."),
            ("user", "two"),
        ]
        assert first.id != second.id
        kept = app.store.messages(app.chat.conversation.id or 0)
        assert [(m.role, m.content, m.status) for m in kept] == [
            ("user", "one", "complete"),
            ("assistant", "The **first** reply.", "complete"),
            ("user", "two", "complete"),
            ("assistant", "The second.", "complete"),
        ]
        assert kept[1].stats is not None
        assert kept[1].stats["generated_tokens"] > 0


@pytest.mark.parametrize("fresh", [True, False])
async def test_every_reply_has_a_fresh_seed_unless_the_user_fixed_one(fresh: bool) -> None:
    engine = ScriptedEngine(["One.", "Two."])
    async with running(engine, fresh_seeds=fresh) as app:
        await app.ready()
        for text, reply in (("one", "One."), ("two", "Two.")):
            await app.send(text)
            await app.until(lambda reply=reply: reply in app.transcript.text and not app.chat.busy)
    seeds = [command.sampling.seed for command in engine.of(Generate)]
    assert (len(set(seeds)) == 2) is fresh
    assert (seeds == [7, 7]) is not fresh


async def test_the_first_frame_comes_before_the_model() -> None:
    async with running(ScriptedEngine(load=False)) as app:
        await app.until(lambda: app.chat.state.phase is Phase.LOADING)
        assert "Loading scripted" in app.activity
        assert "Chat with scripted" in app.transcript.text
        app.engine.loaded()
        await app.ready()
        assert "llama 135M" in app.title


async def test_a_download_shows_how_far_it_is() -> None:
    proceed = threading.Event()

    def resolve(report: Callable[[PullProgress], None]) -> Path:
        report(PullProgress("downloading", 41 << 20, 94 << 20, float(12 << 20)))
        proceed.wait(5)
        return Path("model.gguf")

    async with running(finding=resolve) as app:
        await app.until(lambda: "Downloading scripted" in app.activity)
        assert "41 / 94 MiB" in app.activity
        assert "12 MiB/s" in app.activity
        assert "4 s left" in app.activity
        proceed.set()
        await app.ready()


async def test_prefill_is_shown_with_what_is_known_already() -> None:
    from localspec.messages import PrefillProgress

    async with running() as app:
        await app.ready()
        await app.send("hello")
        app.engine.put(PrefillProgress(1, 768, 2048, 512, 0.5))
        await app.until(lambda: "256 of 1536 tokens, 512 known  512 tok/s" in app.activity)


async def test_f2_in_the_middle_of_a_reply() -> None:
    async with running() as app:
        await app.ready()
        await app.send("hello")
        await app.step("some ", drafted=3, accepted=2)
        await app.pilot.press("f2")
        await app.until(lambda: app.chat.state.speculating is False)
        assert [command.enabled for command in app.engine.of(SetSpeculation)] == [False]
        assert "speculation off" in app.title
        assert "switched off" in app.panel.text
        assert "Speculation: switched off" in app.activity
        await app.step("text")
        await app.pilot.press("f2")
        await app.until(lambda: app.chat.state.speculating is True)
        assert "speculation on" in app.title
        assert len(app.engine.of(Load)) == 1
        app.engine.finish()
        await app.until(lambda: not app.chat.busy)
        assert "some text" in app.transcript.text


async def test_f2_while_loading_reaches_the_engine() -> None:
    async with running(ScriptedEngine(load=False)) as app:
        await app.until(lambda: app.chat.state.phase is Phase.LOADING)
        await app.pilot.press("f2")
        app.engine.loaded()
        await app.until(lambda: app.chat.state.speculating is False)


async def test_esc_stops_the_reply_and_keeps_what_was_said() -> None:
    async with running() as app:
        await app.ready()
        assert "esc stop" not in app.keys
        await app.send("hello")
        await app.step("half a sen")
        assert "esc stop" in app.keys
        await app.pilot.press("escape")
        await app.until(lambda: not app.chat.busy)
        assert len(app.engine.of(Cancel)) == 1
        assert "half a sen" in app.transcript.text
        assert "stopped" in app.transcript.text
        reply = app.store.messages(app.chat.conversation.id or 0)[-1]
        assert (reply.content, reply.status) == ("half a sen", "cancelled")
        # With nothing to stop, esc is harmless.
        await app.pilot.press("escape")
        assert len(app.engine.of(Cancel)) == 1


async def test_a_message_sent_during_a_reply_waits_for_its_end() -> None:
    async with running() as app:
        await app.ready()
        await app.send("one")
        await app.step("first")
        await app.send("two")
        assert "next: two" in app.activity
        await app.send("three")
        assert "One message is waiting already" in app.activity
        assert app.prompt.text == "three"
        app.engine.finish()
        await app.until(lambda: len(app.engine.of(Generate)) == 2)
        assert app.engine.of(Generate)[1].messages[-1].content == "two"


async def test_esc_gives_a_waiting_message_back() -> None:
    async with running() as app:
        await app.ready()
        await app.send("one")
        await app.step("first")
        await app.send("two")
        await app.write("and more")
        await app.pilot.press("escape")
        await app.until(lambda: not app.chat.busy)
        assert app.prompt.text == "two\nand more"
        assert len(app.engine.of(Generate)) == 1


async def test_a_message_sent_while_loading_is_sent_when_it_can_be() -> None:
    async with running(ScriptedEngine(["hi"], load=False)) as app:
        await app.until(lambda: app.chat.state.phase is Phase.LOADING)
        await app.send("early")
        assert "next: early" in app.activity
        assert app.engine.of(Generate) == []
        app.engine.loaded()
        await app.until(lambda: "hi" in app.transcript.text and not app.chat.busy)


async def test_the_engine_dies_and_the_next_message_restarts_it() -> None:
    engine = ScriptedEngine()
    async with running(engine) as app:
        await app.ready()
        await app.send("one")
        await app.step("partial", drafted=2, accepted=1)
        await app.send("kept for later")
        engine.die("The engine was ended by SIGKILL; the next message restarts it.")
        await app.until(lambda: "ended by SIGKILL" in app.transcript.text)
        assert app.transcript.text.count("SIGKILL") == 1
        assert "partial" in app.transcript.text
        assert "The engine has stopped" in app.activity
        assert app.prompt.text == "kept for later"
        reply = app.store.messages(app.chat.conversation.id or 0)[-1]
        assert (reply.content, reply.status) == ("partial", "failed")

        await app.pilot.press("enter")
        await app.until(lambda: len(engine.of(Generate)) == 2)
        assert (engine.starts, len(engine.of(Load))) == (2, 2)
        assert [m.content for m in engine.of(Generate)[1].messages] == ["one", "partial", "kept for later"]
        engine.step("again")
        engine.finish()
        await app.until(lambda: "again" in app.transcript.text and not app.chat.busy)
        assert app.chat.exit_code == 0


async def test_an_engine_that_dies_idle_says_so_once() -> None:
    async with running() as app:
        await app.ready()
        app.engine.die("The engine was ended by SIGSEGV.")
        await app.until(lambda: "SIGSEGV" in app.transcript.text)
        app.engine.put(EngineExited("The engine has stopped.", expected=True))
        await app.pilot.pause()
        assert app.transcript.text.count("!") == 1


async def test_a_load_that_fails_leaves_the_app_usable() -> None:
    engine = ScriptedEngine(load=False)
    async with running(engine) as app:
        await app.until(lambda: app.chat.state.phase is Phase.LOADING)
        await app.send("hello")
        engine.fail("NotEnoughMemoryError", "The model needs 9 GiB and 4 GiB are free; take a smaller one.")
        await app.until(lambda: "take a smaller one" in app.transcript.text)
        assert "No model." in app.activity
        assert app.prompt.text == "hello"
        assert app.chat.exit_code == 5
        await app.pilot.press("enter")
        await app.until(lambda: len(engine.of(Load)) == 2)
        engine.loaded()
        await app.until(lambda: len(engine.of(Generate)) == 1)
        assert app.chat.exit_code == 0


async def test_a_model_that_cannot_be_fetched_is_tried_again() -> None:
    tries = []

    def resolve(report: object) -> Path:
        tries.append(report)
        if len(tries) == 1:
            raise DownloadError("There is no network; try again later.")
        return Path("model.gguf")

    async with running(finding=resolve) as app:
        await app.until(lambda: "There is no network" in app.transcript.text)
        assert app.chat.exit_code == 1
        await app.send("hello")
        await app.until(lambda: len(app.engine.of(Generate)) == 1)


async def test_the_exit_status_of_an_app_without_a_model() -> None:
    engine = ScriptedEngine(load=False)
    async with running(engine) as app:
        await app.until(lambda: app.chat.state.phase is Phase.LOADING)
        engine.fail("ModelFileError", "The file is truncated; fetch it again.")
        await app.until(lambda: "truncated" in app.transcript.text)
        await app.pilot.press("ctrl+q")
    assert app.app.return_code == 1


async def test_a_prompt_that_is_too_long_returns_to_be_shortened_and_is_not_sent_again() -> None:
    engine = ScriptedEngine()
    async with running(engine) as app:
        await app.ready()
        await app.send("far too long")
        engine.fail("PromptTooLongError", "The message needs 9000 tokens of 8192; shorten it.")
        await app.until(lambda: "shorten it" in app.transcript.text)
        assert app.prompt.text == "far too long"
        app.prompt.text = ""
        await app.send("short")
        await app.until(lambda: len(engine.of(Generate)) == 2)
        assert [m.content for m in engine.of(Generate)[1].messages] == ["short"]


async def test_questions_without_an_answer_are_joined() -> None:
    engine = ScriptedEngine()
    async with running(engine, system_prompt="Be brief.") as app:
        await app.ready()
        await app.send("one")
        engine.fail("EngineError", "The engine failed; try again.")
        await app.until(lambda: "try again" in app.transcript.text)
        await app.send("two")
        await app.until(lambda: len(engine.of(Generate)) == 2)
        assert [(m.role, m.content) for m in engine.of(Generate)[1].messages] == [
            ("system", "Be brief."),
            ("user", "one\n\ntwo"),
        ]


async def test_a_new_chat_during_a_reply() -> None:
    async with running() as app:
        await app.ready()
        await app.send("one")
        await app.step("old words")
        first = app.chat.conversation.id or 0
        engine = app.engine
        # The engine takes a moment to stop, and still sends a step.
        due = engine._due
        await app.pilot.press("ctrl+n")
        assert "old words" not in app.transcript.text
        assert app.chat.conversation.id is None
        await app.until(lambda: not app.chat.busy)
        assert not due
        await app.send("two")
        await app.step("new words")
        assert "old words" not in app.transcript.text
        assert "new words" in app.transcript.text
        assert [m.content for m in app.store.messages(first)] == ["one", "old words"]
        assert app.store.messages(first)[-1].status == "cancelled"
        assert [m.content for m in engine.of(Generate)[1].messages] == ["two"]


async def test_opening_and_quitting_leaves_nothing() -> None:
    async with running() as app:
        await app.ready()
        await app.pilot.press("ctrl+n")
        assert app.store.conversations() == []


async def test_the_last_conversation_is_there_again() -> None:
    store = Store()
    async with running(ScriptedEngine(["an answer"]), store=store) as app:
        await app.ready()
        await app.send("a question")
        await app.until(lambda: "an answer" in app.transcript.text and not app.chat.busy)
    engine = ScriptedEngine()
    async with running(engine, store=store) as app:
        await app.ready()
        assert "a question" in app.transcript.text
        assert "an answer" in app.transcript.text
        assert "tok/s" in app.transcript.text
        assert "a question" in app.title
        await app.send("more")
        await app.until(lambda: len(engine.of(Generate)) == 1)
        assert [m.content for m in engine.of(Generate)[0].messages] == ["a question", "an answer", "more"]
    async with running(store=store, conversation="new") as app:
        assert "a question" not in app.transcript.text
    async with running(store=store, conversation=99) as app:
        await app.until(lambda: "There is no conversation 99" in app.transcript.text)
    store.close()


async def test_an_earlier_chat_is_chosen_from_the_list() -> None:
    store = Store()
    for title in ("about foxes", "about geese"):
        row = store.create(model="scripted", title=title)
        store.add_message(row.id, "user", title)
    async with running(store=store, conversation="new") as app:
        await app.ready()
        await app.pilot.press("ctrl+o")
        await app.until(lambda: app.app.screen is not app.screen)
        await app.pilot.press(*"fox")
        await app.pilot.press("enter")
        await app.until(lambda: "about foxes" in app.transcript.text)
        assert app.app.screen is app.screen
        await app.pilot.press("ctrl+o")
        await app.until(lambda: app.app.screen is not app.screen)
        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen is app.screen)
        assert "about foxes" in app.transcript.text
    store.close()


async def test_a_reply_is_in_the_store_before_it_ends() -> None:
    async with running() as app:
        await app.ready()
        await app.send("one")
        app.chat.conversation._saved_at = float("-inf")
        await app.step("saved at once")
        other = Store()
        reply = other.messages(app.chat.conversation.id or 0)[-1]
        other.close()
        assert (reply.content, reply.status) == ("saved at once", "streaming")


async def test_steps_are_recorded(tmp_path: Path) -> None:
    from localspec.stats.recorder import read_steps

    file = tmp_path / "steps.jsonl"
    async with running(ScriptedEngine(["four words of text"]), record=file) as app:
        await app.ready()
        await app.send("one")
        await app.until(lambda: "four words" in app.transcript.text and not app.chat.busy)
    assert sum(stats.emitted for stats in read_steps(file)) == app.chat.state.reply.emitted


@pytest.mark.parametrize("delay", [0.0, 0.2])
async def test_quitting_does_not_wait_for_a_download(delay: float) -> None:
    entered, proceed = threading.Event(), threading.Event()

    def resolve(report: Callable[[PullProgress], None]) -> Path:
        entered.set()
        proceed.wait(5)
        report(PullProgress("downloading", 1, 2, None))
        raise AssertionError("the download went on after the app had ended")

    async with running(finding=resolve) as app:
        await app.until(entered.is_set)
    proceed.set()
    assert app.chat.setup.finder.drain() == []
