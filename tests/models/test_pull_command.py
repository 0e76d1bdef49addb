"""`localspec models pull` as a process of its own, which finds the hub by HF_ENDPOINT."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from localspec.models import store
from localspec.models.entries import HubSource, ModelEntry
from tests.models.conftest import gguf_bytes
from tests.models.hub_server import Hub
from tests.models.split_files import split_bytes, split_name

REPO = "owner/tiny-GGUF"
MODEL = gguf_bytes(tensors=(("w", (1024, 512), 0), ("v", (1024, 512), 0)), data=bytes(range(256)) * 16384)
NAMES = [split_name("big", number, 2) for number in (1, 2)]
FOLDER = "hf-owner--tiny-GGUF--tiny.gguf"

posix = pytest.mark.skipif(os.name != "posix", reason="needs signals and pseudo-terminals")


@pytest.fixture(autouse=True)
def published(hub: Hub) -> None:
    hub.publish(REPO, {"tiny.gguf": MODEL, **dict(zip(NAMES, split_bytes(MODEL, 2), strict=True))})


def command(hub: Hub, tmp_path: Path, file: str = "tiny.gguf") -> tuple[list[str], dict[str, str]]:
    """The arguments of the process and its environment."""
    environment = os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "hf"),
        "TERM": "xterm-256color",
        "COLUMNS": "100",
    }
    environment.pop("HF_HUB_CACHE", None)
    return [sys.executable, "-m", "localspec", "models", "pull", f"hf:{REPO}/{file}"], environment


def run(hub: Hub, tmp_path: Path, file: str = "tiny.gguf", **more: str) -> subprocess.CompletedProcess[str]:
    arguments, environment = command(hub, tmp_path, file)
    return subprocess.run(arguments, env=environment | more, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("file", ["tiny.gguf", NAMES[0]])
def test_from_nothing_to_a_file(hub: Hub, tmp_path: Path, file: str) -> None:
    done = run(hub, tmp_path, file)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 1
    assert Path(lines[0]).read_bytes() == hub.files[REPO, "main", file]
    assert "Fetching" in done.stderr
    assert "downloading" in done.stderr
    hub.requests.clear()
    again = run(hub, tmp_path, file, HF_HUB_OFFLINE="1")
    assert (again.returncode, again.stdout, again.stderr) == (0, done.stdout, "")
    assert hub.requests == []


def test_a_refusal_is_one_line_and_an_exit_code(hub: Hub, tmp_path: Path) -> None:
    hub.gated = {REPO}
    done = run(hub, tmp_path)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert f"is gated; accept its licence on {hub.url}/{REPO}" in done.stderr.splitlines()[-1]
    done = run(hub, tmp_path, HF_TOKEN=hub.token)
    assert done.returncode == 0, done.stderr


class Terminal:
    """A command with a pseudo-terminal as its standard error."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        import pty

        self._leader, follower = pty.openpty()
        self.process = subprocess.Popen(
            arguments, env=environment, stdin=follower, stdout=subprocess.PIPE, stderr=follower, text=True
        )
        os.close(follower)
        self.written = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        try:
            while chunk := os.read(self._leader, 4096):
                self.written += chunk.decode(errors="replace")
        except OSError:
            pass  # Linux reports the closed other end of a terminal as an error.

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something is there, or the process has ended."""
        end = time.monotonic() + 120
        while not condition() and self.process.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        assert condition(), self.written

    def finish(self) -> tuple[int, str]:
        """Exit code and standard output."""
        output = self.process.communicate(timeout=60)[0]
        self._reader.join(10)
        os.close(self._leader)
        return self.process.returncode, output


@posix
def test_ctrl_c_keeps_what_is_there_and_the_next_call_continues(hub: Hub, tmp_path: Path) -> None:
    hub.holds = {"tiny.gguf": len(MODEL) * 2 // 5}
    terminal = Terminal(*command(hub, tmp_path))
    terminal.wait_for(lambda: "1.7 MB of 4.2 MB" in terminal.written)
    terminal.process.send_signal(signal.SIGINT)
    code, output = terminal.finish()
    assert (code, output) == (130, "")
    assert "Traceback" not in terminal.written
    assert "Stopped. What was fetched is kept" in terminal.written
    parts = list((store.models_dir() / FOLDER / ".partial").glob("*.part"))
    assert [part.stat().st_size for part in parts] == [len(MODEL) * 2 // 5]
    hub.holds = {}
    hub.requests.clear()
    terminal = Terminal(*command(hub, tmp_path))
    code, output = terminal.finish()
    assert code == 0, terminal.written
    assert Path(output.strip()).read_bytes() == MODEL
    assert hub.ranges == [f"bytes={len(MODEL) * 2 // 5}-"]
    assert not parts[0].parent.exists()


@posix
def test_killed_while_parts_come_it_continues_each(hub: Hub, tmp_path: Path) -> None:
    hub.holds = dict.fromkeys(NAMES, 700_000)
    terminal = Terminal(*command(hub, tmp_path, NAMES[0]))
    terminal.wait_for(lambda: "1.4 MB of 4.2 MB" in terminal.written)
    terminal.process.kill()
    terminal.finish()
    kept = [part.stat().st_size for part in store.models_dir().rglob("*.part")]
    assert len(kept) == 2
    assert min(kept) > 600_000
    hub.holds = {}
    hub.requests.clear()
    done = run(hub, tmp_path, NAMES[0])
    assert done.returncode == 0, done.stderr
    assert sorted(map(str, hub.ranges)) == sorted(f"bytes={size}-" for size in kept)
    entry = ModelEntry(FOLDER.replace("tiny.gguf", NAMES[0]), (HubSource(REPO, NAMES[0]),))
    assert [file.read_bytes() for file in store.files(entry)] == [
        hub.files[REPO, "main", name] for name in NAMES
    ]


@posix
def test_of_two_at_once_the_second_waits_for_the_first(hub: Hub, tmp_path: Path) -> None:
    hub.holds = {"tiny.gguf": 1_000_000}
    first = Terminal(*command(hub, tmp_path))
    first.wait_for(lambda: "1.0 MB of 4.2 MB" in first.written)
    second = Terminal(*command(hub, tmp_path))
    second.wait_for(lambda: "waiting" in second.written)
    hub.released.set()
    assert [first.finish()[0], second.finish()[0]] == [0, 0]
    assert hub.ranges == [None]
