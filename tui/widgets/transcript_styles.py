"""Styles of the transcript, from the style sheet."""

from __future__ import annotations

from collections.abc import Callable

from rich.style import Style

from tui.markdown import MarkdownStyles
from tui.widgets.entries import EntryStyles

_CODE_TOKENS = {
    "Token.Comment": "comment",
    "Token.Keyword": "keyword",
    "Token.Literal.Number": "number",
    "Token.Literal.String": "string",
    "Token.Name.Builtin": "builtin",
    "Token.Name.Class": "name",
    "Token.Name.Decorator": "builtin",
    "Token.Name.Function": "name",
    "Token.Name.Tag": "keyword",
    "Token.Name.Attribute": "name",
    "Token.Operator.Word": "keyword",
    "Token.Generic.Deleted": "deleted",
    "Token.Generic.Inserted": "string",
    "Token.Generic.Heading": "keyword",
}
"""Pygments' token types that have a colour, and the component class of it."""

NAMES = (
    "strong", "emphasis", "strike", "code", "link", "dim", "heading", "subheading", "marker",
    "code-block", "code-label", "question", "question-bar", "footer", "note", "error", "thought",
    "thought-text", "selected", *sorted(set(_CODE_TOKENS.values())),
)  # fmt: skip
"""Component classes, each after `transcript--`."""


def entry_styles(read: Callable[[str], Style]) -> EntryStyles:
    """All styles; `read` gives the one of a name."""
    markdown = MarkdownStyles(
        text=Style(),
        strong=read("strong"),
        emphasis=read("emphasis"),
        strike=read("strike"),
        code=read("code"),
        link=read("link"),
        dim=read("dim"),
        heading=read("heading"),
        subheading=read("subheading"),
        marker=read("marker"),
        code_block=read("code-block"),
        code_label=read("code-label"),
        code_tokens={kind: read(name) for kind, name in _CODE_TOKENS.items()},
    )
    return EntryStyles(
        markdown=markdown,
        question=read("question"),
        question_bar=read("question-bar"),
        footer=read("footer"),
        note=read("note"),
        error=read("error"),
        thought=read("thought"),
        thought_text=read("thought-text"),
    )
