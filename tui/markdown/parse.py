"""Markdown source cut into blocks that can be drawn one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token


@dataclass(frozen=True, slots=True)
class Block:
    """A top-level block, or one item of a top-level list.

    Attributes:
        kind: the opening token's type; `list_item_open` for an item.
        tokens: all tokens of the block.
        first_line: where it starts, in lines of the source.
        end_line: the line after its last one.
        marker: what stands before an item.
        gap: whether a blank row belongs before it: always, but for items that follow a line directly.
    """

    kind: str
    tokens: Sequence[Token]
    first_line: int
    end_line: int
    marker: str = ""
    gap: bool = True


@cache
def _parser() -> MarkdownIt:
    # Without HTML: a tag that a model writes is text to be seen, not markup to be swallowed.
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def parse(source: str, env: dict[str, Any], number: int | None = None) -> list[Block]:
    """Blocks of `source`, in order.

    Args:
        source: Markdown.
        env: link definitions seen so far; new ones are added.
        number: where `source` begins with an item that continues an ordered list: its number.
    """
    lines = source.split("\n")
    blocks: list[Block] = []
    for tokens in _groups(_parser().parse(source, env)):
        opening = tokens[0]
        if opening.type in ("bullet_list_open", "ordered_list_open"):
            continued = number if not blocks and opening.type == "ordered_list_open" else None
            blocks += _items(tokens, lines, continued)
        else:
            first, end = _span(opening)
            blocks.append(Block(opening.type, tokens, first, end))
    return blocks


def number_of(block: Block) -> int | None:
    """The number of an ordered item, None for anything else."""
    return int(block.marker[:-1]) if block.marker[:-1].isdigit() else None


def children(tokens: Sequence[Token]) -> list[list[Token]]:
    """The blocks inside a container (a quote, an item), whose own two tokens are first and last."""
    return list(_groups(tokens[1:-1]))


def items(tokens: Sequence[Token]) -> Iterator[tuple[str, list[Token]]]:
    """Marker and tokens of each item of a list."""
    ordered = tokens[0].type == "ordered_list_open"
    start = tokens[0].attrGet("start")
    number = 1 if start is None else int(start)
    for group in children(tokens):
        yield (f"{number}{group[0].markup}" if ordered else "•"), group
        number += 1


def _items(tokens: Sequence[Token], lines: Sequence[str], number: int | None) -> Iterator[Block]:
    for index, (marker, group) in enumerate(items(tokens)):
        if number is not None:
            marker = f"{number + index}{marker[-1]}"
        first, end = _span(group[0])
        gap = first > 0 and not lines[first - 1].strip()
        yield Block("list_item_open", group, first, end, marker, gap)


def _span(token: Token) -> tuple[int, int]:
    if token.map is None:
        raise ValueError(f"a block token without its place: {token.type}")
    return token.map[0], token.map[1]


def _groups(tokens: Sequence[Token]) -> Iterator[list[Token]]:
    depth, group = 0, []
    for token in tokens:
        group.append(token)
        depth += token.nesting
        if depth == 0:
            yield group
            group = []
