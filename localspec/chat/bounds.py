"""What a chat template may build, and for how long it may run.

Python checks no sizes: `'x'.replace('x', y)` and lists that hold others twice, fifty levels deep, are short
to write. So sizes are worked out before the work is done where they can be, and what was built is added up.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.utils import Namespace

MAX_VALUE = 16 * 1024 * 1024
"""Characters of any value that a template builds, its output included."""
MAX_BUILT = 32 * MAX_VALUE
"""The same of all values of one rendering together."""
MAX_COUNT = 100_000
"""Items of a list that is made by counting; the limit of `range` in Jinja's sandbox, too."""
MAX_NUMBER = 1 << 53
MAX_COMPARED = 10**9
"""Comparisons of characters in one search."""
MAX_SECONDS = 2.0
"""CPU time of one rendering; an ordinary one takes milliseconds."""
SECONDS_A_MESSAGE = 0.01
"""What each message adds to that: some templates look at all messages for each one of them."""
_TICKS_A_LOOK = 16
_ITEM, _HEAVY = 16, 10_000

_WIDE = re.compile(r"%(\([^)]*\))?[^%a-zA-Z]*\d{5}|\{[^{}]*\d{5}")
_THREE_DIGITS = re.compile(r"\d{3}")
_WIDTH_GIVEN = re.compile(r"%[^%a-zA-Z]*\*|\{[^{}]*\{")
_LARGEST = {
    **dict.fromkeys(("center", "indent", "wordwrap"), MAX_VALUE),
    **dict.fromkeys(("batch", "slice"), MAX_COUNT),
    "round": 100,
    "tojson": 64,
}
"""Numbers that a filter may be given at most; those of other filters cost nothing."""


class Bounds:
    """What one rendering has used so far; for one thread."""

    def __init__(self) -> None:
        self._deadline = self._seconds = float("inf")
        self._built = self._ticks = 0

    def start(self, messages: int = 0) -> None:
        """A new rendering begins, of so many messages."""
        self._seconds = MAX_SECONDS + SECONDS_A_MESSAGE * messages
        self._deadline = time.thread_time() + self._seconds
        self._built = self._ticks = 0

    def tick(self) -> None:
        """Raise where the time is over."""
        self._ticks += 1
        if self._ticks % _TICKS_A_LOOK == 0:
            self._look()

    def _look(self) -> None:
        if time.thread_time() > self._deadline:
            raise SecurityError(f"it ran for more than {self._seconds:.3g} seconds")

    def checked(self, value: Any) -> Any:
        """`value`, whose size is added to what was built."""
        if isinstance(value, str):
            size = len(value)
        elif isinstance(value, list | tuple | dict):
            size = weight(value)
        elif isinstance(value, int) and abs(value) > MAX_NUMBER:
            raise SecurityError("it computes with numbers that are too large")
        else:
            return value
        check_size(size)
        if size > _HEAVY:
            self._look()
        self._built += size
        if self._built > MAX_BUILT:
            raise SecurityError(f"it builds more than {MAX_BUILT:,} characters")
        return value


def check_size(size: int) -> None:
    """Raise `SecurityError` for a value that would be too large."""
    if size > MAX_VALUE:
        raise SecurityError(f"it builds more than {MAX_VALUE:,} characters")


def weight(value: object) -> int:
    """Characters of a value, an item counting as sixteen; what is held twice counts twice.

    At most `MAX_VALUE` + 1: it stops there.
    """
    total, waiting = 0, [value]
    while waiting and total <= MAX_VALUE:
        item = waiting.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, list | tuple | dict):
            total += _ITEM * len(item)
            if total <= MAX_VALUE:
                waiting.extend(item)
                waiting.extend(item.values() if isinstance(item, dict) else ())
        elif isinstance(item, Namespace):
            waiting.extend(object.__getattribute__(item, "__dict__").values())
        total += _ITEM
    return min(total, MAX_VALUE + 1)


def check_arithmetic(operator: str, left: Any, right: Any) -> None:
    """Raise `SecurityError` for an operation whose result would be too large."""
    if operator == "%":
        if isinstance(left, str):
            check_format(left, right if isinstance(right, tuple) else (right,))
        return
    if operator == "*":
        for sequence, times in ((left, right), (right, left)):
            if isinstance(sequence, Sequence) and isinstance(times, int):
                check_size(len(sequence) * times)
    if operator != "+" and isinstance(left, int) and isinstance(right, int):
        result = float(left) ** right if operator == "**" else left * right
        if max(abs(left), abs(right), abs(result)) > MAX_NUMBER:
            raise SecurityError("it computes with numbers that are too large")


def check_format(text: str, values: Iterable[Any]) -> None:
    """Raise `SecurityError` for a format whose fields would be too wide; of either of Python's kinds."""
    if _WIDE.search(text):
        raise SecurityError("it pads text too widely")
    fields = text.count("%") + text.count("{")
    # A number among the values may be the width of another one.
    width = _width if _WIDTH_GIVEN.search(text) else _length
    padding = 9999 if _THREE_DIGITS.search(text) else 0
    check_size(len(text) + fields * max(map(width, values), default=padding) + fields * padding)


def check_method(method: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise `SecurityError` for a call of a method of text whose result would be too large."""
    text, name = getattr(method, "__self__", None), method.__name__
    given = (*args, *kwargs.values())
    if name in ("format", "format_map") and isinstance(text, str):
        check_format(text, (*given, *(value for table in args for value in _values(table))))
        return
    if not isinstance(text, str | int | float):
        return
    for value in given:
        if isinstance(value, int):
            check_size(value)
    if not isinstance(text, str):
        return
    if name == "replace":
        check_replace(text, *args[:2])
    elif name == "expandtabs":
        check_size(len(text) + text.count("\t") * max((v for v in given if isinstance(v, int)), default=8))
    elif name == "translate":
        check_size(len(text) * max((_length(value) for table in args for value in _values(table)), default=1))
    elif name in ("strip", "lstrip", "rstrip"):
        _check_stripped(given)
    elif name in ("rfind", "rindex", "rsplit", "rpartition"):
        # From the end, Python may compare all of what is looked for at each character.
        if len(text) * max(map(_length, given), default=1) > MAX_COMPARED:
            raise SecurityError("it looks for too long a text")
    elif name == "encode":
        raise SecurityError("it makes bytes of text")


def check_filter(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Raise `SecurityError` for a filter whose result would be too large; the filtered value comes first."""
    value, *given = args
    others = (*given, *kwargs.values())
    if name in _LARGEST:
        for other in others:
            size = len(other) if isinstance(other, str) and name == "tojson" else other
            if isinstance(size, int) and abs(size) > _LARGEST[name]:
                raise SecurityError(f"it gives the filter {name} a number that is too large")
    if name == "replace":
        check_replace(str(value), *(str(text) for text in given[:2]))
    elif name == "format":
        check_format(str(value), others)
    elif name == "indent":
        lines = str(value).count("\n") + 1
        check_size(len(str(value)) + lines * max(map(_width, others), default=4))
    elif name == "wordwrap":
        if len(str(value)) > MAX_COUNT:
            raise SecurityError("it wraps too long a text")
        check_size(len(str(value)) * max((len(v) for v in others if isinstance(v, str)), default=1))
    elif name == "trim":
        _check_stripped(others)
    elif name == "sum" and isinstance(kwargs.get("start", given[1] if len(given) > 1 else 0), list | tuple):
        raise SecurityError("it adds up lists")


def check_replace(text: str, old: str = "", new: str = "") -> None:
    """Raise `SecurityError` where every `old` replaced by `new` makes too long a text."""
    check_size(len(text) + text.count(old) * max(len(new) - len(old), 0))


def joinable(separator: str, parts: Iterable[Any]) -> list[Any]:
    """`parts` as a list that can be joined; raises `SecurityError` where the text would be too long."""
    found = list(islice(parts, MAX_VALUE))
    check_size(sum(map(_length, found)) + len(separator) * len(found))
    return found


def _check_stripped(characters: Iterable[Any]) -> None:
    # Each character of the text is looked for among them.
    if any(isinstance(given, str) and len(given) > 1000 for given in characters):
        raise SecurityError("it strips too many characters")


def _values(table: Any) -> Iterable[Any]:
    return table.values() if isinstance(table, dict) else ()


def _width(value: Any) -> int:
    """Characters that a value takes in a text, or asks for as a width."""
    return max(abs(value), 32) if isinstance(value, int) else _length(value)


def _length(value: Any) -> int:
    """Characters that a value takes in a text, give or take a few."""
    if isinstance(value, str):
        return len(value)
    return weight(value) if isinstance(value, list | tuple | dict) else 32
