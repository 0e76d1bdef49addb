"""The chat as a state machine: what users do, what the engine says, and what follows. No widgets here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any

from localspec.chat.store import Store
from localspec.client import EngineLink
from localspec.errors import BY_NAME, EngineDiedError, LocalspecError, PromptTooLongError, UsageError
from localspec.messages import (
    Cancel,
    EngineExited,
    Event,
    Failed,
    Finished,
    Generate,
    Loaded,
    Note,
    PrefillProgress,
    SetSpeculation,
    SpeculationChanged,
    Spelled,
    Step,
)
from localspec.models.registry import Resolved
from localspec.types import ChatMessage
from tui.branches import Branches
from tui.conversation import Conversation, Parts, Status, partial_stats, reply_stats
from tui.desk import Desk
from tui.finder import FileFound, FileMissing, FileProgress, FinderEvent
from tui.launch import Launch
from tui.reasoning import Thoughts
from tui.requests import Requests
from tui.setup import Setup
from tui.state import LiveState, Phase
from tui.tokens import TokenBook
from tui.view import View

PATIENCE_S = 3.0
"""How long an engine may take to end a reply before a second request ends the engine."""


class Submission(Enum):
    """What became of a message that the user sent."""

    SENT = auto()
    QUEUED = auto()
    REFUSED = auto()


class Chat:
    """One chat over one engine.

    Attributes:
        state: the engine as the live figures show it.
        setup: the model and the drafter.
        conversation: the messages on screen.
        queued: the message that is sent as soon as the engine is free.
        stopping: whether the user has asked the running reply to end.
        failure: why there is no model, None while there is hope.
        desk: where requests to the engine go.
        tokens: how the replies came about.
        requests: how they are asked for.
        branches: the versions of the messages.
        thoughts: the reasoning of the newest reply of this session.
    """

    def __init__(
        self,
        launch: Launch,
        link: EngineLink,
        store: Store,
        view: View,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._launch, self._store, self._view = launch, store, view
        self.desk = Desk(link)
        self._clock = clock
        self._stopping_since = 0.0
        options = launch.options
        self.state = LiveState(
            speculation=options.speculation, draft=options.draft.spec, verify=options.verify
        )
        self.setup = Setup(launch, self.state, view, self.desk.send, self._fail)
        self.conversation = self._new_conversation()
        self.tokens = TokenBook()
        self.requests = Requests(launch, self.setup, self.desk.new_id)
        self.branches = Branches(self, view)
        self.thoughts = Thoughts()
        self.queued: str | None = None
        self.stopping = False
        self.failure: LocalspecError | None = None

    @property
    def busy(self) -> bool:
        """Whether the engine has something to do."""
        return self.desk.running is not None

    @property
    def replying(self) -> bool:
        """Whether it makes a reply for the conversation on screen."""
        return self.busy and not self.desk.errand

    @property
    def ready(self) -> bool:
        """Whether a message would be answered at once."""
        free = not self.busy and not self.setup.switching
        return free and self.state.info is not None and self.desk.alive

    @property
    def down(self) -> bool:
        """Whether there is no engine with a model, and none on its way."""
        usable = self.state.info is not None or self.setup.starting
        return not (usable and self.desk.alive)

    @property
    def private(self) -> bool:
        """Whether nothing of what is said is kept, because the user wants it so."""
        return self._store.private and not self._launch.replayed

    @property
    def exit_code(self) -> int:
        """The process's exit status if the app ends now."""
        return self.failure.exit_code if self.failure else 0

    # --- what the user does -------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the engine and look for the model; returns at once."""
        self.failure = None
        self.state.phase = Phase.STARTING
        self.desk.start()
        self.setup.begin()

    def open_first(self) -> None:
        """Show the conversation that the launch asks for."""
        wanted = self._launch.conversation
        if wanted == "last":
            latest = self._store.latest()
            wanted = latest.id if latest else "new"
        missing = isinstance(wanted, int) and not self.conversation.open(wanted)
        self._view.show_conversation()
        if missing:
            self._view.show_note(f"There is no conversation {wanted}; this is a new one.", "error")
        if self._store.notice:
            self._view.show_note(self._store.notice, "error")

    def submit(self, text: str) -> Submission:
        """Send a message now, or as soon as the engine is free."""
        if self.ready:
            self._ask(text)
            return Submission.SENT if self.busy else Submission.QUEUED
        if self.queued is not None:
            return Submission.REFUSED
        self.queued = text
        if self.down:
            self.begin()
        return Submission.QUEUED

    def stop(self) -> None:
        """End the running reply; a queued message returns to the prompt.

        An engine that has not obeyed for some seconds hangs: asked again, it is ended by force.
        """
        self._unqueue()
        if not self.replying:
            if self.setup.searching:
                self.setup.stay()
            return
        if not self.stopping:
            self.stopping = self.desk.send(Cancel())
            self._stopping_since = self._clock()
        elif self._clock() - self._stopping_since > PATIENCE_S:
            self.desk.kill()

    def set_speculation(self, enabled: bool) -> None:
        """Switch speculation on or off; takes effect within a step, even in the middle of a reply."""
        self.state.wanted = enabled
        if self.state.info is not None:
            self.desk.send(SetSpeculation(enabled))

    def choose_model(self, model: Resolved) -> None:
        """Go on with another model, after the running reply; it is fetched first where it is missing."""
        if not self.setup.choose_model(model):
            self.begin()

    def new(self) -> None:
        """Begin a new conversation."""
        self._leave()
        self.conversation = self._new_conversation()
        self._view.show_conversation()

    def open(self, conversation_id: int) -> None:
        """Go on with an earlier conversation; raises `StorageError`."""
        opened = self._new_conversation()
        if not opened.open(conversation_id):
            self._view.show_note(f"There is no conversation {conversation_id} any more.", "error")
            return
        self._leave()
        self.conversation = opened
        self._view.show_conversation()

    def close(self) -> None:
        """Write what there is and end the engine. The view may be gone already: it is told nothing."""
        self.setup.finder.abandon()
        if self.replying:
            self.conversation.end("cancelled", stats={**self._partial_stats(), **self.thoughts.kept()})
        self.desk.close()

    def reply_request(self, messages: tuple[ChatMessage, ...], max_tokens: int | None) -> Generate:
        """A request for a reply to `messages`, as the chat would make it; it is to be sent once."""
        return self.requests.reply(self.conversation, messages, max_tokens)

    # --- what the engine says -----------------------------------------------------------------------

    def handle(self, events: Iterable[Event | FinderEvent]) -> None:
        """Take the events of one frame, in order; the text of a frame reaches the view in one piece."""
        text: list[str] = []
        for event in events:
            if not isinstance(event, EngineExited) and self.desk.follow(event, self.state):
                self._next()
                continue
            if isinstance(event, Step):
                self.state.apply(event)
                if event.id == self.desk.running:
                    text.append(event.text)
                    self.tokens.add(event)
                    self.thoughts.add(event)
                continue
            self._grow(text)
            if isinstance(event, FileProgress | FileFound | FileMissing):
                self.setup.found(event)
            else:
                self._handle(event)
        self._grow(text)

    def _handle(self, event: Event) -> None:
        match event:
            case Loaded(info=info):
                self.state.apply(event)
                self.failure = None
                if self.setup.loaded(info):
                    self._introduce()
                self._next()
            case Finished(reply=reply):
                self.state.apply(event)
                if event.id == self.desk.running:
                    stats = reply_stats(reply, **self._parts())
                    stopped = reply.finish_reason == "cancelled"
                    self._end("cancelled" if stopped else "complete", text=reply.text, stats=stats)
                    self._next()
            case Failed(id=None) if self.state.info is None or event.unloaded:
                self.state.apply(event)
                self._fail(BY_NAME.get(event.error, LocalspecError)(event.message))
            case Failed(command="load" | "set_drafter"):
                self.state.apply(event)
                if event.command == "load":
                    self.setup.stay()
                else:
                    self.setup.keep_drafter()
                self._view.show_note(event.message, "error")
            case Failed():
                self.state.apply(event)
                ours = self.replying and event.id == self.desk.running
                if ours and BY_NAME.get(event.error) in (PromptTooLongError, UsageError):
                    self._view.give_back(self.conversation.reject())
                if ours:
                    self._end("failed")
                if ours or event.id is None:
                    self._view.show_note(event.message, "error")
                    self._unqueue()
            case EngineExited(expected=True):
                pass
            case EngineExited():
                loaded = self.state.info is not None
                self.state.apply(event)
                self.setup.lost()
                if not self.desk.follow(event, self.state) and self.busy:
                    self._end("failed")
                if loaded:
                    self._view.show_note(event.message, "error")
                    self._unqueue()
                else:
                    self._fail(EngineDiedError(event.message))
            case SpeculationChanged():
                self.state.apply(event)
                self.setup.drafting(event.draft)
            case Spelled():
                self.tokens.spelled(event)
            case PrefillProgress():
                self.state.apply(event)
                if event.id == self.desk.running:
                    self.thoughts.begin_within(event.opening)
            case Note():
                self._view.show_note(event.text, "note")
            case _:
                self.state.apply(event)

    # --- inner steps --------------------------------------------------------------------------------

    def _introduce(self) -> None:
        """Say that another model answers."""
        self.conversation.model = self.setup.name
        if not self.conversation.messages:
            # The greeting names the model.
            self._view.show_conversation()
        self._view.show_note(f"From here on, {self.setup.name} answers.", "note")

    def _ask(self, text: str) -> None:
        self.conversation.ask(text)
        self._view.show_question(text)
        self.begin_reply()

    def begin_reply(self) -> None:
        """Have the engine write the reply that the conversation ends with."""
        command = self.reply_request(self.conversation.history(), self.requests.max_tokens)
        self.tokens.begin(command, self.conversation, self.state.info)
        self.thoughts = Thoughts()
        self.stopping = False
        self.state.begin_reply()
        self.desk.running = command.id
        if self.desk.send(command):
            self.state.phase = Phase.PREFILL
        else:
            self._end("failed")

    def _next(self) -> None:
        """Send the queued message, if there is one and the engine is free."""
        if self.queued is not None and self.ready:
            text, self.queued = self.queued, None
            self._ask(text)

    def _grow(self, text: list[str]) -> None:
        if text:
            joined = "".join(text)
            text.clear()
            self.conversation.grow(joined, self.thoughts.reasoning.opening)
            self._view.show_growth(joined)

    def _end(self, status: Status, *, text: str | None = None, stats: dict[str, Any] | None = None) -> None:
        self.desk.running, self.stopping = None, False
        self.tokens.end()
        stats = {**(stats or self._partial_stats()), **self.thoughts.kept()}
        ended = self.conversation.end(status, text=text, stats=stats)
        self._view.show_reply(ended)

    def _partial_stats(self) -> dict[str, Any]:
        return partial_stats(self.state.reply, **self._parts())

    def _parts(self) -> Parts:
        """Who makes the replies."""
        name, state = self.setup.name, self.state
        return Parts(model=name, draft=state.draft, verify=state.verify, exact=state.exact)

    def _leave(self) -> None:
        """Let go of the conversation on screen; a reply that it waits for ends here."""
        self._unqueue()
        if self.replying:
            self.desk.send(Cancel())
            running = self.desk.running
            self._end("cancelled")
            if self.desk.alive:
                # The engine still works on it until it says that it has finished.
                self.desk.running = running
                self.desk.disown("the reply of the other chat")

    def _fail(self, error: LocalspecError) -> None:
        self.failure = error
        self.setup.failed()
        self.state.phase, self.state.info = Phase.DOWN, None
        self._view.show_note(str(error), "error")
        self._unqueue()

    def _unqueue(self) -> None:
        if self.queued is not None:
            text, self.queued = self.queued, None
            self._view.give_back(text)

    def _new_conversation(self) -> Conversation:
        return Conversation(
            self._store,
            model=self.setup.name,
            system_prompt=self._launch.system_prompt,
            on_trouble=lambda error: self._view.show_note(
                f"{error} This chat goes on, but it is not being saved.", "error"
            ),
            on_company=lambda: self._view.show_note(
                "This conversation goes on in another window too: what was written there is kept, and shown "
                "when it is opened the next time.",
                "note",
            ),
        )
