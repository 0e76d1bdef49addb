"""Other models in the chat's engine, one at a time, for a comparison; the chat's own comes back after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from localspec.messages import EngineExited, Event, Failed, Load, Loaded
from localspec.types import DraftOptions
from tui.chat import Chat
from tui.compare_runs import Contender

ERRAND = "the comparison"


class Guests:
    """Which model the engine has while a comparison uses it.

    Two models at once may be more than the memory holds, so each change is a load; what these take is told.

    Args:
        chat: whose engine and model.
        on_change: told when a model is there, or when there will be none; the argument says why, else "".

    Attributes:
        loads: models that were loaded for the comparison so far.
        seconds: what that took.
    """

    def __init__(self, chat: Chat, on_change: Callable[[str], None]) -> None:
        self._chat, self._on_change = chat, on_change
        self._here: Path | None = None
        self._trouble = ""
        self.loads = 0
        self.seconds = 0.0

    @property
    def away(self) -> bool:
        """Whether the engine has another model than the chat's."""
        return self._here is not None and self._here != self._chat.setup.file

    def has(self, contender: Contender) -> bool:
        """Whether the engine has the model of a side."""
        own = self._chat.setup.file
        wanted = own if contender.model is None else contender.model.path
        return wanted == (self._here or own)

    def bring(self, contender: Contender) -> bool:
        """Have the model of a side loaded; False where there is no engine."""
        model = contender.model
        if model is None:
            return self.bring_back()
        # Its drafter comes with the trial; one of the chat's may not suit it.
        options = replace(self._chat.setup.options, draft=DraftOptions("none"))
        return self._load(Load(str(model.path), model.name, options), own=False)

    def bring_back(self) -> bool:
        """Have the chat's own model loaded; False where there is no engine."""
        setup = self._chat.setup
        if setup.file is None:
            return False
        options = replace(setup.options, speculation=self._chat.state.wanted)
        return self._load(Load(str(setup.file), setup.name, options), own=True)

    def take(self, event: Event) -> None:
        """An event of a load."""
        match event:
            case Loaded(info=info, load_s=seconds):
                self._here = Path(info.path)
                self.loads += 1
                self.seconds += seconds
                trouble, self._trouble = self._trouble, ""
                self._on_change(trouble)
            case Failed(message=message, unloaded=False):
                # The model before is loaded again, and told of.
                self._trouble = message
            case Failed(message=message) | EngineExited(message=message):
                self._here, self._trouble = None, ""
                self._on_change(message)
            case _:
                pass

    def lost(self) -> None:
        """The engine is gone; a new one has the chat's model."""
        self._here = None

    def _load(self, load: Load, *, own: bool) -> bool:
        desk = self._chat.desk
        return self._chat.ready and desk.lend(load, ERRAND, self.take, shared=own)
