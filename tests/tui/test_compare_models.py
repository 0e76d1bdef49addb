"""Two models side by side: each is loaded for its turns, and the chat's own comes back."""

from __future__ import annotations

from pathlib import Path

from localspec.chat.comparisons import Comparisons
from localspec.messages import Generate, Load, Weigh
from localspec.types import DraftOptions
from tests.tui.helpers import running
from tests.tui.scripted import ScriptedEngine
from tests.tui.test_compare import OTHER, TEXT, opened
from tui.compare import Stage
from tui.compare_runs import Contender, OtherModel
from tui.state import Phase

GUEST = Contender(DraftOptions("none"), model=OtherModel("guest", Path("guest.gguf")))


def loads(engine: ScriptedEngine) -> list[str]:
    return [command.path for command in engine.of(Load)]


async def test_another_model_takes_its_turn_and_the_chats_own_comes_back() -> None:
    engine = ScriptedEngine(["A first answer.", TEXT, OTHER, OTHER, TEXT, "And more."])
    async with running(engine) as app:
        look = await opened(app)
        look.screen._set(1, GUEST)
        await app.pilot.pause()
        assert "B guest · without drafts" in look.rows("head-b")
        await app.pilot.press("enter")
        await look.ends()
        assert loads(engine) == ["model.gguf", "guest.gguf", "model.gguf"]
        assert engine.of(Load)[1].options.draft.spec == "none"
        assert engine.of(Load)[2].options.draft == engine.of(Load)[0].options.draft
        words = look.rows("verdict")
        assert "Two models: each says its own" in words
        assert "loaded 2 times" in words
        assert not engine.of(Weigh)

        await app.pilot.press("ctrl+r")
        await look.ends()
        # The second round begins with the guest, so the chat's own is there at the end.
        assert loads(engine)[3:] == ["guest.gguf", "model.gguf"]
        (kept,) = Comparisons().newest()
        assert [way.model for way in kept.ways] == ["", "guest"]

        await app.pilot.press("escape")
        await app.until(lambda: app.app.screen is app.screen)
        assert app.chat.setup.name == "scripted"
        await app.send("Go on.")
        await app.until(lambda: "And more." in app.transcript.text and not app.chat.busy)
        assert len(engine.of(Load)) == 5


async def test_leaving_while_a_guest_answers_brings_the_chats_model_back_first() -> None:
    engine = ScriptedEngine(["A first answer."])
    async with running(engine) as app:
        look = await opened(app)
        look.screen._set(0, GUEST)
        await app.pilot.press("enter")
        await app.until(lambda: len(engine.of(Generate)) == 2)
        engine.step("I am the guest")
        await app.until(lambda: "guest" in look.answer("a"))
        comparison = look.comparison
        await app.pilot.press("f3")
        await app.until(lambda: app.app.screen is app.screen)
        await app.send("hello")
        await app.until(lambda: len(engine.of(Generate)) == 3)
        assert comparison.stage is Stage.STOPPED
        assert loads(engine) == ["model.gguf", "guest.gguf", "model.gguf"]
        assert engine.of(Generate)[-1].messages[-1].content == "hello"
        engine.step("good day")
        engine.finish()
        await app.until(lambda: "good day" in app.transcript.text and not app.chat.busy)


async def test_a_guest_that_cannot_be_loaded_says_why() -> None:
    engine = ScriptedEngine(["A first answer.", TEXT, "And more."])
    engine.refuses["guest.gguf"] = "The file guest.gguf is truncated; fetch it again."
    async with running(engine) as app:
        look = await opened(app)
        look.screen._set(1, GUEST)
        await app.pilot.press("enter")
        await look.ends()
        assert look.comparison.stage is Stage.FAILED
        assert "guest.gguf is truncated" in look.rows("verdict")
        assert "truncated" not in app.transcript.text
        await app.pilot.press("escape")
        await app.send("Go on.")
        await app.until(lambda: "And more." in app.transcript.text and not app.chat.busy)
        assert app.chat.setup.name == "scripted"


async def test_an_engine_that_dies_with_a_guest_comes_back_with_the_chats_model() -> None:
    engine = ScriptedEngine(["A first answer."])
    async with running(engine) as app:
        look = await opened(app)
        look.screen._set(0, GUEST)
        await app.pilot.press("enter")
        await app.until(lambda: len(engine.of(Generate)) == 2)
        engine.die("The engine was ended by SIGKILL.")
        await look.ends()
        assert look.comparison.stage is Stage.FAILED
        assert app.chat.state.phase is Phase.DOWN
        await app.pilot.press("escape")
        await app.send("again")
        await app.until(lambda: len(engine.of(Generate)) == 3)
        assert loads(engine) == ["model.gguf", "guest.gguf", "model.gguf"]


async def test_esc_while_a_guest_is_loaded() -> None:
    engine = ScriptedEngine(["A first answer."])
    async with running(engine) as app:
        look = await opened(app)
        look.screen._set(0, GUEST)
        engine._load = False
        await app.pilot.press("enter")
        await app.until(lambda: "Loading guest" in look.rows("verdict"))
        await app.pilot.press("escape")
        assert "Stopping" in look.rows("verdict")
        engine._load = True
        engine.loaded()
        await look.ends()
        assert look.comparison.stage is Stage.STOPPED
        assert loads(engine) == ["model.gguf", "guest.gguf", "model.gguf"]
        assert app.chat.ready
