"""What the chat screen does with the prompt: messages sent, edited, and asked anew."""

from __future__ import annotations

from textual.screen import Screen

from tui.bridge import Bridge
from tui.chat import Chat, Submission
from tui.widgets.bars import ActivityBar
from tui.widgets.prompt import Prompt
from tui.widgets.transcript import Transcript


class ComposingScreen(Screen[None]):
    """The part of the chat screen that takes what users write.

    Attributes:
        chat: the chat.
        bridge: brings what the engine says.
    """

    chat: Chat
    bridge: Bridge

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        """Send what the user wrote, or keep it until it can be sent."""
        if self.chat.branches.editing is not None:
            trouble = self.chat.branches.send(event.text)
            if not trouble:
                self.prompt.end_editing()
            self.said(trouble)
            return
        outcome = self.chat.submit(event.text)
        if outcome is Submission.REFUSED:
            self.hint("One message is waiting already; esc takes it back.")
            return
        self.prompt.take()
        self.said()

    # --- versions of messages -----------------------------------------------------------------------

    def action_regenerate(self) -> None:
        """Make the selected reply again, or the last one."""
        self.leave_editing()
        self.said(self.chat.branches.regenerate(self.transcript.selected))

    def action_edit_message(self) -> None:
        """Put the selected question, or the last one, into the prompt, to be asked anew."""
        self.leave_editing()
        text, trouble = self.chat.branches.edit(self.transcript.selected)
        if not trouble:
            self.prompt.begin_editing(text)
        self.said(trouble)

    def action_switch_version(self, step: int) -> None:
        """Show another version of the selected message, or of the last one that has several."""
        self.leave_editing()
        self.said(self.chat.branches.switch(self.transcript.selected, step))

    def leave_editing(self) -> None:
        """Leave the message that is being edited as it was."""
        self.chat.branches.leave()
        self.prompt.end_editing()

    # --- parts of the screen ------------------------------------------------------------------------

    @property
    def prompt(self) -> Prompt:
        """Where users write."""
        return self.query_one("#prompt", Prompt)

    @property
    def transcript(self) -> Transcript:
        """What was said."""
        return self.query_one("#transcript", Transcript)

    def hint(self, text: str) -> None:
        """Show a sentence for a few seconds."""
        self.query_one("#activity", ActivityBar).hint(text)

    def said(self, sentence: str = "") -> None:
        """Something was done, or was not: then `sentence` says why."""
        self.hint(sentence)
        self.acted()

    def acted(self) -> None:
        """Show at once what has changed."""
        raise NotImplementedError
