"""Markdown as rows: what is drawn, and that growing text ends as text drawn at once."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.style import Style

from tui.markdown import MarkdownRenderer, MarkdownStream, MarkdownStyles
from tui.markdown.code import STEP
from tui.markdown.fences import last_fence
from tui.markdown.table import MOST_CELLS

PLAIN = MarkdownStyles(
    **{field.name: Style() for field in fields(MarkdownStyles) if field.name != "code_tokens"}, code_tokens={}
)

BLOCKS = (
    "# Heading with `code`\n\n",
    "Setext\n---\n\n",
    "A paragraph with **bold**, *em*, ~~gone~~ and a [link](https://example.org/a).\n\n",
    "Two lines\nof one paragraph that is long enough to be wrapped, twice at least, in forty cells.\n\n",
    "- one\n- two\n  - nested\n- three\n",
    "Intro:\n1. first\n2. second\n\n   with a paragraph\n3. third\n\n",
    "9. nine\n10. ten\n11. eleven\n\n",
    "- loose\n\n- list\n\n",
    "* other\n* marker\n\n",
    "> quote\n> over lines\n> - with a list\n\n",
    "```python\ndef f(x):\n    return '`' * x  # --\n\n---\n```\n",
    "~~~\ntildes\n```\n~~~\n",
    "    indented code\n\n",
    "| a | b |\n|---|--:|\n| 1 | 22 |\n| a cell with a good many words in it | x |\n\n",
    "---\n\n",
    "<think>not html</think>\n\n",
    "日本語のテキストは幅が二倍なので折り返しも違う位置になる。🎉\n\n",
    "a\tb\n\n",
    "1.5 apples are not a list\n\n",
    "-x\n\n",
    "- \n\n",
    "Ends with a hard break  \nhere\\\nand here\n\n",
)


def rows(source: str, width: int = 40) -> list[str]:
    """The text of each row, drawn at once."""
    return [line.text.rstrip() for line in MarkdownRenderer(PLAIN, width).render(source)]


@st.composite
def cut_documents(draw: st.DrawFn) -> list[str]:
    """A document of known blocks, in arbitrary pieces."""
    source = "".join(draw(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=6)))
    cuts = sorted(draw(st.sets(st.integers(0, len(source)), max_size=25)))
    return [source[start:end] for start, end in zip([0, *cuts], [*cuts, len(source)], strict=True)]


@settings(max_examples=120, deadline=None)
@given(cut_documents())
@example([*"- foo\n- bar\n-x\n"])
@example([*"1. a\n1.5 b\n\n2. c\n"])
@example([*"```py\nx\n```\n```sh\ny\n```\n"])
def test_growing_text_ends_as_text_drawn_at_once(pieces: list[str]) -> None:
    stream = MarkdownStream(MarkdownRenderer(PLAIN, 40))
    shown: list[str] = []
    for piece in pieces:
        changed = stream.append(piece)
        new = [line.text.rstrip() for line in stream.lines]
        assert new[:changed] == shown[:changed]
        shown = new
    source = "".join(pieces)
    assert shown == rows(source)
    stream.finish()
    assert [line.text.rstrip() for line in stream.lines] == rows(source)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab *_`#->|\n1.~[]()\\\t日")), st.integers(8, 50))
@example(">1111111", 8)
def test_no_text_is_lost_or_fails_to_draw(source: str, width: int) -> None:
    stream = MarkdownStream(MarkdownRenderer(PLAIN, width))
    for character in source:
        stream.append(character)
    stream.finish()
    assert [line.text.rstrip() for line in stream.lines] == rows(source, width)
    # Text inside of quotes and lists is never narrower than 8 cells, whatever stands before it.
    most = max(width, 8 + sum(4 for character in source if character in ">-."))
    assert all(line.strip.cell_length <= most for line in stream.lines)
    letters = [character for character in "".join(rows(source, width)) if character in "b日"]
    # Link targets and the first column of a table may be written twice, or left out (an empty label).
    if not any(mark in source for mark in "[`~|"):
        assert sorted(letters) == sorted(character for character in source if character in "b日")


def test_finished_blocks_are_not_drawn_again() -> None:
    stream = MarkdownStream(MarkdownRenderer(PLAIN, 40))
    stream.append("one\n\ntwo\n\nthree\n\nfour\n")
    assert stream.append("goes on") == len(rows("one\n\ntwo\n\nthree"))
    first = stream.lines[0]
    stream.append("\n\nfive\n\nsix\n\n")
    assert stream.lines[0] is first


def test_a_long_block_of_code_costs_its_last_lines_only(monkeypatch: pytest.MonkeyPatch) -> None:
    from tui.markdown import code

    seen: list[int] = []
    highlight = code.highlight

    def counted(text: str, *rest: object) -> object:
        seen.append(text.count("\n") + 1)
        return highlight(text, *rest)

    monkeypatch.setattr(code, "highlight", counted)
    stream = MarkdownStream(MarkdownRenderer(PLAIN, 40))
    stream.append("```python\n")
    for number in range(300):
        stream.append(f"x{number} = {number}\n")
    assert max(seen) <= 2 * STEP + 1
    assert [line.text.strip() for line in stream.lines[1:]] == [f"x{n} = {n}" for n in range(300)]


def test_lists_tables_quotes_and_code() -> None:
    assert rows("Intro:\n- a\n- b\n  1. c\n") == ["Intro:", "• a", "• b", "   1. c"]
    assert rows("3. a\n4. b") == [" 3. a", " 4. b"]
    assert rows("0. a\n1. b") == [" 0. a", " 1. b"]
    assert rows("> a\n>\n> b") == ["▎ a", "▎", "▎ b"]
    assert rows("|a|b|\n|-|-:|\n|1|2|") == ["a │ b", "──┼──", "1 │ 2"]
    assert rows("```py\n  x\n```", 20) == [" " * 16 + "py", "    x"]
    assert rows("see [it](u) and [u](u)") == ["see it (u) and u"]
    assert rows("<b>x</b>") == ["<b>x</b>"]
    assert rows("a\nb") == ["a", "b"]


def test_wide_tables_give_way_in_their_widest_column() -> None:
    table = "| n | text |\n|---|---|\n| 1 | " + "word " * 30 + "|\n"
    drawn = rows(table, 30)
    assert all(len(row) <= 30 for row in drawn)
    assert sum(row.count("word") for row in drawn) == 30


def test_tables_of_many_columns_are_drawn_in_bands() -> None:
    head = "|" + "|".join(f"column {number}" for number in range(9)) + "|\n|" + "-|" * 9 + "\n"
    drawn = rows(head + "|" + "|".join(f"cell {number}" for number in range(9)) + "|\n", 40)
    assert all(len(row) <= 40 for row in drawn)
    assert drawn[0] == "column 0 │ column 1 │ column 2"
    assert drawn[4] == "column 0 │ column 3 │ column 4"
    assert sum(row.count("cell 8") for row in drawn) == 1
    assert len(drawn) == 4 * 3 + 3
    # In a very narrow room each column stands alone.
    assert rows(head, 10)[0] == "column 0"


def test_a_huge_table_costs_little_while_it_grows() -> None:
    head = "|" + "|".join(f"c{number}" for number in range(50)) + "|\n|" + "-|" * 50 + "\n"
    body = "".join("|" + "|".join(f"{r * c}" for c in range(50)) + "|\n" for r in range(1000))
    source = head + body[: len(body) // 6]
    renderer = MarkdownRenderer(PLAIN, 76)
    drawn = 0
    block = renderer.block

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal drawn
        drawn += 1
        return block(*arguments, **options)

    renderer.block = counted
    stream = MarkdownStream(renderer)
    for start in range(0, len(source), 200):
        before = [line.text for line in stream.lines]
        changed = stream.append(source[start : start + 200])
        assert [line.text for line in stream.lines[:changed]] == before[:changed]
    assert drawn < 60
    assert max(line.strip.cell_length for line in stream.lines) <= 76
    stream.finish()
    assert [line.text.rstrip() for line in stream.lines] == rows(source, 76)


def test_a_table_of_thousands_of_cells_is_shown_as_text() -> None:
    columns = 40
    head = "|" + "|".join(f"見出し{number}" for number in range(columns)) + "|\n|" + "-|" * columns + "\n"

    def line(r: int) -> str:
        return "|" + "|".join(f"セル{r}x{c}" for c in range(columns)) + "|\n"

    def table(lines: int) -> str:
        return head + "".join(
            "|" + "|".join(f"セル{r}x{c}" for c in range(columns)) + "|\n" for r in range(lines)
        )

    whole = MOST_CELLS // columns - 1
    assert "セル0x0  │ セル0x1" in "\n".join(rows(table(whole), 100))
    drawn = rows(table(whole + 1), 100)
    assert drawn[0].startswith("見出し0 | 見出し1 | ")
    text = "".join(drawn)
    assert all(f"セル{r}x{c}" in text for r in range(whole + 1) for c in range(columns))
    assert all(cell_len(row) <= 100 for row in drawn)
    quoted = rows("".join(f"> {line}\n" for line in table(whole + 1).splitlines()), 100)
    assert quoted[0].startswith("▎ 見出し0 | 見出し1 | ")


def test_code_is_cut_at_the_edge_and_keeps_its_spaces() -> None:
    drawn = MarkdownRenderer(PLAIN, 20).render("```\n        deep(  1,    2)\n```")[1:]
    assert (
        "".join(line.text[line.lead :].rstrip("\n")[:16] for line in drawn).rstrip()
        == "        deep(  1,    2)"
    )
    assert drawn[0].glue == ""


def test_highlighting_knows_languages_and_takes_any() -> None:
    styles = MarkdownStyles(
        **{field.name: Style() for field in fields(MarkdownStyles) if field.name != "code_tokens"},
        code_tokens={"Token.Keyword": Style(bold=True)},
    )
    bold = [
        segment.text
        for line in MarkdownRenderer(styles, 40).render("```Python\ndef f(): pass\n```")
        for segment in line.strip
        if segment.style and segment.style.bold
    ]
    assert bold == ["def", "pass"]
    assert rows("```no such language\nx\n```")[1].strip() == "x"


def test_the_last_code_block() -> None:
    assert last_fence("no code") == ""
    assert last_fence("```\na\n```\n- item\n\n  ```py\n  b\n  ```\n") == "b\n"
    assert last_fence("```\nnot closed") == "not closed"
