"""Long messages as they are shown: their beginning and their end."""

from __future__ import annotations

MOST_LINES = 24
MOST_CHARACTERS = 4000
"""Messages within these bounds are shown whole."""

HEAD_LINES, TAIL_LINES = 8, 4
"""Lines of a longer one that are shown."""

LINE_CHARACTERS = 400
"""Characters of such a line that are shown."""

_LOOKED_AT = HEAD_LINES * LINE_CHARACTERS * 4
"""Characters of either end that lines are looked for in: a message may be megabytes long."""


def folded(text: str) -> str:
    """A message as it is shown; of a long one, what is left out is counted."""
    lines = text.count("\n") + 1
    if lines <= MOST_LINES and len(text) <= MOST_CHARACTERS:
        return text
    head = text[:_LOOKED_AT].split("\n")[:HEAD_LINES]
    # Where there are few lines, one is not shown at both ends.
    count = min(TAIL_LINES, max(lines - HEAD_LINES, 0))
    tail = text[-_LOOKED_AT:].split("\n")[-count:] if count else []
    out = lines - len(head) - len(tail)
    gap = f"⋯ {counted(out, 'more line')} ⋯" if out > 0 else "⋯"
    return "\n".join([*map(_cut, head), gap, *map(_cut, tail)])


def counted(number: int, word: str) -> str:
    """A number with its word, such as "312 lines"."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _cut(line: str) -> str:
    if len(line) <= LINE_CHARACTERS:
        return line
    return f"{line[:LINE_CHARACTERS]} ⋯ {counted(len(line) - LINE_CHARACTERS, 'more character')}"
