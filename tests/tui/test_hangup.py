"""Terminals that go away without a word: no SIGHUP, only an input that ends and output that fails."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from localspec.chat.store import Store
from tests.cli.conftest import environment, scripted_command, tiny_gguf
from tui.hangup import HangUpWatch

__all__ = ["tiny_gguf"]  # a fixture

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")

HUNG_UP = 128 + signal.SIGHUP

DRAWN = b"essage"
"""Of the prompt's "Message", whose first letter is under the cursor."""


class LoneTerminal:
    """A pseudo-terminal that is nobody's controlling terminal; SIGHUP is blocked as well."""

    def __init__(self, command: list[str], extra: dict[str, str]) -> None:
        self.leader, follower = pty.openpty()
        fcntl.ioctl(self.leader, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        inherited = {name: text for name, text in environment().items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**inherited, "TERM": "xterm-256color", **extra},
            start_new_session=True,
            preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP}),
        )
        os.close(follower)

    def type(self, keys: str) -> None:
        os.write(self.leader, keys.encode())

    def read_until(self, wanted: bytes) -> None:
        """Read what is drawn until that is among it."""
        seen, deadline = b"", time.monotonic() + 120
        while wanted not in seen:
            assert time.monotonic() < deadline, seen
            if select.select([self.leader], [], [], 1)[0]:
                seen += os.read(self.leader, 65536)

    def vanish(self) -> list[psutil.Process]:
        """Close the other end; returns what runs below the app."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        os.close(self.leader)
        return below


@contextlib.contextmanager
def chatting(model: Path, *options: str, **extra: str) -> Iterator[LoneTerminal]:
    """The chat in such a terminal, with an engine that never ends a reply."""
    command = scripted_command("endless", "chat", "--model", str(model), "--draft", "none", *options)
    terminal = LoneTerminal(command, extra)
    try:
        terminal.read_until(DRAWN)
        yield terminal
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
        terminal.process.wait()


@pytest.mark.parametrize("options", [(), ("--inline",)], ids=["screen", "inline"])
def test_in_the_middle_of_a_reply_the_reply_is_kept(tiny_gguf: Path, options: tuple[str, ...]) -> None:
    with chatting(tiny_gguf, *options) as terminal:
        terminal.type("hello\r")
        terminal.read_until(b"on and on")
        below = terminal.vanish()
        assert terminal.process.wait(timeout=60) == HUNG_UP
        assert psutil.wait_procs(below, timeout=30)[1] == []
    store = Store(read_only=True)
    try:
        latest = store.latest()
        assert latest is not None
        question, reply = store.messages(latest.id)
    finally:
        store.close()
    assert question.content == "hello"
    assert reply.content.startswith("on and on")
    # It was ended by the app, not by force.
    assert reply.status == "cancelled"


def test_a_chat_that_rests_ends_too(tiny_gguf: Path) -> None:
    with chatting(tiny_gguf) as terminal:
        below = terminal.vanish()
        assert below
        assert terminal.process.wait(timeout=60) == HUNG_UP
        assert psutil.wait_procs(below, timeout=30)[1] == []


def test_an_editor_that_stays_does_not_hold_the_app(tiny_gguf: Path) -> None:
    with chatting(tiny_gguf, VISUAL="sh -c 'echo EDITING; exec sleep 300'") as terminal:
        engine = psutil.Process(terminal.process.pid).children(recursive=True)
        terminal.type("\x07")
        terminal.read_until(b"EDITING")
        editing = [process for process in terminal.vanish() if process not in engine]
        try:
            assert terminal.process.wait(timeout=60) == HUNG_UP
            assert psutil.wait_procs(engine, timeout=30)[1] == []
        finally:
            for process in editing:
                process.kill()


def test_a_pipe_is_watched_as_well() -> None:
    reading, writing = os.pipe()
    gone = threading.Event()
    watch = HangUpWatch(reading)
    try:
        os.write(writing, b"something to read is no end")
        watch.start(gone.set)
        assert not gone.wait(0.3)
        os.close(writing)
        assert gone.wait(60)
    finally:
        watch.stop()
        os.close(reading)


def test_what_cannot_be_watched_is_left_alone() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    gone = threading.Event()
    HangUpWatch(reading).start(gone.set)
    assert not gone.wait(0.3)
