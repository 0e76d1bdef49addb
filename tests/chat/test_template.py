from __future__ import annotations

from datetime import datetime

import pytest

from localspec.chat.template import ChatTemplate
from localspec.errors import ModelFileError
from tests.chat.shapes import GEMMA_LIKE, LLAMA3_LIKE, QWEN3_LIKE, assistant, system, user


def test_without_a_template_chatml_is_used() -> None:
    template = ChatTemplate(None)
    assert template.is_fallback
    assert template.render([system("Be brief."), user("Hi"), assistant("Hello"), user("Bye")]) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ChatTemplate(" \n").is_fallback
    assert template.render([user("Hi")], add_generation_prompt=False) == "<|im_start|>user\nHi<|im_end|>\n"


def test_a_llama_3_template() -> None:
    template = ChatTemplate(LLAMA3_LIKE, bos="<|begin_of_text|>")
    assert not template.is_fallback
    today = datetime.now().strftime("%d %b %Y")
    assert template.render([system(" Be brief. "), user("Hi")]) == (
        f"<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nToday: {today}\n\nBe brief."
        "<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )


def test_a_template_that_refuses_the_system_role_gets_it_in_the_first_user_turn() -> None:
    template = ChatTemplate(GEMMA_LIKE, bos="<bos>")
    assert template.render([system("Be brief."), user("Hi"), assistant("Hello"), user("Bye")]) == (
        "<bos><start_of_turn>user\nBe brief.\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    )
    assert template.render([user("Hi")]).startswith("<bos><start_of_turn>user\nHi<end_of_turn>")


def test_a_template_that_ignores_the_system_role_gets_it_in_the_first_user_turn() -> None:
    source = "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    assert ChatTemplate(source).render([system("Be brief."), user("Hi")]) == "[user]Be brief.\nHi"


def test_neighbours_of_one_role_are_joined_where_roles_must_alternate() -> None:
    template = ChatTemplate(GEMMA_LIKE)
    assert "<start_of_turn>user\nOne\n\nTwo<end_of_turn>" in template.render([user("One"), user("Two")])


def test_a_refusal_that_nothing_mends_is_told_in_the_templates_words() -> None:
    template = ChatTemplate(GEMMA_LIKE)
    with pytest.raises(ModelFileError, match=r"roles must alternate.*--chat-template"):
        template.render([assistant("Hello")])


def test_a_qwen_3_template_and_its_variable() -> None:
    template = ChatTemplate(QWEN3_LIKE)
    turns = [user("Hi"), assistant("<think>\nhm\n</think>\n\nHello"), user("Bye")]
    plain = template.render(turns)
    assert "hm" not in plain
    assert plain.endswith("<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n")
    quiet = template.render(turns, extra={"enable_thinking": False})
    assert quiet == plain + "<think>\n\n</think>\n\n"


def test_json_is_written_as_hugging_face_writes_it() -> None:
    template = ChatTemplate("{{ tools | tojson }} {{ tools | tojson(indent=1) }}")
    shown = template.render([user("x")], extra={"tools": {"b": "<é>", "a": 1}})
    assert shown == '{"b": "<é>", "a": 1} {\n "b": "<é>",\n "a": 1\n}'


def test_blocks_are_trimmed_and_generation_tags_leave_their_body() -> None:
    source = "{% for m in messages %}\n  {% generation %}\n{{ m.content }}{% endgeneration %}\n{% endfor %}\n"
    assert ChatTemplate(source).render([user("a"), user("b")]) == "ab"


def test_text_of_the_user_is_never_a_template_and_never_escaped() -> None:
    text = '{{ 7 * 7 }} {% raw %} <b>&amp;</b> "quoted"'
    assert text in ChatTemplate(LLAMA3_LIKE).render([user(text)])
