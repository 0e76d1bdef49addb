"""Reasoning in the transcript: what is shown while it grows, folded and unfolded, and what is kept of it."""

from __future__ import annotations

from localspec.chat.store import Store
from localspec.chat.thinking import opening_in
from localspec.messages import Generate, PrefillProgress
from tests.tui.helpers import Running, running
from tests.tui.scripted import ScriptedEngine
from tests.tui.test_compare import opened
from tui.reasoning import Span, answer_of, span_in

THOUGHT = "<think>\nFirst idea.\n\nSecond idea, which is better.\n</think>\n\n"
ANSWER = "The **answer** is 7."


async def think(app: Running, text: str = THOUGHT, opening: str = "") -> None:
    """Ask something, and let the model think, three tokens and 90 ms a step of ten characters."""
    await app.ready()
    await app.send("a question")
    await app.until(lambda: app.chat.busy)
    if opening:
        request = app.engine.of(Generate)[-1]
        app.engine.put(PrefillProgress(request.id, 9, 9, 0, 0.05, opening))
    for start in range(0, len(text), 10):
        app.engine.step(text[start : start + 10], drafted=3, accepted=2, ms=90)
    steps = -(-len(text) // 10)
    await app.until(lambda: app.chat.state.reply.steps == steps)


async def answer(app: Running, text: str = ANSWER) -> None:
    """Let the model answer, and end the reply."""
    app.engine.step(text)
    app.engine.finish()
    await app.until(lambda: not app.chat.busy)


async def test_reasoning_is_a_line_while_it_grows_and_folded_when_it_has_ended() -> None:
    async with running() as app:
        await think(app, THOUGHT[:30])
        assert "▸ Thinking  0 s · 9 tokens · alt+t" in app.transcript.text
        assert "▎ First idea." in app.transcript.text
        assert "<think>" not in app.transcript.text
        # Its last two rows are shown, and no more.
        for word in ("one", "two", "three"):
            await app.step(f"\n{word}")
        assert "First idea" not in app.transcript.text
        assert "▎ two\n  ▎ three" in app.transcript.text
        await app.step("\n</think>\n\n")
        await app.step(ANSWER)
        assert "▸ Thought for 0.3 s (13 tokens)\n\n  The answer is 7." in app.transcript.text
        assert "three" not in app.transcript.text
        app.engine.finish()
        await app.until(lambda: not app.chat.busy)
        # What is kept and sent is the whole of it.
        assert app.chat.conversation.messages[-1].text.startswith("<think>\nFirst idea")


async def test_killed_within_it_what_was_written_is_known_as_reasoning() -> None:
    store = Store()
    async with running(store=store) as app:
        await think(app, "First idea.\n", opening="<think>")
        app.chat.conversation._saved_at = float("-inf")
        await app.step("Second")
        # As it stands on the disk now, nothing more being written.
        row = store.messages(store.conversations()[0].id)[-1]
        assert row.status == "streaming"
        assert row.content.endswith("Second")
        assert opening_in(row.stats) == "<think>"
        app.engine.finish()
        await app.until(lambda: not app.chat.busy)
    store.close()


async def test_a_key_unfolds_it_while_it_grows_and_afterwards() -> None:
    async with running() as app:
        await app.ready()
        await app.pilot.press("alt+t")
        assert "no reasoning in view" in app.activity
        await think(app, THOUGHT[:30])
        await app.pilot.press("alt+t")
        assert "▾ Thinking" in app.transcript.text
        await app.step("\nfurther")
        await app.step("\nand further")
        assert "▎ First idea." in app.transcript.text
        assert "▎ and further" in app.transcript.text
        await app.step("</think>")
        await answer(app)
        assert "▾ Thought for" in app.transcript.text
        assert "▎ further\n  ▎ and further\n\n  The answer" in app.transcript.text
        await app.pilot.press("alt+t")
        assert "▸ Thought for" in app.transcript.text
        assert "further" not in app.transcript.text


async def test_all_reasoning_is_unfolded_that_of_later_replies_too() -> None:
    async with running(ScriptedEngine([THOUGHT + ANSWER, THOUGHT + ANSWER])) as app:
        await app.ready()
        for count in (1, 2):
            await app.send("a question")
            await app.until(lambda count=count: app.transcript.text.count("tok/s") == count)
            if count == 1:
                await app.pilot.press("alt+a")
                assert "Reasoning is shown" in app.activity
        assert app.transcript.text.count("▾ Thought") == app.transcript.text.count("Second idea") == 2
        await app.pilot.press("alt+a")
        assert app.transcript.text.count("▸ Thought") == 2
        assert "Second idea" not in app.transcript.text


async def test_a_click_on_its_first_row_unfolds_it() -> None:
    async with running(ScriptedEngine([THOUGHT + ANSWER])) as app:
        await app.ready()
        await app.send("a question")
        await app.until(lambda: "tok/s" in app.transcript.text)
        rows = app.transcript.text.split("\n")
        (row,) = [number for number, text in enumerate(rows) if "▸ Thought" in text]
        await app.pilot.click("#transcript", offset=(6, row + 1))
        await app.until(lambda: "Second idea" in app.transcript.text)
        await app.pilot.click("#transcript", offset=(6, row + 1))
        await app.until(lambda: "Second idea" not in app.transcript.text)


async def test_unfolding_keeps_the_first_row_where_it_is() -> None:
    long = "<think>\n" + "\n".join(f"idea {number}" for number in range(100)) + "\n</think>\n\n"
    async with running(ScriptedEngine([long + "\n\n".join(["An answer."] * 4)])) as app:
        await app.ready()
        await app.send("a question")
        await app.until(lambda: "tok/s" in app.transcript.text)
        before = app.transcript.scroll_offset.y
        await app.pilot.press("alt+t")
        assert app.transcript.scroll_offset.y == before
        await app.pilot.press("ctrl+end")
        assert "idea 99" in app.transcript.text
        await app.pilot.press("alt+t")
        await app.until(lambda: "idea 99" not in app.transcript.text)


async def test_a_prompt_that_opens_the_block_is_known() -> None:
    async with running() as app:
        await think(app, "First idea.\n", "<think>")
        assert "▸ Thinking" in app.transcript.text
        await app.step("</think>\n\n")
        await answer(app)
        assert "▸ Thought for" in app.transcript.text
        assert "First idea" not in app.transcript.text
        kept = app.chat.conversation.messages[-1]
        assert opening_in(kept.stats) == "<think>"
        assert answer_of(kept) == ANSWER
        await app.pilot.press("ctrl+y")
        assert app.app.clipboard == ANSWER


async def test_a_reply_that_ends_within_its_reasoning_says_so() -> None:
    async with running() as app:
        await think(app, "First idea.\n", "<think>")
        await app.pilot.press("escape")
        await app.until(lambda: not app.chat.busy)
        assert "▸ Thought for 0.2 s (6 tokens), not to the end" in app.transcript.text
        await app.pilot.press("ctrl+y")
        assert "no reply to copy" in app.activity


async def test_an_earlier_chat_shows_its_reasoning_folded_with_its_time() -> None:
    store = Store()
    async with running(store=store) as app:
        await think(app)
        await answer(app)
        shown = app.transcript.text
        assert "Thought for 0.5 s (18 tokens)" in shown
        number = app.chat.conversation.id
    async with running(store=store, conversation=number) as app:
        await app.until(lambda: "Thought" in app.transcript.text)
        assert app.transcript.text == shown
        await app.pilot.press("alt+t")
        assert "▎ Second idea, which is better." in app.transcript.text
    # One that was imported, say.
    row = store.create(model="m", title="other")
    store.add_message(row.id, "user", "a question")
    store.add_message(row.id, "assistant", f"an idea\n</think>\n\n{ANSWER}")
    async with running(store=store, conversation=row.id) as app:
        await app.until(lambda: "Thought for – (– tokens)" in app.transcript.text)
        assert "an idea" not in app.transcript.text
    store.close()


async def test_gpt_oss_channels_are_no_part_of_the_answer() -> None:
    reply = "<|channel|>analysis<|message|>An idea.<|end|><|start|>assistant<|channel|>final<|message|>Yes."
    async with running(ScriptedEngine([reply], characters=3)) as app:
        await app.ready()
        await app.send("a question")
        await app.until(lambda: "tok/s" in app.transcript.text)
        assert "▸ Thought for" in app.transcript.text
        assert "\n  Yes.\n" in app.transcript.text
        assert "<|" not in app.transcript.text


async def test_empty_reasoning_is_not_shown() -> None:
    async with running(ScriptedEngine(["<think>\n\n</think>\n\nYes."])) as app:
        await app.ready()
        await app.send("a question")
        await app.until(lambda: "tok/s" in app.transcript.text)
        assert "Thought" not in app.transcript.text
        assert "question\n\n  Yes." in app.transcript.text


def test_whatever_the_stats_of_an_imported_chat_say() -> None:
    for stats in (None, {}, {"reasoning": 1}, {"reasoning": {"opening": 3, "blocks": "x"}}):
        assert opening_in(stats) is None
        assert span_in(stats, 0) == Span()
    odd = {"reasoning": {"blocks": [1, {"seconds": "x", "tokens": None}, {"seconds": 2, "tokens": 3}]}}
    assert [span_in(odd, number) for number in range(4)] == [Span(), Span(), Span(2.0, 3), Span()]


async def test_two_ways_compared_fold_their_reasoning() -> None:
    async with running(ScriptedEngine([THOUGHT + ANSWER] * 3, burst=4)) as app:
        look = await opened(app)
        await app.pilot.press("enter")
        await look.ends()
        for side in "ab":
            assert "▸ Thought for – (– tokens)\n\n  The answer is 7." in look.answer(side)


async def test_reasoning_that_the_prompt_opened_and_nobody_closed_is_no_answer_in_the_next_prompt() -> None:
    store = Store()
    async with running(store=store) as app:
        await think(app, "First idea.\n", "<think>")
        await app.pilot.press("escape")
        await app.until(lambda: not app.chat.busy)
        await app.send("go on")
        await app.until(lambda: app.chat.busy)
        said = [message.content for message in app.engine.of(Generate)[-1].messages]
        assert said == ["a question", "<think>First idea.\n</think>", "go on"]
        # The app ends in the middle of the next one.
        app.engine.put(PrefillProgress(app.engine.of(Generate)[-1].id, 9, 9, 0, 0.05, "<think>"))
        await app.step("Second idea.")
        number = app.chat.conversation.id
    async with running(store=store, conversation=number) as app:
        assert [message.content for message in app.chat.conversation.history()] == [
            "a question",
            "<think>First idea.\n</think>",
            "go on",
            "<think>Second idea.</think>",
        ]
        # What is kept is what was said.
        assert app.chat.conversation.messages[1].text == "First idea.\n"
    store.close()
