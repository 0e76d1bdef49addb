from __future__ import annotations

import time
from datetime import datetime

import pytest

from localspec.chat.template import ChatTemplate
from localspec.errors import ModelFileError
from localspec.types import ChatMessage


def system(text: str) -> ChatMessage:
    return ChatMessage("system", text)


def user(text: str) -> ChatMessage:
    return ChatMessage("user", text)


def assistant(text: str) -> ChatMessage:
    return ChatMessage("assistant", text)


LLAMA3_LIKE = """{{- bos_token }}
{%- set today = strftime_now("%d %b %Y") %}
{%- if messages[0]['role'] == 'system' %}
    {%- set instructions = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set instructions = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\nToday: " + today + "\\n\\n" + instructions }}
{{- "<|eot_id|>" }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim }}
    {{- '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

GEMMA_LIKE = """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}{{ raise_exception('System role not supported') }}{%- endif -%}
{%- for message in messages -%}
  {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
    {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
  {%- endif -%}
  {%- set role = 'model' if message['role'] == 'assistant' else message['role'] -%}
  {{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}
"""

QWEN3_LIKE = """{%- if tools %}{{ tools | tojson }}{%- endif %}
{%- set ns = namespace(last_user=-1) %}
{%- for message in messages[::-1] %}
    {%- if ns.last_user == -1 and message.role == "user" %}
        {%- set ns.last_user = messages | length - 1 - loop.index0 %}
        {%- break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == "assistant" and '</think>' in content and loop.index0 < ns.last_user %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ content ~ '<|im_end|>' ~ '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\\n\\n</think>\\n\\n' }}
    {%- endif %}
{%- endif %}
"""


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
        "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\nHello<end_of_turn>\n"
        "<start_of_turn>user\nBye<end_of_turn>\n<start_of_turn>model\n"
    )
    assert template.render([user("Hi")]).startswith("<bos><start_of_turn>user\nHi<end_of_turn>")


def test_a_template_that_ignores_the_system_role_gets_it_in_the_first_user_turn() -> None:
    source = "{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    assert ChatTemplate(source).render([system("Be brief."), user("Hi")]) == "[user]Be brief.\n\nHi"


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


@pytest.mark.parametrize(
    "source",
    [
        "{% for m in messages %}{{ m.content }}",
        "{{ messages | nosuchfilter }}",
        "{% nosuchtag %}",
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
        "{% if true %}" * 200 + "{% endif %}" * 200,
        "x" * 300_000,
    ],
    ids=["unclosed", "unknown filter", "unknown tag", "deep brackets", "deep blocks", "too long"],
)
def test_a_broken_template_is_one_sentence_that_names_the_option(source: str) -> None:
    with pytest.raises(ModelFileError, match="--chat-template") as caught:
        ChatTemplate(source)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    "source",
    [
        "{{ nothing.at.all }}",
        "{{ 1 // 0 }}",
        "{{ messages + 1 }}",
        "{{ raise_exception('\x1b[2Jno') }}",
        "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__ }}{{ messages.__class__.__base__.__subclasses__() }}",
        "{% include 'a_file' %}",
    ],
    ids=["undefined", "zero", "types", "refusal", "recursion", "mutation", "introspection", "include"],
)
def test_a_template_that_fails_is_one_sentence_that_names_the_option(source: str) -> None:
    template = ChatTemplate(source)
    with pytest.raises(ModelFileError, match="--chat-template") as caught:
        template.render([user("x")])
    assert "\x1b" not in str(caught.value)


ENDLESS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "own tick": "{% set tick = range(9999) %}{% for a in tick %}{% for b in tick %}{% endfor %}{% endfor %}",
    "recursion": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    "recursive loop": "{% for item in [[1], [1]] recursive %}{{ loop([item, item]) }}{% endfor %}",
    "long output": "{% for i in range(99999) %}{{ 'word ' * 1000 }}{% endfor %}",
    "repeated text": "{{ 'x' * 10 ** 11 }}",
    "repeated list": "{{ [1] * 10 ** 11 }}",
    "power": "{{ 10 ** 10 ** 10 }}",
    "padding method": "{{ 'x'.center(10 ** 11) }}",
    "padding filter": "{{ 'x' | center(10 ** 11) }}",
    "range": "{{ range(10 ** 9) | list }}",
} | {
    f"doubling by {step}": "{% set n = namespace(x='x', i=9) %}{% for i in range(99) %}"
    + step
    + "{% endfor %}"
    for step in (
        "{% set n.x = n.x + n.x %}",
        "{% set n.x = n.x ~ n.x %}",
        "{% set n.x %}{{ n.x }}{{ n.x }}{% endset %}",
        "{% set n.i = n.i * n.i %}",
    )
}


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS.keys())
def test_a_template_without_end_is_stopped(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.chat.sandbox.MAX_SECONDS", 0.1)
    start = time.thread_time()
    with pytest.raises(ModelFileError, match="--chat-template"):
        ChatTemplate(source).render([user("x")])
    assert time.thread_time() - start < 3


def test_a_long_conversation_renders_in_milliseconds() -> None:
    template = ChatTemplate(QWEN3_LIKE)
    turns = [user("question " * 20), assistant("answer " * 80)] * 250
    template.render(turns)
    start = time.thread_time()
    template.render(turns)
    # About 7 ms on the development machine.
    assert time.thread_time() - start < 0.2
