"""Code blocks inside Markdown, for copying."""

from __future__ import annotations

from tui.markdown.parse import parse


def last_fence(source: str) -> str:
    """The content of the last code block, at any depth; empty where there is none."""
    codes = [
        token.content
        for block in parse(source, {})
        for token in block.tokens
        if token.type in ("fence", "code_block")
    ]
    return codes[-1] if codes else ""
