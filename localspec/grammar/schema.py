"""From a JSON schema to a grammar whose every text is JSON that the schema accepts.

What a grammar can hold is held; a keyword that it cannot hold is refused by name, never passed over. Where a
schema leaves a choice the grammar may take one side: objects with named properties get no others, properties
come in the order of the schema, a tuple gets no further items. Keywords that only describe are ignored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn
from urllib.parse import unquote

from localspec.errors import UsageError
from localspec.grammar.gbnf import MOST_REPEATS, ROOT, check_grammar
from localspec.grammar.integers import integers_between

_HEX = "[0-9a-fA-F]"
_DAYS = '"0" [1-9] | "1" [0-9] | "2"'
_DATE = (
    '[1-9] [0-9]{3} "-" ("02-" '
    rf'({_DAYS} [0-8]) | ("0" [469] | "11") "-" ({_DAYS} [0-9] | "30") | '
    rf'("0" [13578] | "1" [02]) "-" ({_DAYS} [0-9] | "3" [01]))'
)
"""Without leap days, so that every date exists."""
_HOUR = '([01] [0-9] | "2" [0-3]) ":" [0-5] [0-9]'
_TIME = f'{_HOUR} ":" [0-5] [0-9] ("." [0-9]{{1,6}})? ("Z" | [+-] {_HOUR})'
_UUID = ' "-" '.join(f"{_HEX}{{{count}}}" for count in (8, 4, 4, 4, 12))
_FORMATS = {
    "date": rf'"\"" {_DATE} "\""',
    "time": rf'"\"" {_TIME} "\""',
    "date-time": rf'"\"" {_DATE} "T" {_TIME} "\""',
    "uuid": rf'"\"" {_UUID} "\""',
}
_BUILT_IN = {
    # Bounded, so that a model that likes blanks comes to an end.
    "ws": r'" "? | "\n" [ \t]{0,20}',
    # JSON has no raw control characters in strings; a lone surrogate is no character.
    "char": r'[^"\\\x00-\x1F\x7F] | "\\" (["\\/bfnrt] | "u" '
    rf"([0-9a-cefA-CEF] {_HEX}{{3}} | [dD] [0-7] {_HEX}{{2}}))",
    "string": r'"\"" char* "\""',
    "unsigned": '"0" | [1-9] [0-9]{0,14}',
    "integer": '"-"? unsigned',
    "fraction": '("." [0-9]{1,15})? ([eE] [+-]? [0-9]{1,2})?',
    "number": "integer fraction",
    "boolean": '"true" | "false"',
    "null": '"null"',
    "value": "object | array | string | number | boolean | null",
    "object": '"{" ws (pair ("," ws pair)* ws)? "}"',
    "pair": 'string ":" " "? value',
    "array": '"[" ws (value ("," ws value)* ws)? "]"',
}
_OF_TYPE = {
    "object": {"properties", "required", "additionalProperties"},
    "array": {"items", "prefixItems", "minItems", "maxItems"},
    "string": {"minLength", "maxLength", "format"},
    "integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "number": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"},
    "boolean": set[str](),
    "null": set[str](),
}
_CHOICES = {"$ref", "enum", "const", "anyOf", "oneOf", "allOf"}
_REFUSED = {
    *("not", "if", "then", "else", "pattern", "multipleOf", "uniqueItems", "contains", "minContains"),
    *("maxContains", "patternProperties", "propertyNames", "minProperties", "maxProperties", "dependencies"),
    *("dependentRequired", "dependentSchemas", "unevaluatedItems", "unevaluatedProperties", "$dynamicRef"),
    *("additionalItems", "$recursiveRef"),
}


def grammar_of_schema(text: str) -> str:
    """The GBNF grammar of a JSON schema.

    Supported: `type`, `enum`, `const`, `anyOf`, `oneOf` (read as `anyOf`), `allOf` of one schema, local
    `$ref`; objects with `properties`, `required` and `additionalProperties`; arrays with `items`,
    `prefixItems`, `minItems`, `maxItems`; strings with `minLength`, `maxLength` and the formats date, time,
    date-time and uuid; bounds of integers, and "0 or more" for numbers.

    Raises:
        UsageError: the text is no JSON, or a schema that no grammar can hold.
    """
    try:
        schema = json.loads(text, parse_constant=_no_number)
    except ValueError as error:
        raise UsageError(f"The JSON schema is not valid JSON ({error}); correct it.") from error
    except RecursionError as error:
        raise UsageError("The JSON schema is nested too deeply; flatten it.") from error
    if not isinstance(schema, dict):
        raise UsageError('The JSON schema must be an object such as {"type": "object"}.')
    converter = _Converter(schema)
    try:
        grammar = converter.grammar()
    except RecursionError as error:
        raise UsageError("The JSON schema is nested too deeply; flatten it.") from error
    try:
        check_grammar(grammar)
    except UsageError as error:
        raise UsageError(f"The JSON schema makes a grammar that cannot be used. {error}") from error
    return grammar


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


class _Converter:
    """Turns one schema into rules; `where` is a place in it, as in a `$ref`."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._rules: dict[str, str] = {}
        self._names: dict[str, str] = {}
        self._references: dict[str, str] = {}

    def grammar(self) -> str:
        """All rules, the root first."""
        # Held free for the root, which may be called by a reference to the whole schema.
        self._references["#"] = ROOT
        self._rules[ROOT] = ""
        self._rules[ROOT] = self._visit(self._schema, "#")
        rules = self._rules | _BUILT_IN
        return "".join(f"{name} ::= {body}\n" for name, body in rules.items())

    def _visit(self, schema: object, where: str) -> str:
        """What a text of `schema` looks like, as one side of a rule."""
        if schema is True or schema == {}:
            return "value"
        if not isinstance(schema, dict):
            if schema is False:
                raise _fault(where, "false allows no value")
            raise _fault(where, "a schema is an object, true or false")
        for key, value in schema.items():
            if key in _REFUSED and not (key == "uniqueItems" and value is False):
                raise _fault(where, f"'{key}' cannot be held by a grammar; leave it out")
        choice = next((key for key in schema if key in _CHOICES), None)
        if choice is not None:
            return self._choice(choice, schema, where)
        kinds = self._kinds(schema, where)
        if kinds is None:
            return "value"
        return " | ".join(self._typed(kind, schema, where) for kind in kinds)

    def _kinds(self, schema: dict[str, Any], where: str) -> list[str] | None:
        """The types that a schema allows; None for any. Keywords of one type alone tell that type."""
        given = schema.get("type")
        if given is None:
            kinds = [kind for kind, keys in _OF_TYPE.items() if keys & schema.keys() - {"format"}]
            return kinds[:1] or None
        kinds = given if isinstance(given, list) else [given]
        for kind in kinds:
            if not isinstance(kind, str) or kind not in _OF_TYPE:
                raise _fault(where, f"there is no type {json.dumps(kind)}")
        if not kinds:
            raise _fault(where, "a list of types needs one at least")
        # An integer is a number too.
        return [kind for kind in dict.fromkeys(kinds) if kind != "integer" or "number" not in kinds]

    def _choice(self, key: str, schema: dict[str, Any], where: str) -> str:
        beside = set(schema) & (_CHOICES | {"type"}.union(*_OF_TYPE.values())) - {key}
        if key in ("enum", "const"):
            values = schema[key] if key == "enum" else [schema[key]]
            if not isinstance(values, list):
                raise _fault(where, "'enum' is a list")
            if "type" in beside:
                kinds = self._kinds(schema, where) or []
                values = [value for value in values if any(_is_of(value, kind) for kind in kinds)]
                beside.discard("type")
            if not values:
                raise _fault(where, f"'{key}' allows no value")
            self._alone(key, beside, where)
            return " | ".join(_literal(_json(value, where)) for value in values)
        self._alone(key, beside, where)
        if key == "$ref":
            return self._reference(schema[key], where)
        options = schema[key]
        if not isinstance(options, list) or not options:
            raise _fault(where, f"'{key}' is a list of schemas")
        if key == "allOf" and len(options) > 1:
            raise _fault(where, "'allOf' of several schemas cannot be held by a grammar; write them as one")
        return " | ".join(
            self._visit(option, f"{where}/{key}/{index}") for index, option in enumerate(options)
        )

    def _alone(self, key: str, beside: Iterable[str], where: str) -> None:
        others = ", ".join(f"'{name}'" for name in sorted(beside))
        if others:
            raise _fault(where, f"'{key}' together with {others} is not supported; write them as one")

    def _reference(self, reference: object, where: str) -> str:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise _fault(where, f"'$ref' to {json.dumps(reference)}: only references such as #/$defs/name")
        known = self._references.get(reference)
        if known is None:
            target: Any = self._schema
            for part in unquote(reference[1:]).split("/")[1:]:
                step = part.replace("~1", "/").replace("~0", "~")
                if isinstance(target, list) and step.isdecimal() and int(step) < len(target):
                    target = target[int(step)]
                elif isinstance(target, dict) and step in target:
                    target = target[step]
                else:
                    raise _fault(where, f"'$ref' to {reference}: there is no such place in the schema")
            # Named before it is visited: it may refer to itself.
            known = self._references[reference] = self._name(reference)
            self._rules[known] = ""
            self._rules[known] = self._visit(target, reference)
        return known

    # --- one type each

    def _typed(self, kind: str, schema: dict[str, Any], where: str) -> str:
        if kind == "object":
            return self._object(schema, where)
        if kind == "array":
            return self._array(schema, where)
        if kind == "string":
            return self._string(schema, where)
        if kind in ("integer", "number"):
            return _number(kind, schema, where)
        return kind

    def _object(self, schema: dict[str, Any], where: str) -> str:
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        extra = schema.get("additionalProperties", True)
        if not isinstance(properties, dict):
            raise _fault(where, "'properties' is an object")
        if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
            raise _fault(where, "'required' is a list of names")
        if extra is False and (missing := [name for name in required if name not in properties]):
            raise _fault(where, f"{json.dumps(missing[0])} is required but not among the properties")
        members = properties | {name: extra for name in required if name not in properties}
        if members:
            return self._members(members, set(required), where)
        if extra is False:
            return r'"{" ws "}"'
        if extra is True or extra == {}:
            return "object"
        value = self._rule(extra, f"{where}/additionalProperties")
        pair = self._add(f"{where}/pair", f'string ":" " "? {value}')
        return rf'"{{" ws ({pair} ("," ws {pair})* ws)? "}}"'

    def _members(self, members: Mapping[str, object], required: set[str], where: str) -> str:
        """An object of named properties in their order, of which only the required ones must be there."""
        pairs = []
        for name, member in members.items():
            value = self._rule(member, f"{where}/properties/{name}")
            pair = self._add(f"{where}/{name}/pair", f'{_literal(_json(name, where))} ":" " "? {value}')
            pairs.append((pair, name in required))
        # From the last to the first: what may follow when something was written before.
        rest = ""
        beginnings: list[str] = []
        for pair, needed in reversed(pairs):
            if needed:
                beginnings.clear()
            beginnings.append(f"{pair} {rest}".strip())
            following = f'"," ws {pair}' if needed else f'("," ws {pair})?'
            rest = self._add(f"{where}/rest", f"{following} {rest}".strip())
        inner = " | ".join(reversed(beginnings))
        optional = "" if any(needed for _, needed in pairs) else "?"
        return rf'"{{" ws (({inner}) ws){optional} "}}"'

    def _array(self, schema: dict[str, Any], where: str) -> str:
        items = schema.get("items", True)
        first = schema.get("prefixItems", items if isinstance(items, list) else None)
        least, most = _bounds(schema, "minItems", "maxItems", where)
        if first is not None:
            if not isinstance(first, list) or not first:
                raise _fault(where, "a tuple is a list of schemas")
            if least > len(first) or (most is not None and most < len(first)):
                raise _fault(where, "a tuple's bounds must fit the number of its schemas")
            names = [self._rule(item, f"{where}/items/{index}") for index, item in enumerate(first)]
            return '"[" ws ' + ' "," ws '.join(names) + ' ws "]"'
        if most == 0 or items is False:
            if least > 0:
                raise _fault(where, "the array must have items and may have none")
            return '"[" ws "]"'
        item = self._rule(items, f"{where}/items")
        upper = "" if most is None else str(most - 1)
        more = f'("," ws {item}){{{max(least - 1, 0)},{upper}}}'
        return f'"[" ws ({item} {more} ws){"" if least else "?"} "]"'

    def _string(self, schema: dict[str, Any], where: str) -> str:
        least, most = _bounds(schema, "minLength", "maxLength", where)
        if least == 0 and most is None:
            return _FORMATS.get(str(schema.get("format")), "string")
        # A format is but a note beside what is held.
        return rf'"\"" char{{{least},{"" if most is None else most}}} "\""'

    # --- rules

    def _rule(self, schema: object, where: str) -> str:
        """The name of a rule for `schema`."""
        body = self._visit(schema, where)
        return body if body in self._rules or body in _BUILT_IN else self._add(where, body)

    def _add(self, where: str, body: str) -> str:
        """The name of the rule that says `body`, a new one if need be."""
        name = self._names.get(body)
        if name is None:
            name = self._names[body] = self._name(where)
            self._rules[name] = body
        return name

    def _name(self, where: str) -> str:
        """A new name that tells the place."""
        words = [part for part in where.split("/") if part not in ("#", "properties", "$defs", "definitions")]
        letters = "-".join(words[-2:])[-40:]
        stem = "in-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in letters)
        name, count = stem, 1
        while name in self._rules:
            count += 1
            name = f"{stem}-{count}"
        return name


def _number(kind: str, schema: dict[str, Any], where: str) -> str:
    low, high = (_limit(schema, f"{side}imum", where) for side in ("min", "max"))
    above, below = (_limit(schema, f"exclusive{side}imum", where) for side in ("Min", "Max"))
    if low is high is above is below is None:
        return kind
    if kind == "integer":
        lows = [-(-low // 1)] if low is not None else []
        lows += [above // 1 + 1] if above is not None else []
        highs = [high // 1] if high is not None else []
        highs += [-(-below // 1) - 1] if below is not None else []
        alternatives = integers_between(int(max(lows)) if lows else None, int(min(highs)) if highs else None)
        if not alternatives:
            raise _fault(where, "no integer lies within the bounds")
        return " | ".join(alternatives)
    if low == 0 and high is above is below is None:
        return "unsigned fraction"
    raise _fault(where, "bounds of numbers cannot be held by a grammar, but for 'minimum': 0; leave them out")


def _limit(schema: dict[str, Any], key: str, where: str) -> float | None:
    value = schema.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _fault(where, f"'{key}' is a number")
    return value


def _bounds(schema: dict[str, Any], least: str, most: str, where: str) -> tuple[int, int | None]:
    values = []
    for key in (least, most):
        value = schema.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
            raise _fault(where, f"'{key}' is a whole number, 0 or more")
        if value is not None and value > MOST_REPEATS:
            raise _fault(where, f"'{key}' may be {MOST_REPEATS} at most")
        values.append(value)
    low, high = values[0] or 0, values[1]
    if high is not None and high < low:
        raise _fault(where, f"'{most}' is below '{least}'")
    return low, high


def _is_of(value: object, kind: str) -> bool:
    """Whether a JSON value is of a schema's type."""
    if isinstance(value, bool) or value is None:
        return kind == ("null" if value is None else "boolean")
    if isinstance(value, int | float):
        return kind == "number" or (kind == "integer" and value == value // 1)
    return isinstance(value, {"object": dict, "array": list, "string": str}.get(kind, ()))


def _json(value: object, where: str) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError as error:
        raise _fault(where, "a value holds an infinite number or half a character") from error
    return text


def _literal(text: str) -> str:
    """`text` as a literal of GBNF."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08X}" for c in escaped) + '"'


def _fault(where: str, what: str) -> UsageError:
    return UsageError(f"The JSON schema at {where}: {what}.")
