"""The app's end of the engine: requests are numbered and sent, one thing is worked on at a time."""

from __future__ import annotations

from collections.abc import Callable

from localspec.client import EngineLink
from localspec.errors import EngineDiedError
from localspec.messages import (
    Cancel,
    Command,
    EngineExited,
    Event,
    Failed,
    Finished,
    Generate,
    Load,
    Loaded,
    LoadProgress,
    PrefillProgress,
    Score,
    Scored,
    Step,
    Weigh,
    Weighed,
)
from tui.finder import FinderEvent
from tui.state import LiveState

Listener = Callable[[Event], None]


class Desk:
    """Everything that goes to one engine goes through here.

    The engine works for the chat, or on an errand: something else, whose events the chat does not see.

    Args:
        link: the engine.

    Attributes:
        running: number of the request that is worked on, None for none.
        errand: what it is, in words, where it is not the chat's; else "".
    """

    def __init__(self, link: EngineLink) -> None:
        self._link = link
        self._last_id = 0
        self._listener: Listener | None = None
        self._loads = self._shared = False
        self.running: int | None = None
        self.errand = ""

    @property
    def alive(self) -> bool:
        """Whether there is an engine that takes commands."""
        return self._link.alive

    def new_id(self) -> int:
        """A number for a request, which no other one has."""
        self._last_id += 1
        return self._last_id

    def start(self) -> None:
        """Start the engine where there is none."""
        self._link.start()

    def send(self, *commands: Command) -> bool:
        """Send commands; False where there is nobody to take them."""
        try:
            self._link.send(*commands)
        except EngineDiedError:
            # Its `EngineExited` is on the way and says more.
            return False
        return True

    def kill(self) -> None:
        """End an engine that does not answer."""
        self._link.kill()

    def close(self) -> None:
        """End the engine."""
        self._link.close()

    # --- errands

    def lend(
        self,
        request: Generate | Weigh | Score | Load,
        errand: str,
        listener: Listener,
        *,
        shared: bool = False,
    ) -> bool:
        """Send a request that is not the chat's, while nothing is worked on; False where there is no engine.

        Args:
            request: with a number of this desk.
            errand: what it is, in words.
            listener: takes its events, up to the one that ends it.
            shared: the chat sees them too: its own model comes back.
        """
        if not self.send(request):
            return False
        self._loads, self._shared = isinstance(request, Load), shared
        self.running = self.new_id() if isinstance(request, Load) else request.id
        self.errand, self._listener = errand, listener
        return True

    def recall(self) -> None:
        """End the errand; its listener is told nothing more."""
        if self.errand:
            self.send(Cancel())
            self._listener = None

    def disown(self, errand: str) -> None:
        """Nobody wants any more what is worked on; with the request's end the engine is free."""
        self.errand, self._listener = errand, None
        self._loads = self._shared = False

    def follow(self, event: Event | FinderEvent, state: LiveState) -> bool:
        """Take an event of the errand; False where it is none, or the chat's as well."""
        if not self.errand:
            return False
        over, shared = True, self._shared
        match event:
            case EngineExited():
                pass
            case LoadProgress() if self._loads:
                over = False
            case Loaded() if self._loads:
                pass
            case Failed(command="load") if self._loads:
                # Else the model before is loaded again, and `Loaded` says so.
                over = shared = event.unloaded
            case Step() | PrefillProgress() | Scored(ended=False) if event.id == self.running:
                over = False
            case Finished() | Weighed() | Scored() | Failed() if event.id == self.running:
                pass
            case _:
                return False
        if not (shared or isinstance(event, EngineExited)):
            state.aside(event)
        listener = self._listener
        if over:
            self.running, self.errand, self._listener = None, "", None
        if listener is not None:
            listener(event)
        return not shared
