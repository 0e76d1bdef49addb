"""Plain text that grows at its end, as rows."""

from __future__ import annotations

from collections.abc import Callable

from rich.style import Style

from tui.markdown.lines import Line, styled, to_line, wrap


class GrowingText:
    """Rows of text in one style; only the line that still grows is wrapped again.

    Args:
        style: of all of it.
        width: cells of a row, at most.
        decorate: puts something before rows.
    """

    def __init__(self, style: Style, width: int, decorate: Callable[[list[Line]], list[Line]] = list) -> None:
        self._style, self._width, self._decorate = style, max(width, 1), decorate
        self._final: list[Line] = []
        self._final_end = 0

    def rows(self, text: str) -> list[Line]:
        """All rows, without blank ones at the end; `text` has grown since the last call, or is the same."""
        end = text.rfind("\n") + 1
        if end > self._final_end:
            self._final += self._wrapped(text[self._final_end : end - 1])
            self._final_end = end
        rest = text[self._final_end :]
        rows = [*self._final, *self._wrapped(rest)] if rest.strip() else list(self._final)
        while rows and not rows[-1].text[rows[-1].lead :].strip():
            rows.pop()
        return rows

    def _wrapped(self, text: str) -> list[Line]:
        rows = wrap(styled(text, self._style), self._width)
        return self._decorate([to_line(row, glue) for row, glue in rows])
