"""What the chat screen does with the prompt: messages sent, edited, and asked anew."""

from __future__ import annotations

from textual.app import SuspendNotSupported
from textual.screen import Screen

from localspec.chat.store import Store
from localspec.errors import LocalspecError
from localspec.text import printable
from tui.bridge import Bridge
from tui.chat import Chat, Submission
from tui.editor import edited
from tui.keymap import KEYS
from tui.keys import Action
from tui.mentions import with_files
from tui.slash import Commands, written_command
from tui.widgets.bars import ActivityBar
from tui.widgets.prompt import Prompt
from tui.widgets.transcript import Transcript

CHARACTERS_A_TOKEN = 40
"""Characters that no text has a token: more than this is not worth the tokenizer's time."""


class ComposingScreen(Screen[None]):
    """The part of the chat screen that takes what users write.

    Attributes:
        chat: the chat.
        bridge: brings what the engine says.
        store: where conversations are.
    """

    chat: Chat
    bridge: Bridge
    store: Store

    # --- messages and commands ----------------------------------------------------------------------

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        """Send what the user wrote, or keep it until it can be sent; or do what it says."""
        if not self.prompt.text.startswith(event.written):
            # Enter came twice, and the first has sent it.
            return
        editing = self.chat.branches.editing is not None
        try:
            command = None if editing else written_command(event.written)
            text = with_files(event.text, event.written) if command is None else event.text
        except LocalspecError as error:
            self.hint(printable(str(error)))
            return
        if command is not None:
            self.prompt.take(event.written)
            self.prompt.remember(event.written)
            self.run_command(*command)
            return
        trouble = self._too_long(text) or (self.chat.branches.send(text) if editing else self._submit(text))
        self.said(trouble)
        if trouble:
            return
        if text != event.text:
            self.prompt.sent_as(event.written, text)
        if editing:
            self.prompt.remember(text)
            self.prompt.end_editing()
        else:
            self.prompt.take(event.written)

    def _submit(self, text: str) -> str:
        refused = self.chat.submit(text) is Submission.REFUSED
        return f"One message is waiting already; {KEYS['chat.stop']} takes it back." if refused else ""

    def _too_long(self, text: str) -> str:
        """Why a message cannot fit into the context, whatever it is made of."""
        info = self.chat.state.info
        if info is None or len(text) <= info.context * CHARACTERS_A_TOKEN:
            return ""
        return f"{len(text):,} characters are too many for a context of {info.context:,} tokens."

    def run_command(self, action: Action, argument: str) -> None:
        """Do what was written in the prompt."""
        argument = self.prompt.whole_of(argument)
        match action.slash:
            case "draft" if argument:
                self.use_drafter(argument)
            case "model" if argument:
                self.use_model(argument)
            case _:
                self._run_command(action, argument)

    def _run_command(self, action: Action, argument: str) -> None:
        try:
            sentence = Commands(self.chat, self.store).run(action.slash, argument)
        except (LocalspecError, OSError) as error:
            sentence = str(error)
        if sentence is None:
            owner = self.app if action.owner == "app" else self
            self.call_next(owner.run_action, action.name)
            return
        self.said(printable(sentence))

    def action_begin_command(self, name: str) -> None:
        """Let a command be completed in the prompt."""
        if self.prompt.text.strip():
            self.hint(f"Send or delete what is written first; then /{name} can be written.")
            return
        self.prompt.write(f"/{name} ")

    def action_open_editor(self) -> None:
        """Write the message in the user's own editor; the app waits meanwhile."""
        if self.chat.private:
            self.hint("An editor needs a file, and a private chat leaves none on a disk.")
            return
        text, trouble = self.prompt.whole, ""
        try:
            with self.app.suspend():
                # What is raised in here would leave the terminal to nobody.
                try:
                    text = edited(text)
                except LocalspecError as error:
                    trouble = str(error)
        except SuspendNotSupported:
            trouble = "An editor cannot have this terminal."
        if not trouble:
            self.prompt.write(text)
        self.said(printable(trouble))

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

    def use_drafter(self, spec: str) -> object:
        """Draft with another drafter from now on."""
        raise NotImplementedError

    def use_model(self, name: str) -> None:
        """Go on with another model."""
        raise NotImplementedError

    def acted(self) -> None:
        """Show at once what has changed."""
        raise NotImplementedError
