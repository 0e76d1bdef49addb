"""Long messages as they are shown: their beginning and their end, or nearly all of them."""

from __future__ import annotations

MOST_LINES = 24
MOST_CHARACTERS = 4000
"""Messages within these bounds are shown whole."""

HEAD_LINES, TAIL_LINES = 8, 4
"""Lines of a longer one that are shown."""

LINE_CHARACTERS = 400
"""Characters of such a line that are shown."""

UNFOLDED_LINES = 2000
UNFOLDED_CHARACTERS = 100_000
"""What is shown at most of a message that is unfolded: all of a pasted megabyte would hold up the app."""

_LOOKED_AT = HEAD_LINES * LINE_CHARACTERS * 4
"""Characters of either end that lines are looked for in: a message may be megabytes long."""

Parts = tuple[str, str, str]
"""What is shown of a text: its beginning, a count of what is left out, and its end; "" for none."""


def is_long(text: str) -> bool:
    """Whether a message is shown folded."""
    return len(text) > MOST_CHARACTERS or text.count("\n") >= MOST_LINES


def folded(text: str) -> Parts:
    """A long message as it is shown at first."""
    lines = text.count("\n") + 1
    head = text[:_LOOKED_AT].split("\n")[:HEAD_LINES]
    # Where there are few lines, one is not shown at both ends.
    count = min(TAIL_LINES, max(lines - HEAD_LINES, 0))
    tail = text[-_LOOKED_AT:].split("\n")[-count:] if count else []
    out = lines - len(head) - len(tail)
    gap = _gap(out, "more line") if out > 0 else "⋯"
    return "\n".join(map(_cut, head)), gap, "\n".join(map(_cut, tail))


def unfolded(text: str) -> Parts:
    """A long message as it is shown when somebody wants to see it."""
    shown = "\n".join(text[:UNFOLDED_CHARACTERS].split("\n", UNFOLDED_LINES)[:UNFOLDED_LINES])
    out = len(text) - len(shown)
    return shown, _gap(out, "more character") if out else "", ""


def heading(text: str, key: str, *, whole: bool) -> str:
    """The row over a long message that folds and unfolds it; `key` does so too."""
    lines = counted(text.count("\n") + 1, "line")
    return f"▾ {lines}" if whole else f"▸ {lines} · {key}"


def counted(number: int, word: str) -> str:
    """A number with its word, such as "312 lines"."""
    return f"{number:,} {word}{'' if number == 1 else 's'}"


def _gap(number: int, word: str) -> str:
    return f"⋯ {counted(number, word)} ⋯"


def _cut(line: str) -> str:
    if len(line) <= LINE_CHARACTERS:
        return line
    return f"{line[:LINE_CHARACTERS]} ⋯ {counted(len(line) - LINE_CHARACTERS, 'more character')}"
