"""The engine's process: commands on standard input, events on standard output.

A native abort, a kill or the system's out-of-memory killer ends this process and nothing else. The main
thread works; a second one only reads commands, so that cancelling and toggling reach a running reply.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

from localspec import __version__
from localspec.drafting import Drafting
from localspec.engine import Engine
from localspec.errors import EngineError, LocalspecError
from localspec.messages import (
    Cancel,
    Command,
    Event,
    Failed,
    Finished,
    Generate,
    Hello,
    Load,
    Loaded,
    LoadProgress,
    Note,
    Score,
    Scored,
    SetDrafter,
    SetSpeculation,
    Shutdown,
    Spell,
    Spelled,
    Step,
    Weigh,
    Weighed,
)
from localspec.models.gguf import read_header
from localspec.scoring import spelled
from localspec.wire import decode_commands, encode_events

_FLUSH_S = 0.04
"""Steps are sent together about this often: every line wakes the client, and on a shared CPU that costs
tokens."""
_QUIET_S, _BETWEEN_PASSES_S = 0.3, 0.001
"""Silence after which idle time begins, and the moment for a command between two passes."""
_ORPHAN_GRACE_S = 10.0
_LONGEST_LOG = 4_000_000

logger = logging.getLogger("localspec.worker")


class _Outbox:
    """Collects events and writes them as lines: at once, but for steps, which wait for company."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._waiting: list[Event] = []
        self._flushed_at = 0.0

    def put(self, event: Event) -> None:
        self._waiting.append(event)
        if not isinstance(event, Step) or time.monotonic() - self._flushed_at >= _FLUSH_S:
            self.flush()

    def flush(self) -> None:
        if self._waiting:
            self._stream.write(encode_events(self._waiting))
            self._stream.flush()
            self._waiting.clear()
        self._flushed_at = time.monotonic()


class _Progress:
    """Reports what is being loaded, in steps of a hundredth."""

    def __init__(self, outbox: _Outbox) -> None:
        self._outbox = outbox
        self._last = -1.0
        self.stage = "loading"

    def __call__(self, fraction: float) -> None:
        if fraction < self._last:
            # The next file: a draft model comes after its target.
            self._last = -1.0
        if fraction >= 1.0 or fraction - self._last >= 0.01:
            self._last = fraction
            self._outbox.put(LoadProgress(fraction, self.stage))


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A line that was no command; it is answered in its turn."""


class Worker:
    """Runs commands one after the other until it is told to stop or its client is gone."""

    def __init__(self, commands: BinaryIO, events: BinaryIO) -> None:
        self._input = commands
        self._outbox = _Outbox(events)
        self._arrived: queue.SimpleQueue[Command | _Unreadable] = queue.SimpleQueue()
        self._later: deque[Command | _Unreadable] = deque()
        self._engine: Engine | None = None
        self._loaded: Load | None = None
        self._progress = _Progress(self._outbox)
        self._stopping = self._trying = False

    def run(self) -> None:
        """The main loop."""
        threading.Thread(target=self._read, name="commands", daemon=True).start()
        self._outbox.put(Hello(os.getpid(), __version__))
        while not self._stopping:
            self._handle(self._later.popleft() if self._later else self._next())
        if self._engine:
            self._engine.close()

    def _next(self) -> Command | _Unreadable:
        """The next command; while none comes, costs of passes are measured, one pass at a time."""
        pause = _QUIET_S
        while self._engine is not None:
            with contextlib.suppress(queue.Empty):
                return self._arrived.get(timeout=pause)
            if not self._engine.calibrate():
                break
            pause = _BETWEEN_PASSES_S
        return self._arrived.get()

    def _handle(self, command: Command | _Unreadable) -> None:
        try:
            match command:
                case Load():
                    self._load(command)
                case Generate():
                    self._outbox.put(self._generate(command))
                case Weigh():
                    self._outbox.put(self._weigh(command))
                case Score():
                    self._outbox.put(self._score(command))
                case Spell():
                    self._spell(command)
                case SetSpeculation() | SetDrafter():
                    self._control(command)
                case Shutdown():
                    self._stopping = True
                case Cancel():
                    pass  # the reply that it was meant for has ended, or is told by `_between_steps`
                case _Unreadable():
                    unread = EngineError("The engine was sent a command that it cannot read; its log has it.")
                    self._fail(command, unread)
        except LocalspecError as error:
            self._fail(command, error)
        except MemoryError:
            self._fail(
                command, EngineError("The engine ran out of memory; choose a smaller model or context.")
            )
        except Exception as error:
            logger.exception("unexpected")
            self._fail(
                command,
                EngineError(
                    f"The engine failed unexpectedly ({type(error).__name__}: {error}); its log has more."
                ),
            )

    def _fail(self, command: Command | _Unreadable, error: LocalspecError) -> None:
        request = command.id if isinstance(command, Generate | Weigh | Score) else None
        kind = "" if isinstance(command, _Unreadable) else command.type
        detail = "".join(traceback.format_exception(error))
        logger.error("%s", detail)
        unloaded = isinstance(command, Load) and self._loaded is None
        self._outbox.put(Failed(request, type(error).__name__, str(error), detail, kind, unloaded))
        if unloaded or not isinstance(command, Load):
            return
        # The change failed: the model before goes on.
        if self._engine is not None:
            self._outbox.put(Loaded(self._engine.info, self._engine.load_s, self._engine.memory()))
        elif self._loaded is not None:
            before, self._loaded = self._loaded, None
            self._handle(before)

    def _load(self, command: Load) -> None:
        if self._engine is not None:
            # What can be known of the new model without its weights is checked while the old one is there.
            Drafting.check(command.options.draft, command.options.verify)
            read_header(Path(command.path))
            # Both at once may be more than the memory holds.
            self._engine.close()
            self._engine = None
        self._progress.stage = "loading"
        engine = Engine(Path(command.path), command.name, command.options, self._progress)
        self._engine, self._loaded = engine, command
        info = engine.info
        self._outbox.put(Loaded(info, engine.load_s, engine.memory()))
        for note in engine.take_notes():
            self._outbox.put(Note(note))
        if 0 < info.trained_context < info.context:
            self._outbox.put(
                Note(
                    f"The context of {info.context} tokens is longer than the {info.trained_context} that "
                    "this model was trained for: expect worse replies past that point."
                )
            )

    def _generate(self, command: Generate) -> Finished:
        if self._engine is None:
            raise EngineError("No model is loaded; load one first.")
        # A trial may need a draft model of its own.
        self._progress.stage = "drafter"
        self._trying = command.trial is not None
        try:
            return self._engine.generate(command, self._outbox.put, self._between_steps)
        finally:
            self._trying = False

    def _weigh(self, command: Weigh) -> Weighed:
        if self._engine is None:
            raise EngineError("No model is loaded; load one first.")
        return self._engine.weigh(command, self._between_steps)

    def _score(self, command: Score) -> Scored:
        if self._engine is None:
            raise EngineError("No model is loaded; load one first.")
        return self._engine.score(command, self._outbox.put, self._between_steps)

    def _spell(self, command: Spell) -> None:
        # Another model's tokens mean something else.
        if self._engine is not None and self._loaded is not None and self._loaded.path == command.path:
            spellings = spelled(self._engine.session.vocabulary, command.tokens)
            self._outbox.put(Spelled(command.path, command.tokens, spellings))

    def _control(self, command: SetSpeculation | SetDrafter) -> None:
        if self._engine is None:
            return
        if isinstance(command, SetSpeculation):
            self._outbox.put(self._engine.set_speculation(command.enabled))
            return
        self._progress.stage = "drafter"
        self._outbox.put(self._engine.set_drafter(command.draft))
        for note in self._engine.take_notes():
            self._outbox.put(Note(note))
        if self._loaded is not None:
            # Loaded anew after a change that failed, it drafts as it does now.
            self._loaded = replace(self._loaded, options=replace(self._loaded.options, draft=command.draft))

    def _between_steps(self) -> bool:
        """Take what has arrived during a reply; True when the reply is to end.

        What follows a command that must wait waits behind it, but for `Cancel`, which also ends this reply.
        A trial has a drafter and a policy of its own, so the chat's are changed after it.
        """
        cancelled = False
        waits = (Load, Generate, Weigh, Score) + ((SetSpeculation, SetDrafter) if self._trying else ())
        while self._later and not isinstance(self._later[0], waits):
            command = self._later.popleft()
            cancelled = cancelled or isinstance(command, Cancel)
            self._handle(command)
        while not self._arrived.empty():
            command = self._arrived.get()
            if isinstance(command, Shutdown):
                self._stopping = cancelled = True
                continue
            cancelled = cancelled or isinstance(command, Cancel)
            if self._later or isinstance(command, waits):
                self._later.append(command)
            else:
                self._handle(command)
        return cancelled

    def _read(self) -> None:
        for line in self._input:
            try:
                for command in decode_commands(line):
                    self._arrived.put(command)
            except ValidationError:
                logger.exception("unreadable command")
                self._arrived.put(_Unreadable())
        # The client is gone. End after the current step, or by force where that step takes too long.
        self._arrived.put(Shutdown())
        time.sleep(_ORPHAN_GRACE_S)
        os._exit(0)


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of `python -m localspec.worker`."""
    parser = argparse.ArgumentParser(prog="localspec.worker")
    parser.add_argument("--log", type=Path, help="file that takes llama.cpp's log and native messages")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Native code prints to descriptors 1 and 2; the events get a descriptor of their own.
    events = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if options.log:
        _log_to(options.log)
    try:
        Worker(sys.stdin.buffer, events).run()
    except BrokenPipeError:
        # The client closed its end; there is nobody left to tell.
        os._exit(0)


def _log_to(path: Path) -> None:
    try:
        # Two apps may share the log, so it grows; now and then it starts anew.
        mode = "w" if path.exists() and path.stat().st_size > _LONGEST_LOG else "a"
        log = path.open(mode, encoding="utf-8")
    except OSError:
        # A log that cannot be written is no reason to refuse a chat.
        return
    os.dup2(log.fileno(), 1)
    os.dup2(log.fileno(), 2)
    logging.basicConfig(
        stream=log,
        level=logging.DEBUG,
        format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s",
        force=True,
    )


if __name__ == "__main__":
    main()
