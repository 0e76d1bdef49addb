"""Markdown inside a paragraph: emphasis, code, links."""

from __future__ import annotations

from markdown_it.token import Token
from rich.style import Style
from rich.text import Text

from tui.markdown.lines import MarkdownStyles


def inline_text(token: Token | None, styles: MarkdownStyles, base: Style) -> Text:
    """Styled text of an `inline` token; a newline in it is a line break."""
    text = Text(end="")
    if token is None:
        return text
    stack = [base]
    targets: list[tuple[str, int]] = []
    for child in token.children or ():
        kind = child.type
        if kind in ("text", "html_inline"):
            text.append(child.content, stack[-1])
        elif kind in ("softbreak", "hardbreak"):
            # A model that starts a new line means one: verses, addresses, lists without markers.
            text.append("\n", stack[-1])
        elif kind == "code_inline":
            text.append(child.content, stack[-1] + styles.code)
        elif kind == "image":
            text.append(child.content or "image", stack[-1] + styles.emphasis)
            _target(text, str(child.attrGet("src") or ""), child.content, stack[-1] + styles.dim)
        elif kind == "link_open":
            targets.append((str(child.attrGet("href") or ""), len(text)))
            stack.append(stack[-1] + styles.link)
        elif kind == "link_close":
            stack.pop()
            href, start = targets.pop()
            _target(text, href, text.plain[start:], stack[-1] + styles.dim)
        elif kind in _SPANS:
            stack.append(stack[-1] + getattr(styles, _SPANS[kind]))
        elif kind.endswith("_close"):
            stack.pop()
    return text


_SPANS = {"strong_open": "strong", "em_open": "emphasis", "s_open": "strike"}


def _target(text: Text, target: str, label: str, style: Style) -> None:
    # In words, never as a terminal hyperlink: what a model wrote must not hide where it leads.
    if target and target not in (label, f"mailto:{label}"):
        text.append(f" ({target})", style)
