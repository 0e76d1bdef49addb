"""Where chat templates run: they are code from a file of unknown origin.

Jinja's immutable sandbox keeps a template away from Python's internals; this one also bounds its time and the
size of what it builds, so that a broken template is an error and not a hang. It is no wall against memory:
what slips through ends the engine's process, not the app. Otherwise templates find what they find in Hugging
Face's renderer.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from datetime import datetime
from types import BuiltinMethodType, MethodType
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes, pass_eval_context
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import do_join, make_attrgetter
from jinja2.meta import find_undeclared_variables
from jinja2.nodes import EvalContext
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from localspec.chat.bounds import Bounds, check_arithmetic, check_filter, check_method, check_size, joinable

MAX_SOURCE = 128 * 1024
"""Characters of a template; the longest in use have about 20 thousand."""
_LONGEST_DATE = 100


class TemplateRefusalError(TemplateError):
    """The template itself called `raise_exception`, say because it knows no system role."""


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """A sandbox for one chat template; used by one thread."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols])
        self._bounds = Bounds()
        self.filters["tojson"] = _to_json
        self.filters["join"] = _join
        self.filters = {name: self._bounded(name, function) for name, function in self.filters.items()}
        self.tests = {name: self._ticking(function) for name, function in self.tests.items()}
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now
        # No chat template has a use for these: one writes filler text, and the filters take time without end.
        del self.globals["lipsum"]
        for name in ("striptags", "urlize", "xmlattr", "pprint"):
            del self.filters[name]

    def expand(self, source: str) -> Callable[[dict[str, Any]], str]:
        """Compile a template to a function from variables to text; either may raise anything at all."""
        if len(source) > MAX_SOURCE:
            raise SecurityError(f"it has {len(source):,} characters, more than {MAX_SOURCE:,}")
        self._bounds.start()
        tree = _Guard().visit(self.parse(source))
        template = self.from_string(tree)

        def render(variables: dict[str, Any]) -> str:
            self._bounds.start(len(variables.get("messages", ())))
            pieces: list[str] = []
            size = 0
            for piece in template.generate(variables):
                size += len(piece)
                check_size(size)
                self._bounds.tick()
                pieces.append(piece)
            return "".join(pieces)

        return render

    def variables(self, source: str) -> set[str]:
        """Names that a template reads and does not set itself; for one that `expand` could compile."""
        return find_undeclared_variables(self.parse(source))

    def tick(self) -> str:
        """Called once a loop iteration and once a macro call; raises when the time is over."""
        self._bounds.tick()
        return ""

    def looked(self, value: Any) -> Any:
        """Called with the condition of a loop, once for each item."""
        self._bounds.tick()
        return value

    def made(self, value: Any) -> Any:
        """Called with what is written, with slices, and with lists and dictionaries that are spelled out."""
        return self._bounds.checked(value)

    def join(self, *parts: object) -> str:
        """The operator `~`."""
        return "".join(map(str, joinable("", parts)))

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`str.format` and `str.format_map`: Jinja keeps them from Python, this keeps them within bounds."""
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        @functools.wraps(wrapped)
        def bounded(*args: Any, **kwargs: Any) -> str:
            check_method(value, args, kwargs)
            return wrapped(*args, **kwargs)

        return bounded

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call something from inside a template, within bounds."""
        if isinstance(obj, MethodType) and obj.__self__ is self:
            # One of the calls that `_Guard` has put there.
            return obj(*args)
        self._bounds.tick()
        if isinstance(obj, BuiltinMethodType):
            check_method(obj, args, kwargs)
            if obj.__name__ == "join" and isinstance(obj.__self__, str) and args:
                args = (joinable(obj.__self__, args[0]), *args[1:])
        return self._bounds.checked(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Arithmetic whose result could be huge is refused before it is computed."""
        check_arithmetic(operator, left, right)
        return self._bounds.checked(super().call_binop(context, operator, left, right))

    def _ticking(self, function: Any) -> Callable[..., Any]:
        @functools.wraps(function)
        def ticking(*args: Any, **kwargs: Any) -> Any:
            # The filter `select` may call a test a hundred thousand times.
            self._bounds.tick()
            return function(*args, **kwargs)

        return ticking

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        # Some filters get a context before the value.
        first = 1 if hasattr(function, "jinja_pass_arg") else 0

        @functools.wraps(function)
        def bounded(*args: Any, **kwargs: Any) -> Any:
            check_filter(name, args[first:], kwargs)
            self._bounds.tick()
            return self._bounds.checked(function(*args, **kwargs))

        return bounded


class _Guard(NodeTransformer):
    """Puts a call of `tick` into every loop and macro, and sends what is made through `made` and `join`."""

    def visit_Output(self, node: nodes.Output) -> nodes.Output:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [
            part if isinstance(part, nodes.TemplateData) else _call("made", [part]) for part in node.nodes
        ]
        return node

    def visit_List(self, node: nodes.List) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        return _call("made", [node])

    def visit_Dict(self, node: nodes.Dict) -> nodes.Call:  # noqa: N802
        self.generic_visit(node)
        return _call("made", [node])

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _call("made", [node]) if isinstance(node.arg, nodes.Slice) else node

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _call("made", [node]) if node.ctx == "load" else node

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        node.body.insert(0, _tick(node.lineno))
        if isinstance(node.test, nodes.Expr):
            node.test = _call("looked", [node.test])
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
        return _call("join", node.nodes)


def _tick(line: int) -> nodes.ExprStmt:
    return nodes.ExprStmt(_call("tick", [], line), lineno=line)


def _call(name: str, arguments: list[nodes.Expr], line: int | None = None) -> nodes.Call:
    """A call of a method of the environment, which templates cannot name themselves."""
    method = nodes.EnvironmentAttribute(name)
    place = arguments[0].lineno if arguments else line
    return nodes.Call(method, arguments, [], None, None, lineno=place)


class _GenerationTag(Extension):
    """`{% generation %}` marks what a model said, for training; for a prompt its body is all there is."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The body alone."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


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


@pass_eval_context
def _join(context: EvalContext, value: Any, d: str = "", attribute: str | int | None = None) -> Any:
    if attribute is not None:
        value = map(make_attrgetter(context.environment, attribute), value)
    return do_join(context, joinable(str(d), value), d)


def _raise_exception(message: object) -> NoReturn:
    raise TemplateRefusalError(str(message))


def _strftime_now(form: str) -> str:
    if len(form) > _LONGEST_DATE:
        raise SecurityError("it writes dates that are too long")
    return datetime.now().strftime(form)
