"""Messages between the parts of the app."""

from __future__ import annotations

from dataclasses import dataclass

from textual.message import Message

from localspec.messages import Event
from tui.finder import FinderEvent


@dataclass
class EngineFrame(Message):
    """Everything that the engine and the model's finder said since the last frame, in order."""

    events: tuple[Event | FinderEvent, ...]
