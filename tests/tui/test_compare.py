"""The A/B screen with a scripted engine: what is asked, what is shown, and what stays of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from localspec.chat.comparisons import Comparisons
from localspec.chat.store import Store
from localspec.messages import Cancel, Failed, Generate, Weigh
from localspec.types import ChatMessage, DraftOptions, EngineOptions
from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine
from tui.compare import Comparison, Stage
from tui.compare_runs import Contender, asked
from tui.compare_words import contender_name
from tui.screens.choice import ChoiceScreen
from tui.screens.compare import CompareScreen
from tui.state import Phase
from tui.widgets.rows import Rows
from tui.widgets.transcript import Transcript

TEXT = "The lamp of the lighthouse turns all night, and ships far out at sea count its flashes."
OTHER = "The lamp of the lighthouse turns all day, and ships far out at sea count its flashes. "


class Look:
    """What the A/B screen shows."""

    def __init__(self, app: Running) -> None:
        self.app = app

    @property
    def screen(self) -> CompareScreen:
        screen = self.app.app.screen
        assert isinstance(screen, CompareScreen)
        return screen

    @property
    def comparison(self) -> Comparison:
        return self.screen.comparison

    def answer(self, side: str) -> str:
        return self.screen.query_one(f"#answer-{side}", Transcript).text

    def rows(self, name: str) -> str:
        return " ".join(self.screen.query_one(f"#{name}", Rows).text.split())

    async def ends(self) -> None:
        await self.app.until(lambda: self.comparison.stage in (Stage.DONE, Stage.STOPPED, Stage.FAILED))
        await self.app.pilot.pause()


async def opened(app: Running, question: str = "Tell me of lighthouses.") -> Look:
    """The screen, after one turn of the chat."""
    await app.ready()
    await app.send(question)
    await app.until(lambda: "tok/s ·" in app.transcript.text and not app.chat.busy)
    await app.pilot.press("f3")
    await app.until(lambda: isinstance(app.app.screen, CompareScreen))
    return Look(app)


async def test_the_last_message_is_answered_both_ways_and_nothing_stays_of_it() -> None:
    engine = ScriptedEngine(["A first answer.", TEXT, TEXT, "And more."], burst=4)
    async with running(engine) as app:
        look = await opened(app)
        before = app.transcript.text
        assert "enter answers the message both ways" in look.rows("verdict")
        assert "A without drafts" in look.rows("head-a")
        assert "B ngram" in look.rows("head-b")
        await app.pilot.press("enter")
        await look.ends()

        assert TEXT in " ".join(look.answer("a").split())
        assert TEXT in " ".join(look.answer("b").split())
        words = look.rows("verdict")
        assert "as fast as A" in words
        assert "tokens are identical" in words
        assert f"{look.comparison.ratio:.2f}×" in words

        chat, first, second = engine.of(Generate)
        assert chat.trial is None
        assert first.trial is not None
        assert second.trial is not None
        assert (first.trial.draft.spec, second.trial.draft.spec) == ("none", "ngram")
        assert first.messages == second.messages == chat.messages
        assert first.sampling == second.sampling
        assert first.conversation == second.conversation == chat.conversation != ""
        assert len({chat.id, first.id, second.id}) == 3
        assert not engine.of(Weigh)

        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen is app.screen)
        assert app.transcript.text == before
        assert [m.content for m in app.store.messages(app.chat.conversation.id or 0)] == [
            "Tell me of lighthouses.",
            "A first answer.",
        ]
        assert app.prompt.has_focus
        await app.send("Go on.")
        await app.until(lambda: "And more." in app.transcript.text and not app.chat.busy)
        assert [m.content for m in engine.of(Generate)[-1].messages] == [
            "Tell me of lighthouses.",
            "A first answer.",
            "Go on.",
        ]


async def test_figures_of_the_chat_are_left_alone() -> None:
    async with running(ScriptedEngine(["A first answer.", TEXT, TEXT])) as app:
        look = await opened(app)
        tally, panel = app.chat.state.reply, app.panel.text
        await app.pilot.press("enter")
        await look.ends()
        assert app.chat.state.reply is tally
        assert app.chat.state.phase is Phase.READY
        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen is app.screen)
        assert app.panel.text == panel


async def test_where_the_texts_part_is_weighed_and_told() -> None:
    engine = ScriptedEngine(["A first answer.", TEXT, OTHER])
    async with running(engine) as app:
        look = await opened(app)
        await app.pilot.press("enter")
        await look.ends()
        words = look.rows("verdict")
        assert "part at token 10, after “…lighthouse turns all ”: A “ the” -0.71, B “ a” -0.73" in words
        assert "; 0.02 apart, +0.01 with this seed's noise." in words
        assert "localspec audit" in words
        (weigh,) = engine.of(Weigh)
        assert len(weigh.said) == 9
        assert weigh.request.messages == engine.of(Generate)[1].messages
        assert look.comparison.identical is False


async def test_what_was_not_measured_is_a_dash() -> None:
    engine = ScriptedEngine(["A first answer.", TEXT, OTHER])
    take = engine._take

    def refuse(command: Any) -> None:
        if isinstance(command, Weigh):
            engine.put(Failed(command.id, "EngineError", "A pass failed.", command="weigh"))
        else:
            take(command)

    engine._take = refuse
    async with running(engine) as app:
        look = await opened(app)
        await app.pilot.press("enter")
        await look.ends()
        assert look.comparison.stage is Stage.DONE
        assert "turns all ”; how far apart: –." in look.rows("verdict")
        assert "A pass failed." in look.rows("verdict")


async def test_rounds_alternate_and_are_pooled() -> None:
    engine = ScriptedEngine(["A first answer.", *[TEXT] * 6], burst=4)
    async with running(engine) as app:
        look = await opened(app)
        await app.pilot.press("enter")
        await look.ends()
        for _ in range(2):
            await app.pilot.press("ctrl+r")
            await look.ends()
        specs = [one.trial.draft.spec for one in engine.of(Generate) if one.trial]
        assert specs == ["none", "ngram", "ngram", "none", "none", "ngram"]
        assert len({one.sampling.seed for one in engine.of(Generate)[1:]}) == 1
        assert "medians of 3 rounds" in look.rows("verdict")
        # Three rounds are one comparison.
        (kept,) = Comparisons().newest()
        assert (kept.rounds, kept.identical, kept.model) == (3, True, "scripted")


async def test_esc_stops_and_what_was_said_stays() -> None:
    engine = ScriptedEngine()
    async with running(engine) as app:
        await app.ready()
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        look = Look(app)
        await app.pilot.press("enter")
        assert not engine.of(Generate)
        look.screen.query_one("#question").insert("Why?")
        await app.pilot.press("enter")
        engine.step("Because of ")
        await app.until(lambda: "Because of" in look.answer("a"))
        assert "A is at work" in look.rows("verdict")
        await app.pilot.press("escape")
        await look.ends()
        assert len(engine.of(Cancel)) == 1
        assert look.comparison.stage is Stage.STOPPED
        assert "Because of" in look.answer("a")
        assert "Stopped" in look.rows("verdict")
        assert not Comparisons().newest()
        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen is app.screen)
        assert app.store.conversations() == []


async def test_leaving_in_the_middle_ends_it_and_the_chat_goes_on() -> None:
    engine = ScriptedEngine()
    async with running(engine) as app:
        await app.ready()
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        look = Look(app)
        look.screen.query_one("#question").insert("Why?")
        await app.pilot.press("enter")
        engine.step("Because ")
        await app.until(lambda: "Because" in look.answer("a"))
        # An engine that takes a moment to stop.
        take = engine._take
        engine._take = lambda command: None if isinstance(command, Cancel) else take(command)
        comparison = look.comparison
        await app.pilot.press("f3")
        await app.until(lambda: app.app.screen is app.screen)
        assert comparison.stage is Stage.STOPPED
        assert "Ending the comparison" in app.activity
        await app.send("hello")
        assert "next: hello" in app.activity
        engine.step("late words")
        engine.finish("cancelled")
        await app.until(lambda: len(engine.of(Generate)) == 2)
        assert [m.content for m in engine.of(Generate)[1].messages] == ["hello"]
        assert "late words" not in app.transcript.text
        engine.step("good day")
        engine.finish()
        await app.until(lambda: "good day" in app.transcript.text and not app.chat.busy)


async def test_an_engine_that_dies_ends_the_comparison_and_not_the_chat() -> None:
    engine = ScriptedEngine()
    async with running(engine) as app:
        await app.ready()
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        look = Look(app)
        look.screen.query_one("#question").insert("Why?")
        await app.pilot.press("enter")
        engine.step("Because ")
        engine.die("The engine was ended by SIGKILL.")
        await app.until(lambda: look.comparison.stage is Stage.FAILED)
        await app.until(lambda: "SIGKILL" in look.rows("verdict"))
        await app.pilot.press("escape")
        await app.send("again")
        await app.until(lambda: any(one.trial is None for one in engine.of(Generate)))
        assert engine.starts == 2


async def test_a_side_that_cannot_be_had_says_why() -> None:
    engine = ScriptedEngine(["A first answer.", TEXT])
    async with running(engine) as app:
        look = await opened(app)
        engine._replies.clear()
        await app.pilot.press("enter")
        await app.until(lambda: len(engine.of(Generate)) == 2)
        engine.fail("NotEnoughMemoryError", "The draft model needs 2 GiB and 1 GiB is free.")
        await look.ends()
        assert "needs 2 GiB" in look.rows("verdict")
        assert "needs 2 GiB" not in app.transcript.text


async def test_a_private_chat_keeps_no_comparison(private_home: Path) -> None:
    store = Store(private=True)
    async with running(ScriptedEngine(["Hush.", TEXT, TEXT]), store=store, private=True) as app:
        look = await opened(app)
        await app.pilot.press("enter")
        await look.ends()
        assert [one.conversation for one in app.engine.of(Generate)] == [""] * 3
        await app.pilot.press("ctrl+o")
        await app.until(lambda: isinstance(app.app.screen, ChoiceScreen))
        await app.until(lambda: app.app.screen.query_one("#choices").option_count == 1)
    store.close()
    assert not list(private_home.rglob("*"))


async def test_an_earlier_comparison_is_made_again() -> None:
    async with running(ScriptedEngine(["A first answer.", *[TEXT] * 4])) as app:
        look = await opened(app)
        await app.pilot.press("enter")
        await look.ends()
        rule = Contender(DraftOptions("suffix", 4, policy="fixed"), "rejection")
        look.screen._set(1, rule)
        await app.pilot.pause()
        assert look.comparison.stage is Stage.IDLE
        assert "B suffix · length 4 · rejection" in look.rows("head-b")
        await app.pilot.press("ctrl+o")
        await app.until(lambda: isinstance(app.app.screen, ChoiceScreen))
        await app.until(lambda: app.app.screen.query_one("#choices").option_count == 1)
        shown = str(app.app.screen.query_one("#choices").get_option_at_index(0).prompt)
        assert "Tell me of lighthouses." in shown
        assert "same text" in shown
        await app.pilot.press("enter")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        await app.until(lambda: "B ngram" in look.rows("head-b"))


async def test_a_reply_of_the_chat_goes_first() -> None:
    async with running() as app:
        await app.ready()
        await app.send("hello")
        await app.step("half ")
        await app.pilot.press("f3")
        await app.until(lambda: isinstance(app.app.screen, CompareScreen))
        look = Look(app)
        await app.pilot.press("enter")
        assert "busy with the chat" in str(look.screen.query_one("#question").border_subtitle)
        app.engine.step("a reply")
        app.engine.finish()
        await app.until(lambda: not app.chat.busy)
        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen is app.screen)
        assert "half a reply" in app.transcript.text


async def test_a_chat_without_drafts_is_compared_with_the_automatic_ones() -> None:
    options = EngineOptions(draft=DraftOptions("none"), needs_draft=False)
    async with running(ScriptedEngine(["One."]), options=options) as app:
        look = await opened(app)
        assert [one.draft.spec for one in look.comparison.contenders] == ["none", "auto"]


async def test_steps_of_a_comparison_are_not_recorded(tmp_path: Path) -> None:
    from localspec.stats.recorder import read_steps

    file = tmp_path / "steps.jsonl"
    async with running(ScriptedEngine(["A first answer.", TEXT, TEXT]), record=file) as app:
        look = await opened(app)
        emitted = app.chat.state.reply.emitted
        await app.pilot.press("enter")
        await look.ends()
    assert sum(stats.emitted for stats in read_steps(file)) == emitted


def test_what_the_model_is_asked_with() -> None:
    user, model = (lambda text: ChatMessage("user", text)), (lambda text: ChatMessage("assistant", text))
    talk = (user("one"), model("1"), user("two"), model("2"))
    assert asked(talk, "two") == talk[:3]
    assert asked(talk, "three") == (*talk, user("three"))
    assert asked((), "one") == (user("one"),)
    unanswered = (user("one"), model("1"), user("a\n\nb"))
    assert asked(unanswered, "b") == unanswered
    assert asked(unanswered, "c") == (user("one"), model("1"), user("a\n\nb\n\nc"))


def test_names_of_ways() -> None:
    assert contender_name(Contender(DraftOptions("none"))) == "without drafts"
    fixed = DraftOptions("suffix", 8, policy="fixed")
    assert contender_name(Contender(fixed, "typical")) == "suffix · length 8 · typical, lossy"
    assert contender_name(Contender(DraftOptions("auto", 16), "rejection")) == "auto · up to 16 · rejection"
