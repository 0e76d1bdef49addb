"""What the app leaves in the terminal that it was drawn in the flow of."""

from __future__ import annotations

from collections.abc import Sequence

from localspec.text import printable
from tui.conversation import Message
from tui.reasoning import answer_of


def last_words(messages: Sequence[Message]) -> str:
    """The last question and what was replied, as plain text; "" where nothing was said."""
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    if not places:
        return ""
    question, *replies = messages[places[-1] :]
    asked = "\n".join(f"> {line}" for line in printable(question.text).split("\n"))
    replied = [printable(answer) for answer in map(answer_of, replies) if answer]
    return "\n\n".join([asked, *replied]) + "\n"
