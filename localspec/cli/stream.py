"""One reply from the engine, streamed to where it is wanted, with Ctrl+C and failures handled."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Protocol, TextIO

import typer

from localspec.chat.thinking import Reasoning
from localspec.cli.common import StatusLine, debugging
from localspec.cli.thoughts import Thoughts
from localspec.errors import BY_NAME, EngineDiedError, EngineError
from localspec.messages import (
    Cancel,
    Command,
    EmittedToken,
    EngineExited,
    Event,
    Failed,
    Finished,
    Generate,
    Load,
    Loaded,
    LoadProgress,
    Note,
    PrefillProgress,
    Reply,
    SpeculationChanged,
    Step,
)
from localspec.text import printable

if TYPE_CHECKING:
    from localspec.stats.recorder import Recorder

POLL_S = 0.05
"""How long Ctrl+C may wait for the loop while no event arrives, in seconds."""


class Engine(Protocol):
    """What a stream needs of an engine, as `localspec.client.EngineClient` has it."""

    def send(self, *commands: Command) -> None:
        """Send commands; raises `EngineDiedError`."""

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Events as they come, until `timeout` seconds of silence."""


class ReplyStream:
    """Loads a model where that is to be done, asks once, and follows the reply.

    Args:
        client: a started engine.
        out: where text goes as it becomes certain; None keeps it for the returned reply.
        recorder: takes the counters of every step, and why the draft length is chosen as it is.
        status: whether a line that overwrites itself tells what is going on, where somebody watches.
        thoughts: what shows the reasoning of the reply, of which `out` gets the answer alone.
        whole: `out` gets all of it, reasoning and marks too.

    Attributes:
        tokens: the tokens of the reply so far.
        reason: why speculation is as it is, in the engine's newest words.
        opening: the mark of reasoning that the prompt ends with, "" for none.
    """

    def __init__(
        self,
        client: Engine,
        out: TextIO | None,
        recorder: Recorder | None = None,
        *,
        status: bool = True,
        thoughts: Thoughts | None = None,
        whole: bool = False,
    ) -> None:
        self._client = client
        self._out = out
        self._recorder = recorder
        self.tokens: list[EmittedToken] = []
        self.reason = ""
        self._index = 0
        self._status = StatusLine(wanted=status)
        self._last = "\n"
        self._streamed = 0
        self._loading = ""
        self.opening = ""
        self._thoughts, self._whole = thoughts or Thoughts(), whole
        self._reasoning, self._answered = Reasoning(), 0

    @property
    def unanswered(self) -> bool:
        """Whether the reply so far is nothing but reasoning."""
        reasoning = self._reasoning
        return not self._whole and bool(reasoning.blocks) and not reasoning.answer.strip()

    def answer(self, load: Load | None, request: Generate) -> Reply:
        """The finished reply; after one Ctrl+C its `finish_reason` is "cancelled".

        Args:
            load: what is loaded first; None where that was done before.
            request: what is asked.

        Raises:
            LocalspecError: what the engine reported, as the class that it names.
            EngineDiedError: the engine's process ended.
            KeyboardInterrupt: Ctrl+C before the reply began, or pressed twice.
        """
        try:
            with _counted_interrupts() as interrupts:
                return self._follow(load, request, interrupts)
        finally:
            self._status.clear()
            # What looked like the beginning of a mark is text after all.
            self._reasoning.finish()
            self._show()
            self._thoughts.rest()
            if self._last != "\n":
                self._write("\n")

    def _follow(self, load: Load | None, request: Generate, interrupts: list[int]) -> Reply:
        asked, cancelled = load is None, False
        self._loading = load.name if load else ""
        self._send(load or request)
        while True:
            for event in self._client.events(timeout=POLL_S):
                if isinstance(event, Loaded) and not asked:
                    self._because(event.info.speculation_reason)
                    self._send(request)
                    asked, self._loading = True, ""
                elif isinstance(event, Finished):
                    # What was held back, for a stop string or half a character, when the reply was cut.
                    self._status.clear()
                    self._hear(event.reply.text[self._streamed :])
                    return event.reply
                else:
                    self._handle(event, load.name if load else "the draft model")
                if interrupts:
                    break
            if len(interrupts) > 1 or (interrupts and not asked):
                raise KeyboardInterrupt
            if interrupts and not cancelled:
                self._send(Cancel())
                cancelled = True

    def _handle(self, event: Event, name: str) -> None:
        if isinstance(event, Step):
            self._status.clear()
            self._streamed += len(event.text)
            self._hear(event.text)
            self.tokens += event.tokens
            self._index = event.stats.index + 1
            if self._recorder is not None:
                self._recorder.write(event.stats)
        elif isinstance(event, SpeculationChanged):
            self._because(event.reason)
        elif isinstance(event, LoadProgress):
            self._status.show(f"loading {name} {event.fraction:.0%}")
        elif isinstance(event, PrefillProgress):
            if not self._streamed:
                # Read again in the middle of a reply, the prompt ends with the reply so far.
                self.opening, self._reasoning = event.opening, Reasoning(event.opening)
            self._status.show(f"reading the prompt {event.done}/{event.total} tokens")
        elif isinstance(event, Note):
            self._status.clear()
            self._thoughts.rest()
            # In a terminal the reply stands on the same line.
            within = self._last != "\n" and self._out is not None and self._out.isatty()
            typer.echo(("\n" if within else "") + f"note: {event.text}", err=True)
        elif isinstance(event, Failed):
            if debugging() and event.detail:
                typer.echo(event.detail, err=True)
            raise BY_NAME.get(event.error, EngineError)(event.message)
        elif isinstance(event, EngineExited):
            # What follows the reason speaks of a chat that goes on.
            reason = event.message.rstrip(".").partition("; the next message")[0]
            if self._loading:
                reason += f" while it was loading {self._loading}"
                raise EngineDiedError(
                    f"{reason}; its file may be damaged: fetch it again, or choose another."
                )
            raise EngineDiedError(f"{reason}; the reply is incomplete, run the command again.")

    def _because(self, reason: str) -> None:
        self.reason = reason
        if self._recorder is not None:
            self._recorder.reason(reason, self._index)

    def _hear(self, text: str) -> None:
        """More of the reply."""
        if self._whole:
            self._write(text)
            return
        self._reasoning.add(text)
        self._show()

    def _show(self) -> None:
        self._thoughts.show(self._reasoning.blocks)
        answer = self._reasoning.answer[self._answered :]
        if answer:
            self._thoughts.rest()
            self._answered += len(answer)
            self._write(answer)

    def _write(self, text: str) -> None:
        if self._out is None or not text:
            return
        self._out.write(printable(text) if self._out.isatty() else text)
        self._out.flush()
        self._last = text[-1]

    def _send(self, command: Command) -> None:
        try:
            self._client.send(command)
        except EngineDiedError:
            # The client's reader knows why the engine ended, and says so in a moment.
            for event in self._client.events(timeout=1.0):
                if isinstance(event, EngineExited | Failed):
                    self._handle(event, "")
            raise


@contextmanager
def _counted_interrupts() -> Iterator[list[int]]:
    """Collect Ctrl+C in a list instead of raising in the middle of something."""
    pressed: list[int] = []

    def press(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the shape of a handler
        pressed.append(number)

    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:
        # A script's background job: Ctrl+C is meant for others.
        yield pressed
        return
    signal.signal(signal.SIGINT, press)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
