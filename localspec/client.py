"""The engine's process seen from outside: start it, send commands, collect events, survive its death.

Native aborts, kills and out-of-memory end that process and reach the caller as one `EngineExited` event,
never as an exception in the middle of something else.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from pydantic import ValidationError

from localspec.errors import EngineDiedError
from localspec.messages import Command, EngineExited, Event, Shutdown
from localspec.wire import decode_events, encode_commands


class EngineLink(Protocol):
    """What the app needs of an engine; tests put a scripted one in its place."""

    @property
    def alive(self) -> bool:
        """Whether the engine can take commands."""

    def start(self) -> None:
        """Start the engine (again, after it died); returns at once."""

    def send(self, *commands: Command) -> None:
        """Send commands; raises `EngineDiedError` when there is nobody to take them."""

    def drain(self) -> list[Event]:
        """Every event that has arrived; never blocks."""

    def kill(self) -> None:
        """End the engine at once, whatever it is doing; `EngineExited` follows."""

    def close(self) -> None:
        """End the engine and wait for it."""


class EngineClient:
    """One engine process. Not thread-safe, but for its own reader thread."""

    def __init__(self, *, log_path: Path | None = None, command: Sequence[str] | None = None) -> None:
        self._command = list(command or (sys.executable, "-P", "-m", "localspec.worker"))
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._closing = False
        self._reader: threading.Thread | None = None

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """Process id, None before `start`."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process; its first event is `Hello`."""
        if self.alive:
            return
        self._closing = False
        environment = dict(os.environ)
        # An abort must end the process at once, not start a debugger.
        environment.setdefault("GGML_NO_BACKTRACE", "1")
        command = list(self._command)
        if self._log_path is not None:
            command += ["--log", str(self._log_path)]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL if self._log_path else None,
            env=environment,
            # Ctrl+C in the terminal is the app's to handle: the engine is told with a message.
            start_new_session=os.name == "posix",
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        self._reader = threading.Thread(
            target=self._read, args=(self._process,), name="engine-events", daemon=True
        )
        self._reader.start()

    def send(self, *commands: Command) -> None:
        """Write commands to the pipe; raises `EngineDiedError` when it is closed."""
        process = self._process
        if process is None or process.stdin is None or process.poll() is not None:
            raise EngineDiedError("The engine is not running; send the message again to restart it.")
        try:
            process.stdin.write(encode_commands(commands))
            process.stdin.flush()
        except (BrokenPipeError, OSError, ValueError) as error:
            raise EngineDiedError("The engine stopped; send the message again to restart it.") from error

    def drain(self) -> list[Event]:
        """Every event that has arrived since the last call; never blocks."""
        events: list[Event] = []
        with contextlib.suppress(queue.Empty):
            while True:
                events.append(self._events.get_nowait())
        return events

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Events as they come, up to and with `EngineExited`, or until `timeout` seconds of silence."""
        while True:
            try:
                event = self._events.get(timeout=timeout)
            except queue.Empty:
                return
            yield event
            if isinstance(event, EngineExited):
                return

    def kill(self) -> None:
        """End the process at once, for one that no longer answers; `EngineExited` follows."""
        if self._process is not None:
            self._process.kill()

    def close(self, timeout: float = 3.0) -> None:
        """Ask the process to end; kill it after `timeout` seconds."""
        process = self._process
        if process is None:
            return
        self._closing = True
        with contextlib.suppress(EngineDiedError):
            self.send(Shutdown())
        with contextlib.suppress(OSError):
            if process.stdin:
                process.stdin.close()
        deadline = time.monotonic() + timeout
        while process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
        if process.poll() is None:
            process.kill()
        process.wait()
        if self._reader:
            self._reader.join(timeout)

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None  # noqa: S101 - it was opened as a pipe
        with process.stdout:
            for line in process.stdout:
                try:
                    for event in decode_events(line):
                        self._events.put(event)
                except ValidationError:
                    # Half a line from a process that was killed while writing.
                    continue
        process.wait()
        process.stdout.close()
        # What a dead process has not read cannot be flushed; the descriptor is closed all the same.
        with contextlib.suppress(OSError):
            if process.stdin:
                process.stdin.close()
        self._events.put(EngineExited(_why_it_ended(process.returncode, self._closing), self._closing))


def _why_it_ended(code: int, closing: bool) -> str:
    if closing or code == 0:
        return "The engine has stopped."
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        hint = " (often the system running out of memory)" if name == "SIGKILL" else ""
        hint = " (llama.cpp gave up; its log says why)" if name == "SIGABRT" else hint
        return f"The engine was ended by {name}{hint}; the next message restarts it."
    return f"The engine stopped with exit code {code}; the next message restarts it."
