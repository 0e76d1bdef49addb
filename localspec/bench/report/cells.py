"""Markdown tables: cells that cannot break out of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from localspec.bench.pooling import clean

_SPECIAL = str.maketrans({char: f"\\{char}" for char in "\\`*|[]"} | {"<": "&lt;", ">": "&gt;"})


def escaped(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return clean(text).translate(_SPECIAL)


def table(head: Sequence[str], lines: Iterable[Sequence[str]], words: int = 1) -> str:
    """A table whose first `words` columns are words and the others numbers; "" without lines."""
    body = [[escaped(cell) for cell in line] for line in lines]
    if not body:
        return ""
    rule = ["---" if place < words else "---:" for place in range(len(head))]
    return (
        "\n".join("| " + " | ".join(line) + " |" for line in (list(map(escaped, head)), rule, *body)) + "\n"
    )


def bullets(lines: Iterable[str]) -> str:
    """A list; "" without lines."""
    return "".join(f"- {line}\n" for line in lines)
