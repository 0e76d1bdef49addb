"""What the chat screen does with the transcript: moving in it, folding reasoning, copying."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tui.copying import CodeBlocks, last_reply, message_text
from tui.screens.composing import ComposingScreen

if TYPE_CHECKING:
    from tui.app import LocalspecApp


class ReadingScreen(ComposingScreen):
    """The part of the chat screen by which users read."""

    _codes: CodeBlocks | None = None

    # --- moving -------------------------------------------------------------------------------------

    def action_page_up(self) -> None:
        """Scroll the transcript up."""
        self.transcript.page(-1)

    def action_page_down(self) -> None:
        """Scroll the transcript down."""
        self.transcript.page(1)

    def action_scroll_top(self) -> None:
        """Show the beginning of the conversation."""
        self.transcript.to_start()

    def action_scroll_end(self) -> None:
        """Show the end of the conversation, and follow it again."""
        self.transcript.to_end()

    def action_previous_message(self) -> None:
        """Select the message before."""
        self._select(-1)

    def action_next_message(self) -> None:
        """Select the message after; behind the last one, none."""
        self._select(1)

    def _select(self, direction: int) -> None:
        number = self.transcript.select(direction)
        if number is None:
            self.hint("" if self.chat.conversation.messages else "There are no messages yet.")
            return
        count = len(self.chat.conversation.messages)
        self.hint(f"Message {number + 1} of {count} is selected; ctrl+y copies it, esc lets go of it.")

    # --- folding ------------------------------------------------------------------------------------

    def action_toggle_reasoning(self) -> None:
        """Show or fold the selected message, or the last one in view that is long or has reasoning."""
        if not self.transcript.toggle_fold():
            self.hint("There is no reasoning in view, and no long message.")

    def action_toggle_all_reasoning(self) -> None:
        """Show or hide all reasoning, that of later replies too."""
        shown = self.transcript.toggle_all_reasoning()
        self.hint(f"Reasoning is {'shown' if shown else 'folded'}, in later replies too.")

    # --- copying ------------------------------------------------------------------------------------

    def action_copy_reply(self) -> None:
        """Copy the selected message, or the last reply, as Markdown and without its reasoning."""
        number = self.transcript.selected
        if number is None:
            self._copy(last_reply(self.chat), "the last reply", "reply")
        else:
            self._copy(message_text(self.chat, number), "the selected message", "answer in this message")

    def action_copy_code(self) -> None:
        """Copy the last code block; of the selected message one after the other."""
        if self._codes is None:
            self._codes = CodeBlocks(self.chat)
        number = self.transcript.selected
        code, what = self._codes.take(number)
        self._copy(code, what, "code block" if number is None else "code block in this message")

    def _copy(self, text: str, what: str, missing: str) -> None:
        if text:
            cast("LocalspecApp", self.app).copy(text, what)
        else:
            self.hint(f"There is no {missing} to copy yet.")
