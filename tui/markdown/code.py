"""Code, highlighted."""

from __future__ import annotations

from functools import lru_cache

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import _TokenType
from pygments.util import ClassNotFound
from rich.style import Style
from rich.text import Text

from tui.markdown.lines import Line, MarkdownStyles, fold, pad, to_line

PADDING = 2
"""Cells left and right of code inside its block."""

STEP = 24
"""Lines that are highlighted together while a block grows; see `GrowingCode`."""


@lru_cache(maxsize=32)
def _lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def highlight(code: str, language: str, styles: MarkdownStyles) -> Text:
    """Code with a style for each of its tokens; plain where the language is unknown."""
    lexer = _lexer(language) if language else None
    text = Text(end="")
    if lexer is None:
        text.append(code, styles.code_block)
        return text
    for kind, value in lexer.get_tokens(code):
        text.append(value, _token_style(kind, styles))
    return text


def _token_style(kind: _TokenType, styles: MarkdownStyles) -> Style:
    known = styles.code_tokens
    parent: _TokenType | None = kind
    while parent:
        style = known.get(str(parent))
        if style is not None:
            return styles.code_block + style
        parent = parent.parent
    return styles.code_block


def code_label(info: str) -> str:
    """The language of a fence's info string."""
    return info.split()[0] if info.split() else ""


def code_rows(code: str, language: str, styles: MarkdownStyles, width: int) -> list[Line]:
    """Rows of code on the block's background, `width` cells wide."""
    inner = width - 2 * PADDING
    rows = fold(highlight(code, language.lower(), styles), inner)
    return [pad(to_line(row, glue), width, styles.code_block, PADDING) for row, glue in rows]


def label_row(language: str, styles: MarkdownStyles, width: int) -> Line:
    """The row above the code: its language, at the right edge."""
    label = Text(end="")
    room = width - PADDING
    name = language[:room]
    label.append(" " * max(room - len(name), 0), styles.code_label)
    label.append(name, styles.code_label)
    return pad(to_line(label), width, styles.code_label)


class GrowingCode:
    """Rows of a code block that is still being written.

    A lexer has no state that could be kept, so highlighting the whole block again for each new line would
    cost more the longer it gets. Rows are made final in steps of `STEP` lines and only the last lines are
    highlighted again; a string that spans such a border is mended when the block is complete.
    """

    def __init__(self, language: str, styles: MarkdownStyles, width: int) -> None:
        self._language, self._styles, self._width = language, styles, width
        self._final: list[Line] = []
        self._final_lines = 0

    def rows(self, code: str) -> list[Line]:
        """All rows of the block; `code` has grown since the last call, or is the same."""
        lines = code.split("\n")
        while len(lines) - self._final_lines > 2 * STEP:
            step = lines[self._final_lines : self._final_lines + STEP]
            self._final += self._render("\n".join(step))
            self._final_lines += STEP
        return self._final + self._render("\n".join(lines[self._final_lines :]))

    def _render(self, code: str) -> list[Line]:
        return code_rows(code, self._language, self._styles, self._width)
