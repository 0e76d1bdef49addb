"""A terminal for tests: a real pseudo-terminal, and a screen that shows what a person would see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence

import pyte

# Sequences newer than the emulator, which would show them as text.
_UNKNOWN = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


class Terminal:
    """Runs a command in a pseudo-terminal of `columns` x `rows`."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], columns: int = 110, rows: int = 36
    ) -> None:
        self._screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._screen)
        self._lock = threading.Lock()
        self.written = b""
        # Emulating a screen in Python costs more CPU than the app: benchmarks look away.
        self.blind = False
        self._leader, follower = pty.openpty()
        self._size(columns, rows)
        # A test runner's own idea of the window would count for more than the window.
        inherited = {name: value for name, value in environment.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command,
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env={**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(follower)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """The screen as lines of text."""
        with self._lock:
            return "\n".join(line.rstrip() for line in self._screen.display)

    def send(self, keys: str) -> None:
        """Type."""
        os.write(self._leader, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        """Give the window another size, as a window manager would."""
        with self._lock:
            self._screen.resize(rows, columns)
        self._size(columns, rows)

    def wait_for(self, *wanted: str, seconds: float = 120, gone: bool = False) -> str:
        """Wait until every text of `wanted` is on the screen (or none, where `gone`); returns the screen."""
        deadline = time.monotonic() + seconds
        while True:
            text = self.text
            if all((word in text) != gone for word in wanted):
                return text
            if time.monotonic() > deadline or self.process.poll() is not None:
                state = self.process.poll()
                raise AssertionError(
                    f"waited for {wanted} (gone: {gone}, exit {state}); the screen was:\n{text}"
                )
            time.sleep(0.05)

    def wait_until_ended(self, seconds: float = 60) -> int:
        """Exit status."""
        status = self.process.wait(timeout=seconds)
        self._reader.join(timeout=seconds)
        return status

    def hang_up(self) -> None:
        """Close the window: the terminal is gone. The processes in it are not told."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, self._leader)
        os.close(nowhere)

    def close(self) -> None:
        """End the command, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(timeout=5)
        os.close(self._leader)

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._leader, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self) -> None:
        held = b""
        while True:
            try:
                data = os.read(self._leader, 65536)
            except OSError:
                return
            if not data:
                return
            if self.blind:
                continue
            self.written += data
            held += data
            # A sequence may be cut at the end of a read: keep what could still be the start of one.
            cut = held.rfind(b"\x1b")
            whole = held if cut < 0 or len(held) - cut > 64 else held[:cut]
            held = held[len(whole) :]
            with self._lock:
                self._stream.feed(_UNKNOWN.sub(b"", whole))
            if held and re.search(rb"\x1b(\[[0-9;?]*[a-zA-Z]|\][^\x07]*\x07|[^\[\]])", held):
                with self._lock:
                    self._stream.feed(_UNKNOWN.sub(b"", held))
                held = b""
