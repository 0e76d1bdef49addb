"""Blocks of Markdown as rows of a given width."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markdown_it.token import Token
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from tui.markdown.code import code_label, code_rows, label_row
from tui.markdown.inline import inline_text
from tui.markdown.lines import BLANK, Line, MarkdownStyles, indent, styled, to_line, wrap
from tui.markdown.parse import Block, children, items, parse
from tui.markdown.table import table_rows


class MarkdownRenderer:
    """Renders blocks with given styles at a given width, in cells."""

    def __init__(self, styles: MarkdownStyles, width: int) -> None:
        self.styles = styles
        self.width = max(width, 8)

    def render(self, source: str) -> list[Line]:
        """Rows of a whole document."""
        env: dict[str, Any] = {}
        rows: list[Line] = []
        for block in parse(source, env):
            rows += self.block(block, first=not rows)
        return rows

    def block(self, block: Block, *, first: bool) -> list[Line]:
        """Rows of one block, with the blank row that sets it off from what stands before it."""
        if block.kind == "list_item_open":
            rows = self._item(block.marker, block.tokens, self.width, self.styles.text)
        else:
            rows = self._rows(block.tokens, self.width, self.styles.text)
        return rows if first or not block.gap else [BLANK, *rows]

    def _rows(self, tokens: Sequence[Token], width: int, base: Style) -> list[Line]:
        opening = tokens[0]
        match opening.type:
            case "paragraph_open":
                return _wrapped(inline_text(tokens[1], self.styles, base), width)
            case "heading_open":
                style = self.styles.heading if opening.tag in ("h1", "h2") else self.styles.subheading
                return _wrapped(inline_text(tokens[1], self.styles, base + style), width)
            case "fence" | "code_block":
                language = code_label(opening.info)
                code = opening.content.removesuffix("\n")
                rows = code_rows(code, language, self.styles, width)
                return [label_row(language, self.styles, width), *rows]
            case "bullet_list_open" | "ordered_list_open":
                return [
                    row for marker, group in items(tokens) for row in self._item(marker, group, width, base)
                ]
            case "blockquote_open":
                bar = Segment("▎ ", self.styles.marker)
                inner = self._container(tokens, width - 2, base + self.styles.dim)
                return indent(inner, bar, bar, decoration=True)
            case "hr":
                return [to_line(styled("─" * width, self.styles.dim))]
            case "table_open":
                return table_rows(tokens, self.styles, width, base)
            case _:
                return _wrapped(styled(opening.content, base), width)

    def _item(self, marker: str, tokens: Sequence[Token], width: int, base: Style) -> list[Line]:
        # Markers of one list line up on the right up to two digits, as in "9." and "10.".
        label = f"{marker} " if marker == "•" else f"{marker:>3} "
        rest = " " * len(label)
        inner = self._container(tokens, width - len(label), base) or [BLANK]
        return indent(inner, Segment(label, self.styles.marker), Segment(rest, base))

    def _container(self, tokens: Sequence[Token], width: int, base: Style) -> list[Line]:
        rows: list[Line] = []
        after = ""
        for group in children(tokens):
            kind = group[0].type
            tight = kind.endswith("_list_open") and after == "paragraph_open"
            if rows and not tight:
                rows.append(BLANK)
            rows += self._rows(group, max(width, 8), base)
            after = kind
        return rows


def _wrapped(text: Text, width: int) -> list[Line]:
    return [to_line(row, glue) for row, glue in wrap(text, width)]
