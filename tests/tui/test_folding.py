"""Long questions in the transcript: folded at first, and unfolded by the key and the click of all folds."""

from __future__ import annotations

import time

from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine
from tui.folding import UNFOLDED_CHARACTERS, UNFOLDED_LINES, folded, is_long, unfolded

LONG = "\n".join(f"line {number}" for number in range(100))
GAP = "⋯ 88 more lines ⋯"


async def asked(app: Running, text: str) -> None:
    """Ask, and wait for the whole reply."""
    await app.ready()
    app.prompt.text = text
    await app.pilot.press("enter")
    await app.until(lambda: "tok/s" in app.transcript.text and not app.chat.busy)


def row_of(app: Running, text: str) -> int:
    """The row of the view that has a text."""
    rows = [app.transcript.render_line(y).text for y in range(app.transcript.size.height)]
    (row,) = [number for number, one in enumerate(rows) if text in one]
    return row


async def test_a_key_unfolds_a_long_question_and_folds_it_again() -> None:
    async with running(ScriptedEngine(["Yes."])) as app:
        await asked(app, LONG)
        assert "▸ 100 lines · alt+t" in app.transcript.text
        assert GAP in app.transcript.text
        assert "line 50" not in app.transcript.text
        await app.pilot.press("alt+t")
        assert "▾ 100 lines" in app.transcript.text
        assert GAP not in app.transcript.text
        shown = [row.strip(" ▌") for row in app.transcript.text.split("\n")]
        assert [row for row in shown if row.startswith("line ")] == LONG.split("\n")
        # From anywhere within it, the key leads back to its beginning.
        await app.pilot.press("pagedown", "alt+t")
        assert "▸ 100 lines" in app.transcript.text
        assert row_of(app, "▸ 100 lines") >= 0


async def test_a_click_on_the_heading_or_on_what_is_left_out_unfolds_it() -> None:
    async with running(ScriptedEngine(["Yes."])) as app:
        await asked(app, LONG)
        for place in ("▸ 100 lines", GAP):
            row = row_of(app, place)
            await app.pilot.click("#transcript", offset=(6, row + 1))
            await app.until(lambda: "line 50" in app.transcript.text)
            await app.pilot.press("ctrl+home")
            await app.pilot.click("#transcript", offset=(6, row_of(app, "▾ 100 lines") + 1))
            await app.until(lambda: "line 50" not in app.transcript.text)


async def test_the_selected_message_is_meant_else_the_last_in_view() -> None:
    async with running(ScriptedEngine(["<think>\nan idea\n</think>\n\nYes."])) as app:
        await asked(app, LONG)
        await app.pilot.press("alt+t")
        assert "an idea" in app.transcript.text
        assert "line 50" not in app.transcript.text
        await app.pilot.press("alt+up", "alt+up")
        assert app.transcript.selected == 0
        await app.pilot.press("alt+t")
        assert "line 50" in app.transcript.text
        assert "an idea" in app.transcript.text


async def test_a_megabyte_unfolds_as_far_as_can_be_drawn() -> None:
    text = "word " * 200_000
    async with running(ScriptedEngine(["Yes."])) as app:
        await asked(app, "short")
        app.transcript.ask(text, app.chat.conversation.messages[-1])
        began = time.monotonic()
        await app.pilot.press("ctrl+home", "alt+t")
        assert time.monotonic() - began < 5
        out = len(text) - UNFOLDED_CHARACTERS
        assert f"⋯ {out:,} more characters ⋯" in app.transcript.text


def test_what_is_shown_is_bounded_and_what_is_left_out_is_counted() -> None:
    assert not is_long("\n" * 23)
    assert is_long("\n" * 24)
    assert is_long("x" * 4001)
    assert folded(LONG) == (
        "\n".join(f"line {number}" for number in range(8)),
        GAP,
        "\n".join(f"line {number}" for number in range(96, 100)),
    )
    assert unfolded(LONG) == (LONG, "", "")
    head, gap, tail = unfolded("a\n" * 5000)
    assert (head.count("\n") + 1, gap, tail) == (UNFOLDED_LINES, "⋯ 6,001 more characters ⋯", "")
