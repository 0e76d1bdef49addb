"""Long texts that stand in the prompt as a chip, such as `[pasted 312 lines]`. No widgets here."""

from __future__ import annotations

import re
from collections import OrderedDict

from localspec.text import printable
from tui.folding import counted

MOST_LINES = 12
MOST_CHARACTERS = 2000
"""What is pasted within these bounds is put into the prompt as it is."""

MOST_EDITED = 20_000
"""Characters of a message that comes back to be edited as it is."""

KEPT_FORMS = 20
"""Messages that come back with their chips."""


def is_long(text: str) -> bool:
    """Whether a text that is pasted is to stand in the prompt as a chip."""
    return len(text) > MOST_CHARACTERS or text.count("\n") >= MOST_LINES or is_unsafe(text)


def is_unsafe(text: str) -> bool:
    """Whether it has characters that would act on a terminal."""
    return printable(text) != text


class Attachments:
    """What the chips in a prompt stand for."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._forms: OrderedDict[str, str] = OrderedDict()

    def hold(self, text: str) -> str:
        """A chip for a text; the same one for the same text."""
        for chip, held in self._texts.items():
            if held == text:
                return chip
        lines = text.rstrip("\n").count("\n") + 1
        what = counted(lines, "line") if lines > 1 else counted(len(text), "character")
        chip, number = f"[pasted {what}]", 1
        while chip in self._texts:
            number += 1
            chip = f"[pasted {what} #{number}]"
        self._texts[chip] = text
        return chip

    def chips_in(self, text: str) -> list[tuple[int, int]]:
        """Where chips stand in a text: start and end, in order."""
        pattern = self._pattern()
        return [match.span() for match in pattern.finditer(text)] if pattern else []

    def expanded(self, text: str) -> str:
        """A prompt's text with what its chips stand for; it can come back as it was by `collapsed`."""
        pattern = self._pattern()
        whole = pattern.sub(lambda match: self._texts[match.group()], text) if pattern else text
        if whole != text:
            self.remember(whole, text)
        return whole

    def remember(self, whole: str, written: str) -> None:
        """A message that comes back as it was written; the oldest ones do so no more."""
        self._forms[whole] = written
        self._forms.move_to_end(whole)
        while len(self._forms) > KEPT_FORMS:
            self._forms.popitem(last=False)

    def collapsed(self, whole: str) -> str:
        """A message as it can be edited: with the chips that it was sent with, or as one where it is long."""
        form = self._forms.get(whole)
        if form is not None:
            return form
        return self.hold(whole) if len(whole) > MOST_EDITED or is_unsafe(whole) else whole

    def _pattern(self) -> re.Pattern[str] | None:
        if not self._texts:
            return None
        return re.compile("|".join(re.escape(chip) for chip in self._texts))
