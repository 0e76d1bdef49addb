"""A reply is drawn the same however its bytes are cut: marks of reasoning, fences, wide characters."""

from __future__ import annotations

from dataclasses import fields

from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.style import Style

from localspec.text import ReplyText
from tests.tui.test_markdown import BLOCKS, PLAIN
from tui.conversation import Message
from tui.markdown import Line
from tui.reasoning import Thoughts
from tui.widgets.entries import Answer, EntryStyles

STYLES = EntryStyles(
    markdown=PLAIN, **{field.name: Style() for field in fields(EntryStyles) if field.name != "markdown"}
)

PIECES = (
    *BLOCKS, "<think>", "</think>", "\n", "\n\n", "```", "```py\nx\n", "word ", "[THINK]", "[/THINK]", "<",
    "🎉",
    "<|channel|>analysis<|message|>", "<|end|>", "<|start|>assistant<|channel|>final<|message|>",
    "\x1b[31m", "\x1b]52;c;aGk=\x07", "\x9b2J", "\r", "\u202e", "שלום", "\u200d", "e\u0301",
)  # fmt: skip


def texts(lines: list[Line]) -> list[str]:
    return [line.text.rstrip() for line in lines]


@st.composite
def cut_bytes(draw: st.DrawFn) -> list[bytes]:
    """A reply of known pieces, cut anywhere, within characters too; some bytes may be no text at all."""
    pieces = draw(st.lists(st.sampled_from(PIECES), min_size=1, max_size=8))
    beginning = draw(st.sampled_from(("", "<think>\n", "[THINK]")))
    data = (beginning + "".join(pieces)).encode() + draw(st.sampled_from((b"", b"\xe2\x82", b"\xff\xfe")))
    cuts = sorted(draw(st.sets(st.integers(0, len(data)), max_size=20)))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@settings(max_examples=150, deadline=None)
@given(cut_bytes(), st.sampled_from(("", "<think>")), st.sampled_from((8, 36, 100)), st.booleans())
@example([b"<thi", b"nk>a</think", b">\n\n``", b"`py\nx\n``", b"`\n"], "", 36, False)
@example([b"a\n</think>", b"\n\nb"], "", 36, True)
def test_the_final_rows_do_not_depend_on_the_cuts(
    pieces: list[bytes], opening: str, width: int, unfolded: bool
) -> None:
    reply, thoughts = ReplyText(), Thoughts(opening)
    answer = Answer(Message("assistant", "", "streaming"), unfolded=unfolded)
    shown = answer.render(STYLES, width)
    for number in range(len(pieces) + 1):
        if number < len(pieces):
            reply.push(pieces[number])
        thoughts.hear(reply.take() if number < len(pieces) else reply.finish())
        changed, lines = answer.grow(thoughts, STYLES)
        shown[changed:] = lines
        assert not any("\x1b" in line.text or "\x9b" in line.text for line in shown)
    # Drawn as a whole while it grows, it looks as it has grown to look.
    assert texts(shown) == texts(answer.render(STYLES, width))

    whole = b"".join(pieces).decode(errors="replace")
    kept = Message("assistant", whole, "complete", thoughts.kept())
    answer.end(kept)
    final = texts(answer.render(STYLES, width))
    assert final == texts(Answer(kept, unfolded=unfolded).render(STYLES, width))
    once = Thoughts(opening)
    once.hear(whole)
    assert once.kept() == thoughts.kept()
    assert once.reasoning.answer.rstrip() == thoughts.reasoning.answer.rstrip()
