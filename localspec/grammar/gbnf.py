"""A reader of GBNF, llama.cpp's notation of grammars, that finds every fault before native code does.

llama.cpp says on standard error alone what is wrong with a grammar, and some grammars end its process or keep
it busy for good: deep nesting overflows its stack, and a rule that calls itself behind parts that may all be
empty is expanded without end. Here both are sentences.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass, field

from localspec.errors import UsageError

ROOT = "root"
MOST_REPEATS = 2000
"""Largest count in braces: llama.cpp reads a larger maximum as "any number"."""
_MOST_CHARACTERS = 262_144
_MOST_DEPTH = 200
_MOST_ELEMENTS = 50_000
"""Elements once repetitions are written out; llama.cpp copies them with every state."""
_MOST_WAYS = 10_000
_WORD = frozenset(string.ascii_letters + string.digits + "-")
_ESCAPES = {"x": 2, "u": 4, "U": 8} | dict.fromkeys('tnr\\"[]-', 0)
_UNBOUNDED = -1


@dataclass(slots=True)
class _Part:
    """One item of a sequence.

    Attributes:
        rule: the rule that it calls, if any.
        optional: whether it may match nothing, whatever that rule matches.
        size: elements that llama.cpp writes for it.
        rules: rules that llama.cpp writes for it, repetitions multiplied.
    """

    rule: str | None
    optional: bool = False
    size: int = 1
    rules: int = 1


_Sequence = list[_Part]


@dataclass(slots=True)
class _Rule:
    """Alternatives of one rule, and the place that defines it; groups in brackets are rules too."""

    place: int
    alternatives: list[_Sequence] = field(default_factory=list)


def check_grammar(text: str) -> frozenset[str]:
    """Check that llama.cpp can use a grammar.

    Returns:
        The tokens that it names as tokens, as they are written: "<[7]>" or "<|end|>".

    Raises:
        UsageError: the grammar is empty, does not parse, has no rule "root", calls a rule that is not there
            or a rule that begins with itself, or is too large.
    """
    if not text.strip():
        raise UsageError('The grammar is empty; give it at least a rule "root".')
    if len(text) > _MOST_CHARACTERS:
        raise UsageError(
            f"The grammar has {len(text)} characters, and {_MOST_CHARACTERS} are the most; shorten it."
        )
    reader = _Reader(text)
    reader.read()
    if not reader.rules:
        raise UsageError('The grammar has no rules; give it at least a rule "root".')
    if ROOT not in reader.rules:
        raise UsageError(f'The grammar has no rule "{ROOT}", with which a reply begins; add one.')
    for name, place in reader.calls.items():
        if name not in reader.rules:
            raise _fault(text, place, f'there is no rule "{name}"; define it')
    _check_beginnings(text, reader.rules)
    return frozenset(reader.tokens)


class _Reader:
    """Reads the text once, from the first rule to the last."""

    def __init__(self, text: str) -> None:
        self.rules: dict[str, _Rule] = {}
        self.calls: dict[str, int] = {}
        self.tokens: set[str] = set()
        self._text = text
        self._place = 0
        self._depth = 0
        self._elements = 0
        self._made = 0

    def read(self) -> None:
        """All rules; raises `UsageError` at the first fault."""
        if "\0" in self._text:
            raise self._fault("a NUL character ends the text", self._text.index("\0"))
        self._skip(lines=True)
        while self._place < len(self._text):
            start = self._place
            name = self._name()
            self._skip(lines=False)
            self._expect("::=")
            self._skip(lines=True)
            # A later definition replaces an earlier one, as in llama.cpp.
            self.rules[name] = self._alternatives(start, nested=False)
            if self._place < len(self._text) and self._text[self._place] not in "\r\n":
                raise self._fault("here an item, '|' or the end of the line is expected")
            self._skip(lines=True)

    def _alternatives(self, start: int, *, nested: bool) -> _Rule:
        rule = _Rule(start)
        while True:
            sequence = self._sequence(nested=nested)
            rule.alternatives.append(sequence)
            self._elements += sum(part.size for part in sequence) + 1
            if self._elements > _MOST_ELEMENTS:
                raise self._fault("with its repetitions written out the grammar becomes too large")
            if not self._next_is("|"):
                return rule
            self._place += 1
            self._skip(lines=True)

    def _sequence(self, *, nested: bool) -> _Sequence:
        parts: _Sequence = []
        while self._place < len(self._text):
            character = self._text[self._place]
            if character == '"':
                parts.append(self._literal())
            elif character == "[":
                parts.append(self._characters())
            elif character in "<!":
                parts.append(self._token())
            elif character in _WORD:
                start = self._place
                name = self._name()
                self.calls.setdefault(name, start)
                parts.append(_Part(name))
            elif character == "(":
                parts.append(self._group())
            elif character == ".":
                self._place += 1
                parts.append(_Part(None))
            elif character in "*+?{":
                if not parts:
                    raise self._fault(f"'{character}' repeats nothing")
                self._repeat(parts[-1], character)
            else:
                break
            self._skip(lines=nested)
        return parts

    def _group(self) -> _Part:
        start = self._place
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise self._fault(f"brackets are nested deeper than {_MOST_DEPTH} levels")
        self._place += 1
        self._skip(lines=True)
        # No rule of the text can have such a name.
        name = f"({self._place}"
        made = self._made
        self.rules[name] = self._alternatives(start, nested=True)
        self._expect(")")
        self._depth -= 1
        self._made += 1
        return _Part(name, rules=self._made - made)

    def _literal(self) -> _Part:
        start = self._place
        self._place += 1
        count = 0
        while not self._next_is('"'):
            self._character(start, "a text in quotes is not closed")
            count += 1
        self._place += 1
        return _Part(None, optional=count == 0, size=count)

    def _characters(self) -> _Part:
        start = self._place
        self._place += 2 if self._text.startswith("[^", start) else 1
        count = 0
        while not self._next_is("]"):
            low = self._character(start, "a class of characters is not closed by ']'")
            count += 1
            if self._next_is("-") and not self._text.startswith("-]", self._place):
                self._place += 1
                begin = self._place
                high = self._character(start, "a class of characters is not closed by ']'")
                count += 1
                if high < low:
                    raise self._fault("a range of characters ends before it begins", begin)
        self._place += 1
        return _Part(None, optional=count == 0, size=count)

    def _character(self, start: int, unclosed: str) -> int:
        """Code point of one character or escape."""
        text = self._text
        if self._place >= len(text):
            raise self._fault(unclosed, start)
        character = text[self._place]
        if character != "\\":
            self._place += 1
            return ord(character)
        kind = text[self._place + 1 : self._place + 2]
        if kind not in _ESCAPES or not kind:
            raise self._fault(f"there is no escape '\\{kind}'")
        digits = text[self._place + 2 : self._place + 2 + _ESCAPES[kind]]
        if len(digits) < _ESCAPES[kind] or not set(digits) <= set(string.hexdigits):
            raise self._fault(f"'\\{kind}' needs {_ESCAPES[kind]} hexadecimal digits")
        self._place += 2 + len(digits)
        return int(digits, 16) if digits else ord({"t": "\t", "n": "\n", "r": "\r"}.get(kind, kind))

    def _token(self) -> _Part:
        if self._next_is("!"):
            self._place += 1
            if not self._next_is("<"):
                raise self._fault("'!' stands only before a token in '<' and '>'")
        end = self._text.find(">", self._place)
        if end < 0:
            raise self._fault("a token is not closed by '>'")
        name = self._text[self._place : end + 1]
        if name.startswith("<[") and not (name[2:-2].isdecimal() and name[-2] == "]" and len(name) < 14):
            raise self._fault("a token's number looks like <[7]>")
        self.tokens.add(name)
        self._place = end + 1
        return _Part(None)

    def _repeat(self, part: _Part, sign: str) -> None:
        least, most = {"*": (0, _UNBOUNDED), "+": (1, _UNBOUNDED), "?": (0, 1), "{": (0, 0)}[sign]
        self._place += 1
        if sign == "{":
            least, most = self._counts()
        part.optional = part.optional or least == 0
        part.rules *= max(least, most, 1)
        if part.rules > MOST_REPEATS:
            raise self._fault(f"repetitions within repetitions multiply to more than {MOST_REPEATS}")
        # Beyond the least, each further time is a rule of its own, that calls the next one.
        further = 1 if most == _UNBOUNDED else most - least
        part.size = part.size * least + (part.size + 3) * further
        self._made += further

    def _counts(self) -> tuple[int, int]:
        self._skip(lines=True)
        least = most = self._count()
        if self._next_is(","):
            self._place += 1
            self._skip(lines=True)
            most = _UNBOUNDED if self._next_is("}") else self._count()
        self._expect("}")
        if most != _UNBOUNDED and most < least:
            raise self._fault("a repetition ends before it begins")
        return least, most

    def _count(self) -> int:
        start = self._place
        while self._place < len(self._text) and self._text[self._place] in string.digits:
            self._place += 1
        digits = self._text[start : self._place]
        if not digits:
            raise self._fault("a number is expected")
        if len(digits) > 9 or int(digits) > MOST_REPEATS:
            raise self._fault(f"a repetition has a count above {MOST_REPEATS}", start)
        self._skip(lines=True)
        return int(digits)

    # --- small steps

    def _name(self) -> str:
        start = self._place
        while self._place < len(self._text) and self._text[self._place] in _WORD:
            self._place += 1
        if self._place == start:
            raise self._fault("the name of a rule is expected")
        return self._text[start : self._place]

    def _expect(self, sign: str) -> None:
        if not self._text.startswith(sign, self._place):
            raise self._fault(f"'{sign}' is expected")
        self._place += len(sign)

    def _next_is(self, sign: str) -> bool:
        return self._text.startswith(sign, self._place)

    def _skip(self, *, lines: bool) -> None:
        """Blanks and comments, and ends of lines too where an item may go on in the next one."""
        text = self._text
        blank = " \t\r\n" if lines else " \t"
        while self._place < len(text):
            if text[self._place] == "#":
                while self._place < len(text) and text[self._place] not in "\r\n":
                    self._place += 1
            elif text[self._place] in blank:
                self._place += 1
            else:
                break

    def _fault(self, what: str, place: int | None = None) -> UsageError:
        return _fault(self._text, self._place if place is None else place, what)


def _fault(text: str, place: int, what: str) -> UsageError:
    line = text.count("\n", 0, place) + 1
    return UsageError(f"The grammar, line {line}: {what}.")


def _check_beginnings(text: str, rules: dict[str, _Rule]) -> None:
    """Raise `UsageError` for a rule that can begin with itself, or in too many ways.

    Both are what llama.cpp writes out before the first character: the former has no end, and the ways double
    with every rule whose alternatives begin with the same other rule.
    """
    empty = _may_be_empty(rules)
    begins = {name: list(_begins_with(rule, empty)) for name, rule in rules.items()}
    ways: dict[str, int] = {}
    for start in rules:
        # Depth first, without Python's own stack: chains of rules may be long.
        path: list[str] = []
        on_path: set[str] = set()
        waiting: list[Iterator[str | None]] = [iter((start,))]
        while waiting:
            name = next(waiting[-1], "")
            if name == "":
                waiting.pop()
                if path:
                    done = path.pop()
                    on_path.discard(done)
                    ways[done] = sum(1 if other is None else ways[other] for other in begins[done])
                    if ways[done] > _MOST_WAYS:
                        what = f"the rule can begin in more than {_MOST_WAYS} ways; simplify it"
                        raise _fault(text, rules[done].place, what)
            elif name is None or name in ways:
                continue
            elif name in on_path:
                what = "the rule begins with itself (left recursion), without end; put something before that"
                raise _fault(text, rules[name].place, what)
            else:
                path.append(name)
                on_path.add(name)
                waiting.append(iter(begins[name]))


def _may_be_empty(rules: dict[str, _Rule]) -> set[str]:
    """Names of the rules that match the empty text."""
    callers: dict[str, list[str]] = {name: [] for name in rules}
    for name, rule in rules.items():
        for part in (part for parts in rule.alternatives for part in parts):
            if part.rule is not None:
                callers[part.rule].append(name)
    empty: set[str] = set()
    waiting = list(rules)
    while waiting:
        name = waiting.pop()
        sequences = rules[name].alternatives
        if name not in empty and any(
            all(part.optional or part.rule in empty for part in parts) for parts in sequences
        ):
            empty.add(name)
            waiting += callers[name]
    return empty


def _begins_with(rule: _Rule, empty: set[str]) -> Iterator[str | None]:
    """The rules that may stand at the very beginning of `rule`, None for characters there."""
    for parts in rule.alternatives:
        for part in parts:
            yield part.rule
            if not part.optional and part.rule not in empty:
                break
