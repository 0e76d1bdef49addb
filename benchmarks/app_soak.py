"""The app under a stream that never pauses: key-to-screen latency, its share of a core, memory, and the text.

A scripted engine says `--tokens` tokens with code fences at `--rate` a second, in the app's process:
its cost counts too. Now and then a key is pressed, and its character looked for in what the terminal gets.
"""

from __future__ import annotations

import fcntl
import os
import pty
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from pathlib import Path

import psutil
from common import parser, report

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from localspec.chat.store import Store
from tests.tui.helpers import LAUNCH
from tests.tui.scripted import ScriptedEngine
from tui.app import run_chat

PARAGRAPH = (
    "The keeper climbs the stairs, counts them *again*, and writes **one** line into the book.\n\n"
    "- lamp: lit\n- wind: north\n\n```python\ndef light(lamp):\n    for step in range(12):\n"
    "        lamp.turn(step)  # slowly\n    return lamp\n```\n\n"
)
CHARACTERS = 4
FIRST_KEY = 0x4E00
"""Signs that no text here holds: each pressed key is a new one."""


def reply(tokens: int) -> str:
    """Text of so many tokens."""
    size = tokens * CHARACTERS
    return (PARAGRAPH * (size // len(PARAGRAPH) + 1))[:size]


def child(tokens: int, rate: float) -> None:
    """The app, with the stream as its engine's first reply."""
    engine = ScriptedEngine([reply(tokens)], rate=rate, burst=4, characters=CHARACTERS)
    store = Store()
    sys.exit(run_chat(LAUNCH, link=engine, store=store))


class Screen:
    """What the app writes to its terminal."""

    def __init__(self, leader: int) -> None:
        self.written = bytearray()
        self.leader = leader
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self.leader, 65536)
            except OSError:
                return
            if not data:
                return
            self.written += data

    def wait_for(self, wanted: bytes, seconds: float, start: int = 0) -> float:
        """Seconds until `wanted` was written after byte `start`."""
        began = time.perf_counter()
        while self.written.find(wanted, start) < 0:
            if time.perf_counter() - began > seconds:
                raise SystemExit(f"{wanted!r} was not drawn within {seconds} s")
            time.sleep(0.001)
        return time.perf_counter() - began


def watched(
    screen: Screen, app: subprocess.Popen[bytes], seconds: float
) -> tuple[list[float], list[int], float]:
    """Press keys for about so long; delays in seconds, resident sizes in bytes, and the share of a core."""
    process, leader = psutil.Process(app.pid), screen.leader
    screen.wait_for(b"essage scripted", 30)
    time.sleep(1.0)
    os.write(leader, b"Tell me everything.\r")
    screen.wait_for(b"stairs", 10)
    began, used = time.monotonic(), sum(process.cpu_times()[:2])
    delays: list[float] = []
    sizes: list[int] = []
    while time.monotonic() - began < seconds - 1.0:
        sign, start = chr(FIRST_KEY + len(delays)).encode(), len(screen.written)
        os.write(leader, sign)
        delays.append(screen.wait_for(sign, 10, start))
        os.write(leader, b"\x7f")
        sizes.append(process.memory_info().rss)
        time.sleep(0.19)
    share = (sum(process.cpu_times()[:2]) - used) / (time.monotonic() - began)
    time.sleep(3.0)
    os.write(leader, b"\x11")
    app.wait(timeout=30)
    return delays, sizes, share


def main() -> None:
    options = parser(__doc__ or "")
    options.add_argument("--tokens", type=int, default=20_000)
    options.add_argument("--rate", type=float, default=1000.0)
    options.add_argument("--child", action="store_true", help="be the app")
    given = options.parse_args()
    if given.child:
        child(given.tokens, given.rate)
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "LOCALSPEC_HOME": folder, "TERM": "xterm-256color"}
        arguments = ["--child", "--tokens", str(given.tokens), "--rate", str(given.rate)]
        app = subprocess.Popen(
            [sys.executable, __file__, *arguments],
            stdin=follower, stdout=follower, stderr=follower, env=environment, start_new_session=True,
        )  # fmt: skip
        try:
            delays, sizes, share = watched(Screen(leader), app, given.tokens / given.rate)
        finally:
            app.kill()
        store = Store(Path(folder) / "data" / "conversations.db")
        latest = store.latest()
        kept = store.messages(latest.id)[-1].content if latest else ""
        store.close()
    delays.sort()
    quarter = len(sizes) // 4
    report(
        "a stream that never pauses, key to screen in ms",
        {"latency": [1e3 * delay for delay in delays]},
        p95_ms=round(1e3 * delays[int(0.95 * (len(delays) - 1))], 1),
        keys=len(delays),
        share_of_a_core=round(share, 3),
        memory_growth_mb=round(
            (statistics.median(sizes[-quarter:]) - statistics.median(sizes[:quarter])) / 1e6, 1
        ),
        text_is_equal=kept == reply(given.tokens),
    )


if __name__ == "__main__":
    main()
