"""Where chat templates run: they are code from a file of unknown origin.

Jinja's immutable sandbox keeps a template away from Python's internals; this one also bounds its time and the
size of what it builds, so that a broken template is an error and not a hang. It is no wall against memory:
what slips through ends the engine's process, not the app. Otherwise templates find what they find in Hugging
Face's renderer.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from types import BuiltinMethodType
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_SOURCE = 256 * 1024
"""Characters of a template; the longest in use have about 20 thousand."""
MAX_VALUE = 16 * 1024 * 1024
"""Characters (or items) of any value that a template builds, its output included."""
MAX_NUMBER = 1 << 53
MAX_SECONDS = 2.0
"""CPU time of one rendering; an ordinary one takes milliseconds."""
_PADDING_FILTERS = {"batch", "center", "indent", "slice", "wordwrap"}


class TemplateRefusalError(TemplateError):
    """The template itself called `raise_exception`, say because it knows no system role."""


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox for one chat template; used by one thread."""

    intercepted_binops = frozenset({"+", "*", "**"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
        self._deadline = float("inf")
        self.filters["tojson"] = _to_json
        self.filters = {name: self._bounded(name, function) for name, function in self.filters.items()}
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        # Writes filler text of any length; no chat template has a use for it.
        del self.globals["lipsum"]

    def expand(self, source: str) -> Callable[[dict[str, Any]], str]:
        """Compile a template to a function from variables to text; either may raise anything at all."""
        if len(source) > MAX_SOURCE:
            raise SecurityError(f"it has {len(source):,} characters, more than {MAX_SOURCE:,}")
        self._start_clock()
        tree = _Guard().visit(self.parse(source))
        template = self.from_string(tree)

        def render(variables: dict[str, Any]) -> str:
            self._start_clock()
            pieces: list[str] = []
            size = 0
            for piece in template.generate(variables):
                size += len(piece)
                _check_size(size)
                self.tick()
                pieces.append(piece)
            return "".join(pieces)

        return render

    def tick(self) -> str:
        """Called once a loop iteration and once a macro call; raises when the time is over."""
        if time.thread_time() > self._deadline:
            raise SecurityError(f"it ran for more than {MAX_SECONDS:g} seconds")
        return ""

    def join(self, *parts: object) -> str:
        """The operator `~`."""
        text = "".join(map(str, parts))
        _check_size(len(text))
        return text

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call something from inside a template, within bounds."""
        if isinstance(obj, BuiltinMethodType):
            _check_widths(args)
        self.tick()
        return _checked(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic whose result could be huge is refused before it is computed."""
        if operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, Sequence) and isinstance(times, int):
                    _check_size(len(sequence) * times)
        if operator != "+" and isinstance(left, int) and isinstance(right, int):
            result = float(left) ** right if operator == "**" else left * right
            if max(abs(left), abs(right), abs(result)) > MAX_NUMBER:
                raise SecurityError("it computes with numbers that are too large")
        return _checked(super().call_binop(context, operator, left, right))

    def _start_clock(self) -> None:
        self._deadline = time.thread_time() + MAX_SECONDS

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            if name in _PADDING_FILTERS:
                _check_widths((*args, *kwargs.values()))
            self.tick()
            return _checked(function(*args, **kwargs))

        return bounded


class _Guard(NodeTransformer):
    """Puts a call of `tick` into every loop and macro, and sends `~` through `join`."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _tick(node.lineno))
        return node

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _tick(node.lineno))
        return node

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.AssignBlock:  # noqa: N802
        self.generic_visit(node)
        if node.filter is None:
            # A filter that changes nothing, but whose result is checked like that of every filter.
            node.filter = nodes.Filter(None, "string", [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        join = nodes.EnvironmentAttribute("join")
        return nodes.Call(join, node.nodes, [], None, None, lineno=node.lineno)


def _tick(line: int) -> nodes.ExprStmt:
    call = nodes.Call(nodes.EnvironmentAttribute("tick"), [], [], None, None, lineno=line)
    return nodes.ExprStmt(call, lineno=line)


class _GenerationTag(Extension):
    """`{% generation %}` marks what a model said, for training; for a prompt its body is all there is."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _check_size(size: int) -> None:
    if size > MAX_VALUE:
        raise SecurityError(f"it builds more than {MAX_VALUE:,} characters")


def _check_widths(arguments: Sequence[Any]) -> None:
    for value in arguments:
        if isinstance(value, int):
            _check_size(value)


def _checked(value: Any) -> Any:
    if isinstance(value, str | list | tuple | dict):
        _check_size(len(value))
    return value


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Not Jinja's own: that one writes HTML's entities.
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRefusalError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)
