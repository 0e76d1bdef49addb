"""Grammars are read to the end before native code sees them: what is wrong is a sentence with its line."""

from __future__ import annotations

from itertools import pairwise

import pytest

from localspec.errors import UsageError
from localspec.grammar import check_grammar

ARITHMETIC = r"""
# Sums, one a line.
root  ::= (expr "=" ws number "\n")+   # a comment
expr  ::= term ([-+*/] term)*
term  ::= number | "(" ws expr ")" ws |
          [a-z] [^\n\x00-\x1F"\\\]-]{0,3} ws
number ::= "-"? [0-9]{1,} ("." [0-9]{ 1 , 6 })? ws
ws    ::= [ \t]*
"""


@pytest.mark.parametrize(
    "text",
    [
        ARITHMETIC,
        ARITHMETIC.replace("\n", "\r\n"),
        'root ::= "a"',
        'root ::= ""',
        'root ::= | "a"',
        "root ::= [a-]",
        'root ::= "a" root | "b"',
        'root ::= "(" root? ")"',
        r'root ::= "é\u00e9\U0001F600\t\"\\" .',
        'root ::= ("a" |\n  "b")\n',
        'root ::= "a"\nroot ::= "b"',
        "root ::= " + "(" * 150 + '"a"' + ")" * 150,
        'root ::= "a"{0,2000}',
        # A rule may come back to itself behind something that is never empty.
        'root ::= "x" empty root | "y"\nempty ::= ""',
    ],
)
def test_what_llama_cpp_can_read_is_accepted(text: str):
    assert check_grammar(text) == frozenset()


def test_tokens_that_a_grammar_names_are_handed_out():
    assert check_grammar('root ::= <[7]> !<|end|> "a" <think>') == {"<[7]>", "<|end|>", "<think>"}


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("x", 1, "'::=' is expected"),
        ('root ::= "a"\nroot', 2, "'::=' is expected"),
        ('root ::= "a"\n| "b"', 2, "name of a rule"),
        ('root ::= "a" )', 1, "end of the line is expected"),
        ('root ::= ("a"\n', 2, "')' is expected"),
        ('root ::= "abc', 1, "not closed"),
        ("root ::=\n  [abc", 2, "not closed"),
        ("root ::= <abc", 1, "not closed"),
        ("root ::= <[x]>", 1, "number looks like"),
        ("root ::= !x", 1, "'!' stands only"),
        (r'root ::= "\q"', 1, r"no escape '\q'"),
        (r'root ::= "\x1"', 1, "2 hexadecimal digits"),
        ("root ::= *", 1, "repeats nothing"),
        ('root ::= "a"{x}', 1, "a number is expected"),
        ('root ::= "a"{3,1}', 1, "ends before it begins"),
        ('root ::= "a"{3', 1, "'}' is expected"),
        ("root ::= [b-a]", 1, "ends before it begins"),
        ('root ::= "a"{99999999999999999999}', 1, "above 2000"),
        ('root ::= "a"{0,2001}', 1, "above 2000"),
        ('root ::= ("a"{0,100}){0,100}', 1, "multiply to more than 2000"),
        ("root ::= " + "(" * 100_000 + '"a"' + ")" * 100_000, 1, "deeper than 200"),
        ('root ::= "' + "x" * 100 + '"{0,2000}', 1, "too large"),
        ('root ::= "a\0"', 1, "NUL"),
        ('root ::= "a"\n | foo', 2, "name of a rule"),
        ('root ::= "a" foo', 1, 'no rule "foo"'),
        ('root ::= root "a" | "b"', 1, "left recursion"),
        ('root ::= "a"? root "a" | "b"', 1, "left recursion"),
        ('root ::= "b" | other\nother ::= ("c" | "d"* root) "e"', 1, "left recursion"),
        # llama.cpp takes this one for sound and expands it without end.
        ('root ::= x root "b" | "a"\nx ::= y\ny ::= "" | "c"', 1, "left recursion"),
    ],
)
def test_a_fault_is_a_sentence_with_its_line(text: str, line: int, what: str):
    with pytest.raises(UsageError) as caught:
        check_grammar(text)
    assert str(caught.value).startswith(f"The grammar, line {line}: ")
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_beginnings_that_double_with_every_rule_are_refused():
    def doubling(count: int) -> str:
        rules = [f'r{number} ::= r{number + 1} "a" | r{number + 1} "b"' for number in range(count)]
        return "\n".join(["root ::= r0", *rules, f'r{count} ::= "c"'])

    assert check_grammar(doubling(10)) == frozenset()
    with pytest.raises(UsageError, match="more than 10000 ways"):
        check_grammar(doubling(40))


@pytest.mark.parametrize("text", ["", " \n\t", "# nothing\n", "\n\n# nothing"])
def test_an_empty_grammar_is_refused(text: str):
    with pytest.raises(UsageError, match='rule "root"'):
        check_grammar(text)


def test_the_root_must_be_there():
    with pytest.raises(UsageError, match='no rule "root"'):
        check_grammar('start ::= "a"')


def test_a_long_chain_of_rules_is_followed_without_a_stack():
    names = [f"r{number}" for number in range(5000)]
    chain = "\n".join(f"{one} ::= {other}" for one, other in pairwise(names))
    text = f'root ::= {names[0]}\n{chain}\n{names[-1]} ::= "a"'
    assert check_grammar(text) == frozenset()
    with pytest.raises(UsageError, match="left recursion"):
        check_grammar(text.replace('"a"', names[17]))


def test_a_text_that_is_far_too_long_is_refused():
    with pytest.raises(UsageError, match="characters"):
        check_grammar('root ::= "a"' + " " * 300_000)
