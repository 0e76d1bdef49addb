"""JSON schemas as grammars: what cannot be held is refused by name, and what they look like otherwise."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.grammar import check_grammar, grammar_of_schema
from localspec.grammar.integers import integers_between


def grammar(schema: object) -> str:
    return grammar_of_schema(json.dumps(schema))


def root(schema: object) -> str:
    return grammar(schema).splitlines()[0].removeprefix("root ::= ")


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, "value"),
        ({"title": "Anything", "$schema": "x", "description": "y"}, "value"),
        ({"type": "string"}, "string"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": ["integer", "number"]}, "number"),
        ({"type": "string", "minLength": 2, "maxLength": 5}, r'"\"" char{2,5} "\""'),
        ({"type": "number", "minimum": 0}, "unsigned fraction"),
        ({"const": None}, '"null"'),
        (
            {"enum": ['say "hi"\\', 1.5, True, "é\n"]},
            r'"\"say \\\"hi\\\"\\\\\"" | "1.5" | "true" | "\"é\\n\""',
        ),
        ({"type": "integer", "enum": ["a", 2, 3.0, True]}, '"2" | "3.0"'),
        ({"anyOf": [{"type": "null"}, {"type": "boolean"}]}, "null | boolean"),
        ({"oneOf": [{"const": 1}, {"type": "null"}]}, '"1" | null'),
        ({"allOf": [{"type": "boolean"}]}, "boolean"),
        ({"type": "array"}, '"[" ws (value ("," ws value){0,} ws)? "]"'),
        (
            {"type": "array", "items": {"type": "null"}, "minItems": 2, "maxItems": 4},
            '"[" ws (null ("," ws null){1,3} ws) "]"',
        ),
        ({"type": "array", "maxItems": 0}, '"[" ws "]"'),
        ({"type": "object"}, "object"),
        ({"type": "object", "additionalProperties": False}, '"{" ws "}"'),
    ],
)
def test_what_a_schema_becomes(schema: object, expected: str):
    assert root(schema) == expected


def test_properties_come_in_their_order_and_optional_ones_may_be_left_out():
    schema = {"properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "required": ["b", "c"]}
    rules = dict(line.split(" ::= ") for line in grammar(schema).splitlines())
    assert rules["root"] == '"{" ws ((in-a-pair in-rest-2 | in-b-pair in-rest) ws) "}"'
    assert rules["in-rest"] == '"," ws in-c-pair'
    assert rules["in-rest-2"] == '"," ws in-b-pair in-rest'
    assert rules["in-c-pair"] == r'"\"c\"" ":" " "? value'


def test_a_schema_may_refer_to_itself():
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/a~1b"}}}}
    rules = grammar({"$ref": "#/$defs/a~1b", "$defs": {"a/b": tree}})
    assert rules.splitlines()[0] == "root ::= in-a-1b"
    assert "(in-a-1b (" in rules
    assert root({"type": "array", "items": {"$ref": "#"}, "maxItems": 1}) == (
        '"[" ws (root ("," ws root){0,0} ws)? "]"'
    )


def test_names_that_look_alike_get_rules_of_their_own():
    rules = grammar({"properties": {"ä-": {"const": 1}, "ö-": {"const": 2}, "": {"const": 3}}})
    names = [line.split(" ::= ")[0] for line in rules.splitlines()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("schema", "where", "what"),
    [
        ({"type": "text"}, "#", 'no type "text"'),
        ({"type": [["string"]]}, "#", "no type"),
        ({"type": []}, "#", "one at least"),
        ({"properties": {"a": {"pattern": "x"}}}, "#/properties/a", "'pattern' cannot be held"),
        ({"items": {"not": {}}}, "#/items", "'not' cannot be held"),
        ({"type": "array", "uniqueItems": True}, "#", "'uniqueItems' cannot be held"),
        ({"allOf": [{"type": "null"}, {"type": "null"}]}, "#", "'allOf' of several"),
        ({"anyOf": []}, "#", "a list of schemas"),
        ({"anyOf": [{"type": "null"}], "type": "object"}, "#", "together with 'type'"),
        ({"enum": []}, "#", "allows no value"),
        ({"enum": "x"}, "#", "'enum' is a list"),
        ({"type": "string", "const": 5}, "#", "allows no value"),
        ({"const": "\ud800"}, "#", "half a character"),
        ({"properties": {"a": False}}, "#/properties/a", "allows no value"),
        ({"properties": {"a": 3}}, "#/properties/a", "a schema is an object"),
        ({"properties": []}, "#", "'properties' is an object"),
        ({"required": "a"}, "#", "'required' is a list"),
        ({"required": ["a"], "additionalProperties": False}, "#", '"a" is required'),
        ({"type": "integer", "minimum": 7, "maximum": 3}, "#", "no integer"),
        ({"type": "integer", "minimum": "7"}, "#", "'minimum' is a number"),
        ({"type": "number", "maximum": 3}, "#", "bounds of numbers"),
        ({"type": "string", "maxLength": 5000}, "#", "2000 at most"),
        ({"type": "string", "minLength": -1}, "#", "whole number"),
        ({"type": "string", "minLength": 5, "maxLength": 1}, "#", "'maxLength' is below"),
        ({"type": "array", "prefixItems": [{}], "minItems": 2}, "#", "a tuple's bounds"),
        ({"type": "array", "items": False, "minItems": 1}, "#", "must have items"),
        ({"$ref": "other.json"}, "#", "only references such as"),
        ({"$ref": "#/$defs/a"}, "#", "no such place"),
    ],
)
def test_what_no_grammar_can_hold_is_refused_with_its_place(schema: object, where: str, what: str):
    with pytest.raises(UsageError) as caught:
        grammar(schema)
    assert str(caught.value).startswith(f"The JSON schema at {where}: ")
    assert what in str(caught.value)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "not valid JSON"),
        ("{'a': 1}", "not valid JSON"),
        ('{"minimum": NaN}', "not valid JSON"),
        ("[]", "must be an object"),
        ("true", "must be an object"),
        ('{"a":' * 100_000, "nested too deeply"),
        ('{"$ref": "#"}', "left recursion"),
        ('{"minimum": 1e999}', "is a number"),
    ],
)
def test_what_is_no_schema_is_a_sentence(text: str, what: str):
    with pytest.raises(UsageError, match=what) as caught:
        grammar_of_schema(text)
    assert str(caught.value).startswith("The JSON schema ")


@given(st.integers(-2000, 2000), st.integers(-2000, 2000))
def test_integers_between_two_bounds_are_just_those(low: int, high: int):
    # The notation of these alternatives is that of regular expressions, but for blanks and quotes.
    parts = integers_between(low, high)
    pattern = re.compile("|".join(part.replace('"', "").replace(" ", "") for part in parts) or "(?!)")
    found = {number for number in range(-2100, 2100) if pattern.fullmatch(str(number))}
    assert found == set(range(low, high + 1))
    assert not pattern.fullmatch("007")
    assert not pattern.fullmatch("-0")


def test_integers_with_one_bound_go_far():
    for low, high, inside, outside in ((5, None, "999999999999999", "4"), (None, -5, "-10000", "-4")):
        pattern = "|".join(part.replace('"', "").replace(" ", "") for part in integers_between(low, high))
        assert re.fullmatch(pattern, inside)
        assert not re.fullmatch(pattern, outside)


def test_a_large_schema_still_makes_a_grammar():
    thing = {f"property number {n}": {"type": "string", "maxLength": 200} for n in range(60)}
    check_grammar(grammar({"properties": {"things": {"type": "array", "items": {"properties": thing}}}}))
