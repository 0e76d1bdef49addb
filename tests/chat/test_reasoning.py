"""Replies taken apart into reasoning and answer, however they are cut."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from localspec.chat.template import ChatTemplate
from localspec.chat.thinking import (
    MARKS,
    Reasoning,
    kept_opening,
    opening_in,
    opening_of,
    reasoning_of,
    told_again,
    without_reasoning,
)
from localspec.runtime.vocabulary import vocabulary
from tests.chat.shapes import DEEPSEEK_LIKE, QWEN3_LIKE, assistant, user
from tests.models.vocabularies import bpe_metadata, write

CHANNELS = (
    "<|channel|>analysis<|message|>hm <b>so</b><|end|><|start|>assistant<|channel|>final<|message|>Hello"
)
PIECES = (
    "<think>", "</think>", "\n", " ", "hm", "<", "</", "<th", "ink>", "[THINK]", "[/THINK]", "```\n", "日本",
    "<|channel|>", "analysis", "<|message|>", "<|end|>", "<|start|>assistant", "<|channel|>final<|message|>",
    "<|START_THINKING|>", "<|END_THINKING|>", "<|START_RESPONSE|>", "◁think▷", "◁/think▷",
    "<|channel>thought", "<channel|>",
)  # fmt: skip


@pytest.mark.parametrize("marks", MARKS, ids=lambda marks: marks.begin)
def test_every_pair_of_marks_is_known(marks: object) -> None:
    begin, end = marks.begin, marks.end
    reasoning = reasoning_of(f"{begin}\nhm\n{end}\n\nHello")
    assert (reasoning.blocks, reasoning.answer, reasoning.thinking) == (["\nhm\n"], "Hello", False)
    stopped = reasoning_of(f"{begin}\nhm")
    assert (stopped.blocks, stopped.answer, stopped.thinking) == (["\nhm"], "", True)
    assert opening_of(f"<|im_start|>assistant\n{begin}\n") == begin
    given_by_prompt = reasoning_of(f"hm\n{end}\n\nHello", begin)
    assert (given_by_prompt.blocks, given_by_prompt.answer) == (["hm\n"], "Hello")


@pytest.mark.parametrize(
    ("text", "opening", "blocks", "answer"),
    [
        (CHANNELS, "", ["hm <b>so</b>"], "Hello"),
        ("<|channel|>final<|message|>Hello", "", [], "Hello"),
        ("<|START_THINKING|>a<|END_THINKING|><|START_RESPONSE|>b", "", ["a"], "b"),
        ("<think>a</think>\n<think>b</think>\n\nc", "", ["a", "b"], "c"),
        ("<think>\n\n</think>\n\nHello", "", ["\n\n"], "Hello"),
        # The prompt has opened the block, and the model does it once more.
        ("\n<think>\na</think>b", "<think>", ["\na"], "b"),
        # An answer may speak of marks.
        ("The mark <think>x</think> begins", "", [], "The mark <think>x</think> begins"),
        ("<thinker>", "", [], "<thinker>"),
        ("  Hello", "", [], "  Hello"),
        ("<thi", "", [], "<thi"),
        ("a</think", "<think>", ["a</think"], ""),
        ("", "", [], ""),
        ("", "<think>", [""], ""),
    ],
)
def test_reasoning_stands_before_the_answer(text: str, opening: str, blocks: list[str], answer: str) -> None:
    reasoning = reasoning_of(text, opening)
    assert (reasoning.blocks, reasoning.answer) == (blocks, answer)


def test_an_end_on_a_line_of_its_own_tells_of_a_block_that_a_prompt_has_opened() -> None:
    assert reasoning_of("hm\n</think>\n\nHello").blocks == ["hm\n"]
    assert without_reasoning("hm\n</think>\n\nHello") == "Hello"
    # It is known that the prompt has opened none.
    assert reasoning_of("hm\n</think>\n\nHello", "").blocks == []
    inline = "A block ends with `</think>`, and then comes the answer."
    assert without_reasoning(inline) == inline


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(PIECES), max_size=14).map("".join),
    st.sampled_from(["", "<think>", "<|START_THINKING|>"]),
    st.data(),
)
def test_cuts_make_no_difference(text: str, opening: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=12)))
    whole = reasoning_of(text, opening)
    reasoning = Reasoning(opening)
    before = ""
    for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        reasoning.add(text[start:end])
        shown = "\0".join([*reasoning.blocks, reasoning.answer])
        # What is shown once does not change.
        assert shown.startswith(before.rstrip("\0"))
        before = shown
    reasoning.finish()
    assert (reasoning.blocks, reasoning.answer, reasoning.thinking) == (
        whole.blocks,
        whole.answer,
        whole.thinking,
    )


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
@example(" <")
def test_text_without_marks_is_the_answer(text: str) -> None:
    if not any(mark in text for marks in MARKS for mark in (marks.begin, marks.end, *marks.around)):
        assert reasoning_of(text).answer == text
        assert without_reasoning(text) == text


def test_a_template_gets_channels_apart_that_it_writes_by_itself() -> None:
    # As that of gpt-oss: it refuses its own marks within a message.
    source = (
        "{% for m in messages %}"
        "{% if '<|channel|>' in m.content %}{{ raise_exception('channels') }}{% endif %}"
        "[{{ m.role }}{% if m.thinking %}|{{ m.thinking }}{% endif %}|{{ m.content }}]{% endfor %}"
    )
    stopped = assistant("<|channel|>analysis<|message|>and")
    assert ChatTemplate(source).render([user("Hi"), assistant(CHANNELS), stopped]) == (
        "[user|Hi][assistant|hm <b>so</b>|Hello][assistant|and|]"
    )
    # Marks that are plain text for the template stay where they are.
    kept = "[THINK]hm[/THINK]Hello"
    assert kept in ChatTemplate(source).render([user("Hi"), assistant(kept)])


CHANNEL_TOKENS = ("<|channel|>", "<|message|>", "<|start|>", "<|end|>")


@pytest.mark.parametrize(
    ("special", "shown"),
    [
        (("<|end|>", "<s>", "[THINK]", "[/THINK]"), ("[THINK]", "[/THINK]")),
        (("<|x|>", "<s>", "[THINK]"), ()),
        (("<|return|>", "<|call|>", *CHANNEL_TOKENS), CHANNEL_TOKENS),
        # Without channels it ends a turn.
        (("<|x|>", "<s>", "<|end|>"), ()),
    ],
)
def test_control_tokens_are_shown_where_they_mark_reasoning(
    tmp_path: Path, special: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    with vocabulary(write(tmp_path / "v.gguf", bpe_metadata(special=special))) as model:
        pieces = [model.token_bytes(token).decode() for token in range(len(special))]
    assert tuple(piece for piece in pieces if piece) == shown


@pytest.mark.parametrize(
    ("text", "opening", "told"),
    [
        ("First idea.", "<think>", "<think>First idea.</think>"),
        ("\n<think>\nFirst idea.", "<think>", "\n<think>\nFirst idea.</think>"),
        ("First idea.\n</think>\n\nHello", "<think>", "First idea.\n</think>\n\nHello"),
        # Of other marks the end alone tells nothing.
        ("hm[/THINK]Hello", "[THINK]", "[THINK]hm[/THINK]Hello"),
        ("hm", "[THINK]", "[THINK]hm[/THINK]"),
        ("Hello", "", "Hello"),
        ("Hello", None, "Hello"),
        ("<think>\nstopped", "", "<think>\nstopped"),
    ],
)
def test_a_block_that_the_prompt_had_opened_is_whole_in_later_prompts(
    text: str, opening: str | None, told: str
) -> None:
    assert told_again(text, opening) == told
    again = reasoning_of(told)
    assert again.answer.strip() == reasoning_of(text, opening).answer.strip()


def test_templates_leave_out_a_reply_that_was_stopped_within_its_reasoning() -> None:
    for source in (QWEN3_LIKE, DEEPSEEK_LIKE):
        turns = [user("Hi"), assistant(told_again("An idea.", "<think>")), user("Go on")]
        shown = ChatTemplate(source).render(turns)
        assert "Hi" in shown
        assert "Go on" in shown
        assert "An idea." not in shown


def test_what_is_kept_of_an_opening_is_found_again() -> None:
    for text, opening in (("hm", "<think>"), ("hm\n</think>\n\nHello", ""), ("hm</think>Hello", "<think>")):
        assert opening_in(kept_opening(text, opening)) == opening
    assert kept_opening("Hello", "") == {}
    for stats in (None, {}, {"reasoning": 1}, {"reasoning": {"opening": 3}}):
        assert opening_in(stats) is None
