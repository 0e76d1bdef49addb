"""Code blocks inside Markdown, for copying."""

from __future__ import annotations

from tui.markdown.parse import parse


def fences(source: str) -> list[str]:
    """The contents of all code blocks, at any depth."""
    return [
        token.content
        for block in parse(source, {})
        for token in block.tokens
        if token.type in ("fence", "code_block")
    ]


def last_fence(source: str) -> str:
    """The content of the last code block; empty where there is none."""
    return next(reversed(fences(source)), "")
