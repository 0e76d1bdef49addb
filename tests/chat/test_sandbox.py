from __future__ import annotations

import time

import pytest

from localspec.chat.template import ChatTemplate
from localspec.errors import ModelFileError
from tests.chat.shapes import QWEN3_LIKE, assistant, user


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
        "{% import 'a_file' as f %}{{ f.x }}",
        "{% block a %}{{ self.a() }}{% endblock %}",
    ],
    ids=[
        "undefined",
        "zero",
        "types",
        "refusal",
        "recursion",
        "mutation",
        "introspection",
        "include",
        "import",
        "recursive block",
    ],
)
def test_a_template_that_fails_is_one_sentence_that_names_the_option(source: str) -> None:
    template = ChatTemplate(source)
    with pytest.raises(ModelFileError, match="--chat-template") as caught:
        template.render([user("x")])
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ '' | attr('__class__') }}",
        "{{ ['']|map(attribute='__class__')|first }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ '{x.__class__.__mro__}'.format_map({'x': ''}) }}",
        "{{ ''['__class__'] }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__globals__['json'] }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ loop.__class__ }}{% for x in [1] %}{{ loop.__class__.__init__.__globals__ }}{% endfor %}",
        "{% macro f() %}{% endmacro %}{{ f.__call__.__globals__ }}{{ f._func.__globals__ }}",
        "{{ messages.append({}) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages[0].clear() }}",
    ],
)
def test_a_template_that_reaches_for_pythons_internals_finds_nothing(source: str) -> None:
    turns = [user("question")]
    try:
        shown = ChatTemplate(source + "{{ messages[0].content }}").render(turns)
    except ModelFileError:
        return
    # What an attribute that is not there looks like.
    assert shown == "question"


@pytest.mark.parametrize(
    "name", ["environment", "eval_ctx", "_get_default_module", "blocks", "made", "tick", "__builtins__"]
)
def test_the_sandbox_itself_has_no_name_in_templates(name: str) -> None:
    assert ChatTemplate("{{ " + name + " is defined }}").render([user("x")]) == "False"


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
    "padding by percent": "{{ '%1000000000d' % 1 }}",
    "padding by star": "{{ '%*d' % (10 ** 9, 1) }}",
    "padding by name": "{{ '%(x)1000000000d' % {'x': 1} }}",
    "padding by format filter": "{{ '%1000000000d' | format(1) }}",
    "padding by format": "{{ '{:>1000000000}'.format(1) }}",
    "padding by nested format": "{{ '{:>{}}'.format(1, 10 ** 9) }}",
    "padding by format_map": "{{ '{x:>1000000000}'.format_map({'x': 1}) }}",
    "padding with zeros": "{{ '1'.zfill(10 ** 9) }}",
    "tabs": "{{ '\\t'.expandtabs(tabsize=10 ** 9) }}",
    "bytes": "{{ (1).to_bytes(10 ** 9) }}{{ ('x' * 10 ** 7).encode('utf-32') }}",
    "indented JSON": "{{ [1] | tojson(indent=10 ** 9) }}",
    "indented text": "{{ ('\\n' * 10 ** 5) | indent('x' * 10 ** 5) }}",
    "wrapped text": "{{ ('x y ' * 10 ** 5) | wordwrap(1, wrapstring='x' * 10 ** 5) }}",
    "replaced text": "{{ ('x' * 10 ** 6).replace('x', 'y' * 10 ** 4) }}",
    "replaced nothing": "{{ ('x' * 10 ** 6).replace('', 'y' * 10 ** 4) }}",
    "replaced by filter": "{{ ('x' * 10 ** 6) | replace('x', 'y' * 10 ** 4) }}",
    "translated text": "{{ ('x' * 10 ** 6).translate({120: 'y' * 10 ** 4}) }}",
    "joined text": "{{ ('y' * 10 ** 4).join('x' * 10 ** 6) }}",
    "joined by filter": "{{ (['y' * 10 ** 6] * 10 ** 5) | join }}",
    "joined attributes": "{{ ([{'a': 'y' * 10 ** 6}] * 10 ** 5) | join(attribute='a') }}",
    "joined by tilde": "{% set x = 'y' * 10 ** 7 %}{{ x ~ x ~ x }}",
    "written often": "{% set x = 'y' * 10 ** 7 %}" + "{{ x }}" * 99,
    "kept in a block": "{% set x = 'y' * 10 ** 7 %}{% set z %}" + "{{ x }}" * 99 + "{% endset %}",
    "kept by a macro": "{% set x = 'y' * 10 ** 7 %}{% macro f() %}"
    + "{{ x }}" * 99
    + "{% endmacro %}{{ f() }}",
    "kept slices": "{% set x = 'y' * 10 ** 7 %}"
    + "".join(f"{{% set x{number} = x[1:] %}}" for number in range(99)),
    "a sum of lists": "{{ ([[1] * 10 ** 6] * 10 ** 5) | sum(start=[]) }}",
    "rounded": "{{ 1.5 | round(10 ** 7, 'ceil') }}",
    "many columns": "{{ [1] | slice(10 ** 7) | list }}",
    "long dates": "{{ strftime_now('%c' * 10 ** 6) }}",
    "many padded fields": "{{ ('{0:9999}' * 10 ** 6).format(1) }}",
    "long division": "{% set x = ('f' * 10 ** 7) | int(0, 16) %}{{ x // (('e' * 10 ** 6) | int(0, 16)) }}",
    "stripped text": "{{ ('a' * 8000000).strip('b' * 8000000 ~ 'a') }}",
    "stripped by filter": "{{ ('a' * 8000000) | trim('b' * 8000000 ~ 'a') }}",
    "looked for from the end": "{{ ('a' * 8000000).rfind('ab' ~ 'a' * 2000000) }}",
    "split from the end": "{{ ('a' * 8000000).rsplit('ab' ~ 'a' * 2000000) }}",
    "one long word wrapped": "{{ ('a' * 8000000) | wordwrap(1) }}",
    "many tests": "{{ range(100000) | select('in', range(200000, 300000) | list) | list }}",
    "a loop's condition": "{% set l = range(99999) | list %}"
    "{% for i in range(99999) if i + 99999 in l %}{% endfor %}",
    "nested twice over": "{% set n = namespace(x='') %}{% for i in range(60) %}{% set n.x = [n.x, n.x] %}"
    "{% endfor %}{{ n.x }}",
    "nested by names": "{% set n = namespace(x='') %}{% for i in range(60) %}{% set n.x = {1: n.x, 2: n.x} %}"
    "{% endfor %}{{ n.x | tojson }}",
    "nested by calls": "{% set n = namespace(x='') %}{% for i in range(60) %}"
    "{% set n.x = dict(a=n.x, b=n.x) %}{% endfor %}{{ n.x == n.x }}{{ n.x }}",
    "nested tuples": "{% set n = namespace(x='') %}{% for i in range(60) %}{% set n.x = (n.x, n.x) %}"
    "{% endfor %}{{ n.x }}",
    "nested by lists": "{% set n = namespace(x='') %}{% for i in range(60) %}{% set n.x = [n.x] * 2 %}"
    "{% endfor %}{{ n.x }}",
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
    monkeypatch.setattr("localspec.chat.bounds.MAX_SECONDS", 0.1)
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
