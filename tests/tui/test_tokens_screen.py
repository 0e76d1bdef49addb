"""The token view with a scripted engine: what it shows, what it asks, and how one moves in it."""

from __future__ import annotations

import pytest

from localspec.messages import (
    Cancel,
    EmittedToken,
    Generate,
    Score,
    Spell,
    Spelled,
    Spelling,
    Step,
)
from localspec.types import StepStats
from tests.tui.helpers import running
from tests.tui.token_engine import (
    AT,
    DAWN,
    DOT,
    END,
    FLOW,
    HOUSE,
    LAMP,
    LINE,
    NIGHT,
    OF,
    THE,
    THEE,
    TURNS,
    WORDS,
    Look,
    TokenEngine,
    asked,
    looking,
)
from tui.keys import TOKEN_ACTIONS
from tui.screens.help import help_sections
from tui.token_reading import Figures


async def test_the_last_reply_is_shown_with_its_signs_and_scored_once() -> None:
    async with looking() as look:
        await look.open()
        await look.until_scored()
        assert look.text == FLOW
        assert look.rows("legend") == "›accepted 4 »bonus 1 ≠correction 2 no draft 2 [×rejected] 3"
        assert "9 tokens in 5 passes" in look.rows("tokens-title")
        (score,) = look.engine.of(Score)
        assert score.tokens == (THE, LAMP, OF, THEE, HOUSE, TURNS, NIGHT, DOT, END)
        assert score.also == (-1, -1, -1, -1, -1, -1, AT, LINE, -1)
        assert score.request.messages == look.engine.of(Generate)[0].messages
        await look.press("escape")
        await look.app.until(lambda: look.app.app.screen is look.app.screen)
        assert look.app.prompt.has_focus
        await look.open()
        await look.until_scored()
        await look.press("f4")
        await look.app.until(lambda: look.app.app.screen is look.app.screen)
        assert len(look.engine.of(Score)) == 1


async def test_all_about_the_token_under_the_cursor() -> None:
    async with looking() as look:
        await look.open()
        await look.until_scored()
        assert look.details.startswith("The token 1 of 9 the model's own, nothing was drafted here id 0")
        assert "pass 1: without a draft" in look.details
        assert "log-probability -0.25 78 %, the likeliest" in look.details
        assert "likeliest here: The -0.25 (78 %) ‹E2 82› -2.00 (14 %) ·other0 -3.00 (5.0 %)" in look.details
        assert "one wide pass" in look.details
        await look.press("right", "right")
        assert look.details.startswith("›·of token 3 of 9 drafted, and accepted by the model")
        assert "3 tokens drafted by ngram after a match of 3 3 accepted this is its 2nd" in look.details
        assert "confidence 0.80" in look.details
        await look.press("n")
        assert look.details.startswith("≠·night token 7 of 9 the model's own, in place of a drafted token")
        await look.press("left", "left")
        assert look.details.startswith("×·at for token 7 drafted, and rejected by the model")
        assert "-9.00 < 0.1 %, less likely than those below the reply has ·night -0.25 (78 %)" in look.details
        assert "this is its 2nd confidence 0.80" in look.details
        await look.press("right")
        assert look.details.startswith("×·dawn for token 8")
        assert "drafted after a rejected token, and dropped with it" in look.details
        assert "log-probability – it was not weighed" in look.details
        assert "one wide pass" not in look.details


async def test_moving_by_token_row_draft_and_correction() -> None:
    async with looking(size=(40, 24)) as look:
        await look.open()
        await look.until_scored()

        def at() -> int | None:
            return look.tokens.item.id if look.tokens.item else None

        visited = []
        for key in ("d", "d", "d", "d", "D", "D", "n", "n", "n", "p", "p", "home", "left", "end", "right"):
            await look.press(key)
            visited.append(at())
        drafts, back, corrections = [LAMP, TURNS, LINE, LINE], [TURNS, LAMP], [NIGHT, DOT, DOT]
        assert visited == [*drafts, *back, *corrections, NIGHT, NIGHT, THE, THE, END, END]
        rows = look.text.split("\n")
        assert len(rows) == 2
        await look.press("up", "up")
        assert at() == THE
        await look.press("down")
        assert at() is not None
        assert WORDS[at() or 0].strip() in rows[1]
        await look.press("pageup")
        assert at() == THE
        await look.press("pagedown", "pagedown")
        assert at() == END


async def test_rejected_tokens_can_be_hidden() -> None:
    async with looking() as look:
        await look.open()
        await look.until_scored()
        await look.press("n", "left")
        assert look.details.startswith("×·dawn")
        await look.press("g")
        assert look.text == "The›·lamp›·of›·the»·house›·turns≠·night≠.<end>"
        assert look.details.startswith("≠·night")
        assert "hidden" in look.rows("legend")
        await look.press("left")
        assert look.details.startswith("›·turns")
        await look.press("g")
        assert look.text == FLOW
        assert look.details.startswith("›·turns")


async def test_the_mouse_points_and_puts_the_cursor() -> None:
    async with looking() as look:
        await look.open()
        await look.until_scored()
        x = FLOW.index("house") + look.tokens.content_region.x - look.tokens.region.x
        await look.app.pilot.hover("#tokens", offset=(x, 0))
        await look.app.until(lambda: look.details.startswith("»·house"))
        await look.app.pilot.hover("#details", offset=(1, 1))
        await look.app.until(lambda: look.details.startswith("The"))
        await look.app.pilot.click("#tokens", offset=(x, 0))
        await look.app.until(lambda: look.tokens.cursor == 4)
        await look.app.pilot.hover("#details", offset=(1, 1))
        assert look.details.startswith("»·house token 5 of 9 the model's own, after a draft that was right")


async def test_a_running_reply_is_followed_and_scored_at_its_end() -> None:
    engine = TokenEngine()
    async with running(engine) as app:
        await app.ready()
        look = Look(app, engine)
        await look.open()
        assert "There is no reply yet" in " ".join(look.text.split())
        await look.press("escape")
        await app.until(lambda: app.app.screen is app.screen)
        await asked(app)
        await look.open()
        assert "The prompt is being read" in " ".join(look.text.split())
        engine.say((), THE)
        engine.say((LAMP,), OF)
        await app.until(lambda: look.text == "The›·lamp»·of")
        assert look.details.startswith("»·of token 3 of 3")
        assert "computed when the reply is whole" in look.details
        # Away from the end it is not followed, at the end it is.
        await look.press("home")
        engine.say((), THEE)
        await app.until(lambda: look.text == "The›·lamp»·of·the")
        assert look.details.startswith("The token 1 of 4")
        await look.press("end")
        engine.say((), HOUSE)
        await app.until(lambda: look.text == "The›·lamp»·of·the·house")
        assert look.details.startswith("·house token 5 of 5")
        assert not engine.of(Score)
        engine.finish()
        await look.until_scored()
        assert "log-probability -0.25" in look.details
        assert app.chat.conversation.last_reply() == "The lamp of the house"


async def test_a_message_that_waits_goes_before_the_figures() -> None:
    engine = TokenEngine()
    async with running(engine) as app:
        await app.ready()
        await asked(app)
        engine.say((), THE)
        await app.send("And then?")
        look = Look(app, engine)
        await look.open()
        engine.finish()
        await app.until(lambda: len(engine.of(Generate)) == 2)
        await app.pilot.pause()
        assert not engine.of(Score)
        assert look.rows("tokens-title").startswith("localspec tokens reply 2 of 2")


async def test_leaving_ends_the_scoring_and_the_chat_goes_on() -> None:
    async with looking(holds=True) as look:
        await look.open()
        await look.app.until(lambda: "reading the prompt, 10 of 20" in look.details)
        look.engine.release(3)
        await look.app.until(lambda: look.reading.figures is Figures.SCORING)
        await look.press("right")
        assert "log-probability -0.25" in look.details
        await look.press("end")
        assert "being computed, 3 of 9 tokens" in look.details
        await look.press("escape")
        await look.app.until(lambda: look.app.app.screen is look.app.screen and look.app.chat.ready)
        assert look.engine.of(Cancel)
        assert look.app.chat.tokens.records[-1].scores == []
        await asked(look.app, "Go on.")
        look.engine.say((), THE)
        look.engine.finish()
        await look.app.until(lambda: not look.app.chat.busy)
        assert look.app.chat.conversation.last_reply() == "The"


async def test_earlier_replies_are_scored_only_when_asked_for() -> None:
    async with looking() as look:
        await asked(look.app)
        look.engine.say((), DAWN)
        look.engine.finish()
        await look.app.until(lambda: not look.app.chat.busy)
        await look.open()
        await look.until_scored()
        assert look.text == "·dawn"
        await look.press("[")
        await look.app.until(lambda: look.text == FLOW)
        assert "reply 1 of 2" in look.rows("tokens-title")
        assert "– s has the engine compute it" in look.details
        assert len(look.engine.of(Score)) == 1
        await look.press("s")
        await look.until_scored()
        assert len(look.engine.of(Score)) == 2
        await look.press(",")
        assert look.text == FLOW
        await look.press(".")
        await look.app.until(lambda: look.text == "·dawn")
        assert "log-probability -0.25" in look.details
        assert len(look.engine.of(Score)) == 2


async def test_replies_of_earlier_sessions_say_that_they_were_not_recorded() -> None:
    async with looking() as look:
        conversation = look.app.chat.conversation.id
        assert conversation is not None
        look.app.chat.tokens._records.clear()
        await look.open()
        assert "was not recorded" in " ".join(look.text.split())
        assert look.details == ""
        await look.press("n", "d", "g", "s", "up", "down", "left", "right", "home", "end", "pageup", "[", "]")
        assert not look.engine.of(Score)


async def test_a_reply_of_a_conversation_that_was_left_is_found_again() -> None:
    async with looking() as look:
        first = look.app.chat.conversation.id
        assert first is not None
        look.app.chat.new()
        look.app.chat.open(first)
        await look.open()
        await look.until_scored()
        assert look.text == FLOW


async def test_tokens_of_another_model_are_not_guessed_at() -> None:
    async with looking() as look:
        look.app.chat.tokens.records[-1].path = "another.gguf"
        await look.open()
        assert "scripted wrote this reply" in " ".join(look.text.split())
        assert not look.engine.of(Spell)
        assert not look.engine.of(Score)


async def test_an_engine_that_does_not_spell_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tui.token_reading.AGAIN_S", 0.01)
    async with looking() as look:
        look.engine.mute = True
        await look.open()
        await look.app.until(lambda: "not said how these tokens" in " ".join(look.text.split()))
        look.engine.mute = False
        await look.app.until(lambda: look.text == FLOW)


async def test_a_scoring_that_fails_says_why_and_can_be_asked_for_again() -> None:
    async with looking() as look:
        look.engine.fails = "The prompt does not fit."
        await look.open()
        await look.app.until(lambda: "– The prompt does not fit." in look.details)
        assert len(look.engine.of(Score)) == 1
        look.engine.fails = ""
        await look.press("s")
        await look.until_scored()


async def test_an_engine_that_dies_while_it_scores_is_told_of() -> None:
    async with looking(holds=True) as look:
        await look.open()
        await look.app.until(lambda: look.reading.figures is Figures.READING)
        look.engine.die("The engine was ended by SIGKILL.")
        await look.app.until(lambda: "ended by SIGKILL" in look.details)
        assert not look.app.chat.busy
        await look.press("escape")
        await look.app.until(lambda: look.app.app.screen is look.app.screen)


@pytest.mark.parametrize("size", [(40, 10), (60, 20), (80, 24), (160, 45), (250, 60)])
async def test_every_size_shows_the_whole_reply_and_its_signs(size: tuple[int, int]) -> None:
    async with looking(size=size) as look:
        await look.open()
        await look.until_scored()
        assert look.text.replace("\n", "") == FLOW
        for sign in ("›accepted", "»bonus", "≠correction", "no draft", "[×rejected"):
            assert sign in look.rows("legend") or size[0] < 60
        assert "log-probability" in look.details
        assert max(len(row) for row in look.text.split("\n")) <= size[0]
        await look.app.pilot.resize_terminal(100, 30)
        await look.app.until(lambda: look.text == FLOW)
        look.app.app.theme = "localspec-light"
        await look.press("right")
        assert look.details.startswith("›·lamp")


async def test_signs_and_styles_tell_kinds_apart_without_colour() -> None:
    async with looking() as look:
        await look.open()
        await look.until_scored()
        await look.press("end")

        def looks(text: str) -> tuple[bool, bool, bool, bool]:
            (style,) = {s.style for s in look.tokens.render_line(0) if s.text == text and s.style}
            return bool(style.bold), bool(style.underline), bool(style.strike), bool(style.reverse)

        assert looks("lamp") == (False, True, False, False)
        assert looks("house") == (True, False, False, False)
        assert looks("night") == (True, False, False, False)
        assert looks("dawn") == (False, False, True, False)
        assert looks("The") == (False, False, False, False)
        assert looks("<end>") == (False, False, False, True)


async def test_escape_sequences_in_tokens_are_shown() -> None:
    engine = TokenEngine()
    async with running(engine) as app:
        await app.ready()
        await asked(app)
        app.chat.tokens.spelled(Spelled("model.gguf", (50,), (Spelling("\x1b[31m\u202e日"),)))
        engine.put(Step(engine.of(Generate)[0].id, "", (EmittedToken(50, "bonus"),), _stats(engine)))
        engine.finish()
        await app.until(lambda: not app.chat.busy)
        look = Look(app, engine)
        engine.holds = True
        await look.open()
        assert look.text == "␛[31m‹U+202E›日"
        assert "\x1b" not in look.details + look.text


def _stats(engine: TokenEngine) -> StepStats:
    return engine._step(1, "", 0, 0, 8.0).stats


def test_help_has_every_key_of_the_view() -> None:
    (section,) = [pairs for heading, pairs in help_sections() if heading.startswith("Tokens")]
    titles = {title for _, title in section}
    assert {action.title for action in TOKEN_ACTIONS} <= titles
