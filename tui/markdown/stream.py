"""A reply that is being written: finished blocks are drawn once, only the last one again."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from tui.markdown.code import GrowingCode, code_label, label_row
from tui.markdown.lines import BLANK, Line
from tui.markdown.parse import Block, number_of, parse
from tui.markdown.plain import GrowingText
from tui.markdown.render import MarkdownRenderer

# A last line of dashes or backticks alone is not decided yet: shown at once, "-" would turn the line above
# into a heading for a moment, and half of a closing fence would be a line of code.
_UNDECIDED = re.compile(r"(?:^|\n)[ \t]*(?:[-=]+|`{1,2})[ \t]*$")


LARGE = 6000
"""Characters of the last block (a huge table, say) from which on it is not drawn again with every piece."""

GROWTH = 1.5
"""A large block is drawn again when it is so many times as long; until then, what is new follows as it is."""

HUGE = 60_000
"""Characters from which on it is not drawn again before its end: that would take a good part of a second."""


class MarkdownStream:
    """Rows of Markdown that grows at its end.

    `lines` always holds all rows. What is already final is never parsed or drawn again, so the cost of
    `append` does not depend on the length of the reply, and hardly on that of its last block. After `finish`
    the rows are those that `MarkdownRenderer.render` gives for the whole source, whatever the pieces were.
    """

    def __init__(self, renderer: MarkdownRenderer) -> None:
        self._renderer = renderer
        self._env: dict[str, Any] = {}
        self._source = ""
        self._tail_start = 0
        self._final: list[Line] = []
        self._head: Block | None = None
        self._code: GrowingCode | None = None
        self._open: list[Line] = []
        self._open_length = 0
        self._plain: GrowingText | None = None
        self.lines: list[Line] = []

    @property
    def source(self) -> str:
        """All text so far."""
        return self._source

    def append(self, text: str) -> int:
        """Add text; returns the index of the first row that may have changed."""
        self._source += text
        length = len(self._source) - self._tail_start
        if self._code is None and self._is_dear(length):
            self.lines = self._final + self._open + self._rest()
            return len(self._final) + len(self._open)
        changed = len(self._final)
        tail = _UNDECIDED.sub("", self._source[self._tail_start :])
        self._open = self._draw(tail)
        self._open_length = len(self._source) - self._tail_start
        self._plain = None
        self.lines = self._final + self._open
        return changed

    def finish(self) -> int:
        """Draw everything once more as a whole; returns the index of the first row that changed."""
        before = self.lines
        self.lines = self._renderer.render(self._source)
        self._final, self._tail_start = self.lines, len(self._source)
        same = 0
        for old, new in zip(before, self.lines, strict=False):
            if old.strip != new.strip:
                break
            same += 1
        return same

    def _is_dear(self, length: int) -> bool:
        """Whether to draw the last block, of so many characters, again costs more than it is worth."""
        drawn = self._open_length
        return drawn > LARGE and (length < drawn * GROWTH or drawn > HUGE)

    def _rest(self) -> list[Line]:
        """Rows of what follows the part of the last block that is drawn."""
        if self._plain is None:
            self._plain = GrowingText(self._renderer.styles.dim, self._renderer.width)
        return self._plain.rows(self._source[self._tail_start + self._open_length :])

    def _draw(self, tail: str) -> list[Line]:
        """Rows of the part that is not final; moves the border of what is."""
        head = self._head
        blocks = parse(tail, self._env, number_of(head) if head else None)
        if head is not None and blocks and blocks[0].kind == head.kind:
            # The line before it is out of view by now.
            blocks[0] = replace(blocks[0], gap=head.gap)
        complete = tail.count("\n")
        keep = max(len(blocks) - 1, 0)
        # The border moves only where the first line of the block after it is complete: until then that
        # line may still turn out to continue the block before it.
        while keep > 0 and blocks[keep].first_line >= complete:
            keep -= 1
        for block in blocks[:keep]:
            self._final += self._renderer.block(block, first=not self._final)
        if keep > 0:
            self._head, self._code = blocks[keep], None
            lines = tail.split("\n")
            self._tail_start += sum(len(line) + 1 for line in lines[: blocks[keep].first_line])
        rows: list[Line] = []
        for index, block in enumerate(blocks[keep:]):
            first = not (self._final or rows)
            if index == 0 and block.kind == "fence" and block.first_line < complete:
                rows += self._growing(block, first=first)
            else:
                rows += self._renderer.block(block, first=first)
        return rows

    def _growing(self, block: Block, *, first: bool) -> list[Line]:
        """Rows of a fence that is still open, or was a moment ago."""
        token = block.tokens[0]
        styles, width = self._renderer.styles, self._renderer.width
        language = code_label(token.info)
        if self._code is None:
            self._code = GrowingCode(language, styles, width)
        rows = [label_row(language, styles, width), *self._code.rows(token.content.removesuffix("\n"))]
        return rows if first else [BLANK, *rows]
