from __future__ import annotations

import pytest

from localspec.chat.template import ChatTemplate
from localspec.chat.thinking import split_thinking
from tests.chat.shapes import CHATML_LIKE, DEEPSEEK_LIKE, QWEN3_LIKE, assistant, user

THOUGHT = "<think>\nhm\n</think>\n\nHello"
CALL = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'


def test_thinking_is_switched_by_the_variable_that_the_template_reads() -> None:
    qwen = ChatTemplate(QWEN3_LIKE)
    assert qwen.can_switch_thinking
    plain = qwen.render([user("Hi")])
    assert qwen.render([user("Hi")], think=True) == plain
    assert qwen.render([user("Hi")], think=False) == plain + "<think>\n\n</think>\n\n"
    deepseek = ChatTemplate(DEEPSEEK_LIKE)
    assert deepseek.can_switch_thinking
    assert deepseek.render([user("Hi")]).endswith("</think>")
    assert deepseek.render([user("Hi")], think=False).endswith("</think>")
    assert deepseek.render([user("Hi")], think=True).endswith("<think>")


@pytest.mark.parametrize(
    "source",
    [
        CHATML_LIKE,
        "{% set thinking = true %}{{ thinking }}{{ messages[0].content }}",
        "{% for m in messages %}{{ m.thinking }}{{ m.content }}{% endfor %}{# enable_thinking #}",
    ],
    ids=["none", "own variable", "only words"],
)
def test_a_template_without_a_switch_is_written_the_same(source: str) -> None:
    template = ChatTemplate(source)
    assert not template.can_switch_thinking
    assert template.render([user("Hi")], think=False) == template.render([user("Hi")])


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (THOUGHT, ("hm", "Hello")),
        ("hm\n</think>\n\nHello", ("hm", "Hello")),
        ("<think>\n\n</think>\n\nHello", ("", "Hello")),
        (f"<think>a</think>{CALL}", ("a", CALL)),
        ("<think>\nstopped in the mid", ("", "<think>\nstopped in the mid")),
        ("Hello <think>", ("", "Hello <think>")),
        ("<think>a</think>b</think>c", ("a", "b</think>c")),
        ("", ("", "")),
    ],
)
def test_thinking_is_told_from_the_rest_of_a_reply(content: str, expected: tuple[str, str]) -> None:
    assert split_thinking(content) == expected


def test_a_template_that_reads_the_reasoning_by_itself_gets_it_so() -> None:
    source = (
        "{% for m in messages %}[{{ m.role }}{% if m.reasoning_content %}"
        "|{{ m.reasoning_content }}{% endif %}|{{ m.content }}]{% endfor %}"
    )
    turns = [user("<think>a</think>b"), assistant(THOUGHT), assistant("plain")]
    assert ChatTemplate(source).render(turns) == (
        "[user|<think>a</think>b][assistant|hm|Hello][assistant|plain]"
    )


def test_blocks_of_thinking_and_of_tools_stay_in_the_content_of_other_templates() -> None:
    turns = [user("Hi"), assistant(f"{THOUGHT}\n{CALL}"), user("Bye")]
    assert f"<|im_start|>assistant\n{THOUGHT}\n{CALL}<|im_end|>" in ChatTemplate(CHATML_LIKE).render(turns)
    # Its own template drops the thinking of earlier turns, and nothing else.
    shown = ChatTemplate(QWEN3_LIKE).render(turns)
    assert f"<|im_start|>assistant\nHello\n{CALL}<|im_end|>" in shown


def test_content_comes_in_parts_where_the_template_wants_them() -> None:
    source = (
        "{% for m in messages %}[{{ m.role }}:{% for part in m.content %}"
        "{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}]{% endfor %}"
    )
    assert ChatTemplate(source).render([user("Hi"), assistant("Hello")]) == "[user:Hi][assistant:Hello]"
    either = "{% for m in messages %}{{ m.content if m.content is string else 'parts' }}{% endfor %}"
    assert ChatTemplate(either).render([user("Hi")]) == "Hi"


def test_the_date_has_the_names_that_llama_cpp_gives_it() -> None:
    from datetime import datetime

    shown = ChatTemplate("{{ date_string }}, {{ datetime }}").render([user("Hi")])
    now = datetime.now()
    assert shown == f"{now:%d %b %Y}, {now:%b %d %Y}"
