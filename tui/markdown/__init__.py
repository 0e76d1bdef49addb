"""Markdown as styled lines: parsed in blocks, so that a growing reply costs only its last block."""

from tui.markdown.lines import Line, MarkdownStyles
from tui.markdown.render import MarkdownRenderer
from tui.markdown.stream import MarkdownStream

__all__ = ["Line", "MarkdownRenderer", "MarkdownStream", "MarkdownStyles"]
