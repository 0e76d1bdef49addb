"""The chat screen: it wires keys and widgets to the chat's state machine."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical

from localspec.chat.comparisons import Comparisons
from localspec.chat.store import Store
from localspec.client import EngineLink
from localspec.errors import LocalspecError, StorageError
from localspec.messages import Failed, SpeculationChanged
from localspec.model_files import draft_label
from tui import choices
from tui.attachments import MOST_EDITED
from tui.bridge import Bridge
from tui.chat import Chat
from tui.compare import Comparison
from tui.conversation import Message
from tui.keys import Action, bindings
from tui.launch import Launch
from tui.library import Library
from tui.messages import EngineFrame
from tui.screens.choice import ChoiceScreen
from tui.screens.compare import CompareScreen
from tui.screens.history import Bin, HistoryScreen
from tui.screens.reading import ReadingScreen
from tui.screens.settings import SettingsScreen
from tui.screens.tokens import TokenScreen
from tui.view import NoteKind
from tui.widgets.bars import ActivityBar, KeyBar, TitleBar
from tui.widgets.panel import LiveLine, LivePanel
from tui.widgets.prompt import Prompt
from tui.widgets.rows import Rows
from tui.widgets.suggestions import Suggestions
from tui.widgets.transcript import Transcript

HISTORY = 200
"""Messages of earlier chats that the up key brings back."""

SMALLEST = (40, 10)
"""Columns and rows below which there is only a sentence."""


class ChatScreen(ReadingScreen):
    """Transcript, prompt and live figures of one chat."""

    CSS_PATH = "chat.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings("chat")]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]
    AUTO_FOCUS = "#prompt"

    def __init__(self, launch: Launch, link: EngineLink, store: Store) -> None:
        super().__init__()
        self.store = store
        self._toggled = self._picked = False
        self.chat = Chat(launch, link, store, self)
        self.bridge = Bridge(self.chat, link)
        self._past = Comparisons(private=store.private)
        self._comparison: Comparison | None = None
        self._compare_screen: CompareScreen | None = None
        self._token_screen: TokenScreen | None = None
        self._gone = Bin()
        self.library = Library(self, launch, self.acted)
        self.set_class(not launch.panel, "-no-panel")
        # In the flow of the terminal there are too few rows for the panel.
        self.set_class(launch.inline, "-line")

    def compose(self) -> ComposeResult:
        """The parts of the screen."""
        yield TitleBar(id="title")
        with Horizontal(id="body"):
            with Vertical(id="talk"):
                yield Transcript(id="transcript")
                yield LiveLine(id="line")
                yield ActivityBar(id="activity")
                yield Suggestions(id="suggestions")
                yield Prompt(id="prompt")
            yield LivePanel(id="panel")
        yield KeyBar(self._press, id="keys")
        yield Rows(id="small")

    def on_mount(self) -> None:
        """Open the conversation and, once there is something to see, start the engine."""
        self.prompt.suggest_in(self.query_one("#suggestions", Suggestions))
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        try:
            self.chat.open_first()
            self.prompt.set_history(self.store.questions(HISTORY, MOST_EDITED))
        except StorageError as error:
            self.show_note(str(error), "error")
        self.chat.begin()
        self.library.begin()
        self._run_bridge()
        self._refresh_figures()

    @work(name="bridge")
    async def _run_bridge(self) -> None:
        await self.bridge.run(self.post_message)

    def on_unmount(self) -> None:
        """Nothing is fetched any more when the app ends, and nothing deleted can come back."""
        self._gone.close()
        self.library.close()

    # --- what arrives -------------------------------------------------------------------------------

    def on_engine_frame(self, frame: EngineFrame) -> None:
        """Take one frame of events."""
        self.chat.handle(frame.events)
        self.library.follow()
        for event in frame.events:
            if isinstance(event, Failed):
                self._picked = False
            elif isinstance(event, SpeculationChanged) and self._picked:
                self._picked = False
                self.hint(f"Drafter: {draft_label(event.draft)}.")
            elif isinstance(event, SpeculationChanged) and self._toggled:
                if event.enabled and not self.chat.state.wanted:
                    # On its way already: while it is on, other reasons come by themselves.
                    continue
                self._toggled = False
                self.hint(f"Speculation: {event.reason}.")
        if self._compare_screen is not None:
            self._compare_screen.follow()
        if self._token_screen is not None:
            self._token_screen.follow()
        self._refresh_figures()

    def on_resize(self, event: events.Resize) -> None:
        """Below the smallest size there is one sentence; it goes when there is room again."""
        columns, rows = SMALLEST
        small = event.size.width < columns or event.size.height < rows
        self.set_class(small, "-small")
        self.query_one("#small", Rows).show(
            [
                [("This window is too small", "value")],
                [("for the chat: make it", "value")],
                [(f"at least {columns} × {rows}.", "value")],
            ]
        )
        if not small and self.focused is None:
            # A hidden prompt had to let go of the cursor.
            self.prompt.focus()
        self.call_after_refresh(self._refresh_figures)

    # --- what the chat shows (its View) -------------------------------------------------------------

    def show_question(self, text: str) -> None:
        """A question was sent."""
        self.transcript.ask(text, self.chat.conversation.messages[-1])
        self.prompt.remember(text)

    def show_growth(self, text: str) -> None:  # noqa: ARG002 - the whole of it is taken apart already
        """The reply has grown."""
        self.transcript.grow(self.chat.thoughts)

    def show_reply(self, reply: Message) -> None:
        """The reply is final."""
        self.transcript.end(reply)

    def show_note(self, text: str, kind: NoteKind) -> None:
        """A sentence from the app or the engine."""
        self.transcript.note(text, error=kind == "error")

    def show_conversation(self) -> None:
        """Another conversation is on screen."""
        self.transcript.reset(self.chat.conversation.messages, self.chat.setup.name)
        self._refresh_figures()

    def give_back(self, text: str) -> None:
        """A message returns to the prompt."""
        self.prompt.give_back(text)

    # --- actions ------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002
        """Whether an action makes sense now."""
        if action == "stop":
            waiting = self.chat.queued is not None or self.chat.branches.editing is not None
            pending = waiting or self.chat.setup.searching or self.transcript.selected is not None
            return self.chat.replying or pending
        return True

    def action_stop(self) -> None:
        """End the running reply; edit and select nothing any more."""
        self.leave_editing()
        self.transcript.deselect()
        self.chat.stop()
        # What was said about a waiting message is no longer so.
        self.hint("")
        self.acted()

    def action_toggle_speculation(self) -> None:
        """Switch speculation on or off."""
        self.chat.set_speculation(not self.chat.state.wanted)
        self._toggled = True
        self.acted()

    def action_compare(self) -> None:
        """Compare two ways to answer, side by side."""
        if self.chat.state.info is None:
            self.hint("There is no model yet; two ways can be compared when it is here.")
            return
        if self._comparison is None or self._comparison.outdated:
            self._comparison = Comparison(self.chat, self._past, self._comparison)
        self._compare_screen = CompareScreen(self.chat, self._comparison, self._past, self.bridge.hurry)
        self.app.push_screen(self._compare_screen, self._compared)

    def _compared(self, _result: None) -> None:
        self._compare_screen = None
        self.acted()

    def action_tokens(self) -> None:
        """Look at the newest reply token by token."""
        self._token_screen = TokenScreen(self.chat, self.bridge.hurry)
        self.app.push_screen(self._token_screen, self._looked)

    def _looked(self, _result: None) -> None:
        self._token_screen = None
        self.acted()

    def action_choose_drafter(self) -> None:
        """Choose who drafts."""
        target, setup = self.chat.setup.file, self.chat.setup
        if target is None:
            self.hint("There is no model yet; who drafts can be chosen when it is here.")
            return
        now = setup.options.draft.spec
        self.app.push_screen(
            ChoiceScreen("Who drafts?", lambda: choices.draft_choices(target, now)), self._pick_drafter
        )

    def _pick_drafter(self, spec: str | None) -> None:
        if spec is not None:
            self.use_drafter(spec)

    @work
    async def use_drafter(self, spec: str) -> None:
        """Draft with another drafter from now on."""
        options, target = self.chat.setup.options.draft, self.chat.setup.file
        try:
            draft = await asyncio.to_thread(choices.chosen_draft, spec, options, target)
        except LocalspecError as error:
            self.show_note(str(error), "error")
            return
        self._picked = True
        self.chat.setup.choose_drafter(draft)
        self.acted()

    def action_choose_model(self) -> None:
        """Choose who answers; fetch and remove models."""
        self.library.choose()

    def use_model(self, name: str) -> None:
        """Go on with another model."""
        self.library.use(name)

    def action_better_model(self) -> None:
        """Take the model that a first run offers."""
        self.library.accept()

    def action_keep_model(self) -> None:
        """Stay with the demo model."""
        self.library.decline()

    def action_new_chat(self) -> None:
        """Begin a new conversation."""
        self.leave_editing()
        self.chat.new()
        self.acted()

    def action_open_chat(self) -> None:
        """Choose an earlier conversation, or rename, delete or export one."""
        now = self.chat.conversation
        screen = HistoryScreen(self.store, now.id, self._gone, replying=self.chat.replying)
        self.app.push_screen(screen, self._open)

    def _open(self, conversation_id: int | None) -> None:
        if conversation_id is not None:
            self.leave_editing()
        try:
            if conversation_id is not None and conversation_id != self.chat.conversation.id:
                self.chat.open(conversation_id)
            elif not self.chat.conversation.refresh():
                # It was deleted there.
                self.leave_editing()
                self.chat.new()
        except StorageError as error:
            self.show_note(str(error), "error")
        self.acted()

    def action_settings(self) -> None:
        """Look at the settings, and change them."""
        self.app.push_screen(SettingsScreen(), lambda _: self.acted())

    def show_panel(self, wanted: bool) -> None:
        """Show the live figures, or do not."""
        self.set_class(not wanted, "-no-panel")
        self.set_class(False, "-line")
        self.call_after_refresh(self._refresh_figures)

    def action_toggle_panel(self) -> None:
        """Show the live figures as a panel, as one line, or not at all, in turn."""
        hidden, line = self.has_class("-no-panel"), self.has_class("-line")
        # In a narrow window the panel is a line already.
        short = not hidden and not line and self.has_class("-wide")
        self.set_class(short, "-line")
        self.set_class(not hidden and not short, "-no-panel")
        self.call_after_refresh(self._refresh_figures)

    # --- inner steps --------------------------------------------------------------------------------

    @property
    def _activity(self) -> ActivityBar:
        return self.query_one("#activity", ActivityBar)

    def acted(self) -> None:
        """Show at once what has changed."""
        self.bridge.hurry()
        self._refresh_figures()

    def _refresh_figures(self) -> None:
        state = self.chat.state
        self.prompt.placeholder = f"Message {self.chat.setup.name}"
        self.query_one("#title", TitleBar).update_from(self.chat)
        self._activity.update_from(self.chat)
        ends = self.chat.replying or self.chat.setup.searching
        words = {"chat.stop": "stop" if ends else "cancel"}
        self.query_one("#keys", KeyBar).update_from(self._usable, words)
        panel, line = self.query_one("#panel", LivePanel), self.query_one("#line", LiveLine)
        if panel.display:
            panel.update_from(state)
        if line.display:
            line.update_from(state)

    def _usable(self, action: Action) -> bool:
        if action.owner != "chat":
            return True
        return bool(self.check_action(action.name, ())) and self.library.offers(action.name)

    def _press(self, action: Action) -> None:
        owner = self.app if action.owner == "app" else self
        self.call_next(owner.run_action, action.name)
